//go:build linux

package proc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
)

func TestARunThatIsDrainedBeforeItBeginsRunsNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *course) {
		x := c.open()
		x.Drain()
		x.Drain()
		if _, err := c.start(context.Background(), x).ended(); !errors.Is(err, work.ErrDrained) || len(c.began("item")) != 0 {
			t.Errorf("%d ran, error %v", len(c.began("item")), err)
		}
	})
}

func TestADrainDuringAPauseEndsTheRun(t *testing.T) {
	bubble(t, 8, func(t *testing.T, c *course) {
		until := time.Now().Add(time.Hour)
		c.play(func(_ context.Context, k call) int {
			time.Sleep(time.Second)
			return k.limited(until)
		})
		c.limits.Limits.Concurrency = 4
		rep := c.drained(time.Minute)
		if rep.RateLimited != 4 || rep.Left != 8 || len(c.results()) != 0 || len(c.began("item")) != 4 {
			t.Errorf("%+v", rep.Summary)
		}
		state, err := work.LoadState(proc.StatePath(c.cfg.Dir))
		if err != nil || state.Status != work.Interrupted || state.RateLimit.Until.Before(until) || time.Now().After(until) {
			t.Errorf("%+v, error %v", state, err)
		}
	})
}

func TestADrainWhileTheFeedWaitsForAStage(t *testing.T) {
	bubble(t, 0, func(t *testing.T, c *course) {
		c.write("items.jsonl", `{"id":"a","stage":"T1"}`+"\n"+`{"id":"b","stage":"T2","needs":["T1"]}`+"\n")
		c.cfg.Items.Path, c.cfg.Command.Args = c.path("items.jsonl"), c.cfg.Command.Args[:4]
		c.play(func(context.Context, call) int { time.Sleep(time.Hour); return 0 })
		if rep := c.drained(time.Minute); rep.Succeeded != 1 || rep.Left != 1 || len(c.began("")) != 1 {
			t.Errorf("%+v", rep.Summary)
		}
	})
}

func TestADrainWhileStandardInputIsOpen(t *testing.T) {
	bubble(t, 0, func(t *testing.T, c *course) {
		in, out := io.Pipe()
		defer out.Close()
		c.cfg.Items.Path, c.cfg.Items.Stdin = "-", in
		x := c.open()
		r := c.start(context.Background(), x)
		if _, err := io.WriteString(out, "one\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		x.Drain()
		if rep, err := r.ended(); !errors.Is(err, work.ErrDrained) || rep.Succeeded != 1 {
			t.Errorf("%+v, error %v", rep.Summary, err)
		}
	})
}

// Several commands find at once that nothing can be started any more.
func TestManyStopARunAtOnce(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 60, "")
	c.write("agent", "#!/bin/sh\nsleep 0.05\nrm -f \"$0\"\n")
	c.cfg.Command.Args = []string{c.path("agent"), "{}"}
	c.limits.Limits.Concurrency, c.limits.Attempts = 20, 1
	rep, err := c.run()
	if _, ok := errors.AsType[*work.StoppedError](err); !ok {
		t.Errorf("error %v", err)
	}
	for _, r := range c.results() {
		if r.State != proc.Succeeded && (r.ExitCode == nil || *r.ExitCode == 0) {
			t.Errorf("recorded %+v", r)
		}
	}
	if rep.Left == 0 {
		t.Errorf("%+v", rep.Summary)
	}
}

// A limit that never ends does not end the item, nor is it asked about without rest. A reset that is past is not believed for long.
func TestALimitThatStaysIsNotAskedAboutWithoutRest(t *testing.T) {
	most := map[string]int{"an overload": 80, "a reset that is past": 12}
	for name, end := range map[string]func(k call) int{
		"an overload": func(k call) int {
			fmt.Fprintln(k.Stderr, `API Error: 529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`)
			return 1
		},
		"a reset that is past": func(k call) int { return k.limited(time.Now().Add(-100 * time.Second)) },
	} {
		bubble(t, 4, func(t *testing.T, c *course) {
			c.play(func(_ context.Context, k call) int { return end(k) })
			c.limits.Limits.Concurrency = 4
			c.drained(10 * time.Minute)
			if n, k := len(c.began("item")), c.cfg.Pauses.Count(); n < 4 || n > most[name] || k > 12 || len(c.results()) != 0 {
				t.Errorf("%s: %d runs and %d pauses in ten minutes, recorded %+v", name, n, k, c.results())
			}
		})
	}
}

