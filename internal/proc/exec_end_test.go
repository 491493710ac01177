//go:build linux

package proc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/work"
)

// A program may answer the request to end by doing so in good order.
func polite(ctx context.Context, _ call) int {
	rest(ctx, 30*time.Minute)
	return 0
}

func TestACommandThatEndsInGoodOrderWhenItIsAskedToIsNotDone(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *course) {
		c.play(polite)
		ctx, abandon := context.WithTimeout(context.Background(), time.Minute)
		defer abandon()
		if _, err := c.start(ctx, c.open()).ended(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
		if all := c.results(); len(all) != 0 || len(c.began("item")) != 1 {
			t.Errorf("recorded %+v", all)
		}
	})
}

func TestACommandThatEndsInGoodOrderWhenItsTimeIsOverTimedOut(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *course) {
		c.play(polite)
		c.limits.Attempts = 2
		c.cfg.Command.Timeout = 10 * time.Minute
		if _, err := c.run(); err != nil {
			t.Fatal(err)
		}
		if all := c.results(); len(all) != 1 || all[0].Kind != sluice.Timeout || all[0].Attempts != 2 || all[0].Latency != 600_000 {
			t.Errorf("recorded %+v", all)
		}
	})
}

// The processes that it left behind hold its input beyond the time that it had.
func TestACommandThatEndedWellInItsTimeIsDone(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *course) {
		c.cfg.Command.Timeout = time.Minute
		c.cfg.Command.Run = func(context.Context, command.Spec) (command.Result, error) {
			time.Sleep(2 * time.Minute)
			return command.Result{}, nil
		}
		c.succeed(1)
	})
}

// What breaks the run is no failure of the item, though that has no attempt left.
func TestWhatStopsTheRunIsNoResult(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 3, "")
	c.write("once", "#!/bin/sh\nrm \"$0\"\n")
	c.cfg.Command.Args = []string{c.path("once"), "{}"}
	c.limits.Attempts = 1
	_, err := c.run()
	if stopped, ok := errors.AsType[*work.StoppedError](err); !ok {
		t.Errorf("error %v, %v", err, stopped)
	}
	if all := c.results(); len(all) != 1 || all[0].State != proc.Succeeded {
		t.Errorf("recorded %+v", all)
	}
}

// The result.json of a try, which is put aside where commands may leave records of their own, says nothing of the next try.
func TestATryIsNotJudgedByTheOneBefore(t *testing.T) {
	for name, end := range map[string]func(k call) int{
		"a failure": func(k call) int { fmt.Fprintln(k.Stderr, "badly"); return 1 },
		"a limit":   func(k call) int { return k.limited(time.Now()) },
	} {
		bubble(t, 1, func(t *testing.T, c *course) {
			c.play(func(_ context.Context, k call) int {
				if k.nth == 1 {
					return end(k)
				}
				return 0
			})
			if c.succeed(1); len(c.began("item")) != 2 {
				t.Errorf("%s: %d runs", name, len(c.began("item")))
			}
		})
	}
}

// A record that a command leaves anew in the place of one before is of its try.
func TestARecordThatIsWrittenAnewCounts(t *testing.T) {
	bubble(t, 1, func(t *testing.T, c *course) {
		c.play(func(_ context.Context, k call) int {
			dir := filepath.Join(k.itemDir(), ".failed", "run")
			if err := os.MkdirAll(dir, 0o700); err != nil || k.nth == 3 {
				return 0
			}
			name := filepath.Join(dir, "result.json")
			record := fmt.Sprintf(`{"is_error":true,"result":"Claude AI usage limit reached|%d"}`, time.Now().Unix())
			if err := errors.Join(os.WriteFile(name, []byte(record), 0o600), os.Chtimes(name, time.Time{}, time.Now())); err != nil {
				t.Error(err)
			}
			return 0
		})
		if rep := c.succeed(1); rep.Run.Throttles != 2 || len(c.began("item")) != 3 {
			t.Errorf("%+v in %d runs", rep, len(c.began("item")))
		}
	})
}

func TestACommandMayRemoveItsDirectory(t *testing.T) {
	t.Parallel()
	for _, script := range []string{`echo well; rm -r "$SLUICE_ITEM_DIR"`, `rm -r "$SLUICE_ITEM_DIR"; echo >&2 badly; exit 1`,
		`cd $SLUICE_ITEM_DIR; rm *; mkfifo stdout.log stderr.log`} {
		c := newCourse(t, 2, script)
		if rep, err := c.run(); err != nil || rep.Left != 0 {
			t.Errorf("%s: %+v, error %v", script, rep, err)
		}
	}
}

func TestWhatACommandLeavesBehindIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 1, `(sleep 60; echo >> $D/late) & echo done`)
	c.cfg.Command.Run = func(ctx context.Context, s command.Spec) (command.Result, error) {
		s.Grace = 5 * time.Minute
		return command.Run(ctx, s)
	}
	if rep, err := c.run(); err != nil || rep.Succeeded != 1 || c.noted("late") > 0 {
		t.Errorf("%+v, error %v, and %d lines came late", rep.Summary, err, c.noted("late"))
	}
}

func TestCommandsStayBelowTheirMaximumCost(t *testing.T) {
	for _, jobs := range []int{1, 4} {
		bubble(t, 100, func(t *testing.T, c *course) {
			c.cfg.Verdict.CLI, c.cfg.Limits.Budget.Cost = agents.Recognise("claude"), 0.105
			c.limits.Limits.Concurrency = jobs
			c.play(func(_ context.Context, k call) int {
				time.Sleep(time.Second)
				k.say(`{"type":"result","subtype":"success","is_error":false,"result":"done","total_cost_usd":0.01}` + "\n")
				return 0
			})
			rep, err := c.run()
			spent, ok := errors.AsType[*budget.Error](err)
			if !ok || rep.Succeeded != 10 || spent.Used.Used > spent.Limit || spent.Used.Used+spent.Next <= spent.Limit {
				t.Errorf("%d at once: %d done, %+v, error %v", jobs, rep.Succeeded, spent, err)
			}
		})
	}
}
