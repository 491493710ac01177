//go:build linux

package proc_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/proc"
	"github.com/sluice-llm/sluice/work"
)

func TestARunThatIsDrainedBeforeItBeginsRunsNothing(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 3, `echo >> $D/ran`)
	x := c.open()
	x.Drain()
	x.Drain()
	if _, err := c.start(context.Background(), x).ended(); !errors.Is(err, work.ErrDrained) || c.noted("ran") != 0 {
		t.Errorf("%d ran, error %v", c.noted("ran"), err)
	}
}

func TestADrainDuringAPauseEndsTheRun(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 8, `echo >> $D/ran; until test $(wc -l < $D/ran) = 4; do sleep 0.01; done
echo "Claude AI usage limit reached|$(($(date +%s) + 3600))"; exit 1`)
	c.limits.Limits.Concurrent = 4
	x := c.open()
	r := c.start(context.Background(), x)
	for x.Progress().Throttles+c.cfg.Pauses.Count() == 0 {
		time.Sleep(time.Millisecond)
	}
	c.await("ran", 4)
	x.Drain()
	rep, err := r.ended()
	if !errors.Is(err, work.ErrDrained) || rep.RateLimited == 0 || rep.Left != 8 || len(c.results()) != 0 {
		t.Errorf("%+v, error %v", rep.Summary, err)
	}
	state, err := work.LoadState(proc.StatePath(c.cfg.Dir))
	if err != nil || state.Status != work.Interrupted || time.Until(state.RateLimit.Until) < time.Hour/2 {
		t.Errorf("%+v, error %v", state, err)
	}
}

func TestADrainWhileTheFeedWaitsForATier(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 0, `echo >> $D/ran; until test -e $D/go; do sleep 0.01; done`)
	c.write("items.txt", `{"id":"a","tier":"T1"}`+"\n"+`{"id":"b","tier":"T2","needs":["T1"]}`+"\n")
	c.cfg.Command.Args = c.cfg.Command.Args[:4]
	c.cfg.Items = c.path("items.jsonl")
	if err := os.Rename(c.path("items.txt"), c.cfg.Items); err != nil {
		t.Fatal(err)
	}
	x := c.open()
	r := c.start(context.Background(), x)
	c.await("ran", 1)
	x.Drain()
	c.write("go", "")
	rep, err := r.ended()
	if !errors.Is(err, work.ErrDrained) || rep.Succeeded != 1 || rep.Left != 1 || c.noted("ran") != 1 {
		t.Errorf("%+v, error %v", rep.Summary, err)
	}
}

func TestADrainWhileStandardInputIsOpen(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 0, `echo >> $D/ran`)
	in, out := io.Pipe()
	defer out.Close()
	c.cfg.Items, c.cfg.Stdin = "-", in
	dir := t.TempDir()
	c.cfg.Command.Env = append(c.cfg.Command.Env, "D="+dir)
	x := c.open()
	r := c.start(context.Background(), x)
	if _, err := io.WriteString(out, "one\n"); err != nil {
		t.Fatal(err)
	}
	for x.Progress().Done == 0 {
		time.Sleep(time.Millisecond)
	}
	x.Drain()
	if rep, err := r.ended(); !errors.Is(err, work.ErrDrained) || rep.Succeeded != 1 {
		t.Errorf("%+v, error %v", rep.Summary, err)
	}
}

// Several commands find at once that nothing can be started any more.
func TestManyStopARunAtOnce(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 60, "")
	c.write("agent", "#!/bin/sh\nsleep 0.05\nrm -f \"$0\"\n")
	c.cfg.Command.Args = []string{c.path("agent"), "{}"}
	c.limits.Limits.Concurrent, c.limits.Attempts = 20, 1
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

// An address is asked without the key of the account: that it wants one is no limit.
func TestAnAddressThatWantsAKeySaysNothing(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]int{http.StatusUnauthorized: 3, http.StatusForbidden: 3, http.StatusNotFound: 3, http.StatusOK: 3} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
		defer server.Close()
		c := newCourse(t, 3, `echo >> $D/ran`)
		c.cfg.Preflight = proc.Preflight{URL: server.URL}
		if rep, err := c.run(); err != nil || rep.Succeeded != want {
			t.Errorf("status %d: %+v, error %v", status, rep.Summary, err)
		}
	}
}

// A limit that never ends does not end the item, nor does anything turn without rest.
func TestAnOverloadThatStaysIsNotAskedAboutWithoutRest(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 4, `date +%s%N >> $D/ran; echo >&2 'API Error: 529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'; exit 1`)
	c.limits.Limits.Concurrent = 4
	x := c.open()
	r := c.start(context.Background(), x)
	time.Sleep(4 * time.Second)
	c.await("ran", 4)
	x.Drain()
	if _, err := r.ended(); !errors.Is(err, work.ErrDrained) || len(c.results()) != 0 {
		t.Errorf("error %v", err)
	}
	if n := c.noted("ran"); n > 40 {
		t.Errorf("%d runs in 4 s", n)
	}
}

// A reset that is past is not believed for long.
func TestAResetThatIsPastIsNotAskedAboutWithoutRest(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 4, `date +%s%N >> $D/ran; echo "Claude AI usage limit reached|$(($(date +%s) - 100))"; exit 1`)
	c.limits.Limits.Concurrent = 4
	x := c.open()
	r := c.start(context.Background(), x)
	time.Sleep(4 * time.Second)
	c.await("ran", 1)
	x.Drain()
	if _, err := r.ended(); !errors.Is(err, work.ErrDrained) || len(c.results()) != 0 {
		t.Errorf("error %v", err)
	}
	if n := c.noted("ran"); n > 20 {
		t.Errorf("%d runs in 4 s", n)
	}
	if k := c.cfg.Pauses.Count(); k > 20 {
		t.Errorf("%d pauses", k)
	}
}

// One that is abandoned while its commands end by themselves records those that did, and no others.
func TestWhatEndedWellBeforeItWasAbandonedIsRecorded(t *testing.T) {
	t.Parallel()
	for round := range 8 {
		c := newCourse(t, 40, `trap 'exit 0' TERM; echo $1 >> $D/began; sleep 0.0$(($$ % 9)); echo $1 >> $D/ended`)
		c.limits.Limits.Concurrent = 8
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