// One that is abandoned while its commands end by themselves records those that did, and no others.
func TestWhatEndedWellBeforeItWasAbandonedIsRecorded(t *testing.T) {
	t.Parallel()
	for round := range suite.Size(1, 8) {
		c := newCourse(t, 40, `trap 'exit 0' TERM; echo $1 >> $D/began; sleep 0.0$(($$ % 9)); echo $1 >> $D/ended`)
		c.limits.Limits.Concurrency = 8
		ctx, abandon := context.WithCancel(context.Background())
		r := c.start(ctx, c.open())
		c.await("ended", 8+round)
		abandon()
		if _, err := r.ended(); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		ended, _ := os.ReadFile(c.path("ended"))
		recorded := c.results()
		for _, res := range recorded {
			if item := "item" + res.ID + "\n"; res.State != proc.Succeeded || !strings.Contains("\n"+string(ended), "\n"+item) {
				t.Errorf("recorded %+v, which had not ended", res)
			}
		}
		if len(recorded) < 8+round-8 {
			t.Errorf("%d recorded of %d", len(recorded), 8+round)
		}
	}
}

func TestAnItemThatStoppedBetweenItsTriesIsTriedAgain(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *course) {
		ctx, abandon := context.WithCancel(context.Background())
		c.play(func(context.Context, call) int { time.AfterFunc(time.Millisecond, abandon); return 1 })
		x := c.open()
		if rep, err := c.start(ctx, x).ended(); !errors.Is(err, context.Canceled) || rep.Failed != 0 || x.Close() != nil {
			t.Fatalf("%+v, error %v", rep.Summary, err)
		}
		c.play(func(context.Context, call) int { return 0 })
		if rep, err := c.run(); err != nil || rep.Succeeded != 1 {
			t.Errorf("%+v, error %v", rep.Summary, err)
		}
	})
}

func TestAFailureOfAnEarlierRunBlocksWhatNeedsIt(t *testing.T) {
	bubble(t, 0, func(t *testing.T, c *course) {
		c.write("items.jsonl", `{"id":"a","stage":"T1"}`+"\n"+`{"id":"b","stage":"T2","needs":["T1"]}`+"\n")
		c.cfg.Items.Path, c.cfg.Command.Args, c.limits.Attempts = c.path("items.jsonl"), c.cfg.Command.Args[:4], 1
		c.play(func(context.Context, call) int { return 1 })
		c.cfg.Items.Only = []string{"T1"}
		x := c.open()
		if rep, err := c.start(t.Context(), x).ended(); err != nil || rep.Failed != 1 || x.Close() != nil {
			t.Fatalf("%+v, error %v", rep.Summary, err)
		}
		c.cfg.Items.Only = nil
		if rep, err := c.run(); len(c.began("")) != 1 || rep.Succeeded != 0 {
			t.Errorf("%d commands began, %+v, error %v", len(c.began("")), rep.Summary, err)
		}
	})
}

// The run before was killed between the result in the item's directory and the line of the results.
func TestAResultOfAnItemThatChangedIsNotTaken(t *testing.T) {
	for item, again := range map[string]int{`{"id":"a","v":1}`: 0, `{"id":"a","v":2}`: 1} {
		bubble(t, 0, func(t *testing.T, c *course) {
			c.write("items.jsonl", `{"id":"a","v":1}`+"\n")
			c.cfg.Items.Path, c.cfg.Command.Args = c.path("items.jsonl"), []string{"/bin/sh", "{v}"}
			x := c.open()
			if _, err := c.start(t.Context(), x).ended(); err != nil || x.Close() != nil || os.Truncate(proc.ResultsPath(c.cfg.Dir), 0) != nil {
				t.Fatal(err)
			}
			c.write("items.jsonl", item+"\n")
			if rep, err := c.run(); err != nil || rep.Succeeded != 1 || len(c.began("")) != 1+again {
				t.Errorf("%s: %d commands began, %+v, error %v", item, len(c.began("")), rep.Summary, err)
			}
		})
	}
}
