//go:build linux

package proc_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/proc"
	"github.com/sluice-llm/sluice/work"
)

// A program may answer the request to end by doing so in good order.
const polite = `trap 'exit 0' TERM; echo >> $D/began; sleep 30 & wait`

func TestACommandThatEndsInGoodOrderWhenItIsAskedToIsNotDone(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 1, polite)
	ctx, abandon := context.WithCancel(context.Background())
	defer abandon()
	r := c.start(ctx, c.open())
	c.await("began", 1)
	abandon()
	if _, err := r.ended(); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if all := c.results(); len(all) != 0 {
		t.Errorf("recorded %+v", all)
	}
}

func TestACommandThatEndsInGoodOrderWhenItsTimeIsOverTimedOut(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 1, polite)
	c.limits.Attempts = 1
	c.cfg.Command.Timeout = 200 * time.Millisecond
	if _, err := c.run(); err != nil {
		t.Fatal(err)
	}
	if all := c.results(); len(all) != 1 || all[0].Kind.String() != "timeout" {
		t.Errorf("recorded %+v", all)
	}
}

// What it left behind holds its input beyond the time that it had.
func TestACommandThatEndedWellInItsTimeIsDone(t *testing.T) {
	t.Parallel()
	for round := 1; ; round++ { // on a busy machine it may not end in its time, or what it left behind too early
		c := newCourse(t, 1, `exec 3<&0; setsid sleep 3 <&3 >/dev/null 2>&1 & sleep 0.1`)
		c.write("items.txt", strings.Repeat("long", 100_000)+"\n")
		c.cfg.Command.Args = c.cfg.Command.Args[:4]
		c.cfg.Command.Stdin, c.cfg.Command.Timeout = true, 600*time.Millisecond
		rep, err := c.run()
		all := c.results()
		if err == nil && rep.Succeeded == 1 && all[0].Latency >= 600 {
			return
		}
		if round == 10 {
			t.Fatalf("%+v, error %v", all, err)
		}
	}
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

// Nor is that of an item which still waits for its turn in a usage window when the run is drained.
func TestADrainWhileACommandIsPacedRecordsNothing(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 4, `echo >> $D/ran`)
	c.limits.Limits.Concurrent, c.limits.Attempts = 4, 1
	c.pace(0.9, 4*time.Hour)
	x := c.open()
	r := c.start(context.Background(), x)
	c.await("ran", 1)
	x.Drain()
	x.Drain()
	if _, err := r.ended(); !errors.Is(err, work.ErrDrained) {
		t.Errorf("error %v", err)
	}
	if n := len(c.results()); n != 1 || c.noted("ran") != 1 {
		t.Errorf("%d results, of %d commands", n, c.noted("ran"))
	}
}

// The result.json of a try, which is put aside where commands may leave records of their own, says nothing of the next try.
func TestATryIsNotJudgedByTheOneBefore(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]string{
		"a failure": `echo >&2 badly; exit 1`,
		"a limit":   `echo "Claude AI usage limit reached|$(date +%s)"; exit 1`,
	} {
		c := newCourse(t, 1, `echo >> $D/ran; if mkdir $D/met; then `+end+`; fi`)
		if rep, err := c.run(); err != nil || rep.Succeeded != 1 || c.noted("ran") != 2 {
			t.Errorf("%s: %+v in %d runs, error %v", name, rep, c.noted("ran"), err)
		}
	}
}

// A record that a command leaves anew in the place of one before is of its try.
func TestARecordThatIsWrittenAnewCounts(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 1, `echo >> $D/ran; mkdir -p $SLUICE_ITEM_DIR/.failed/run
if ! mkdir $D/1 && ! mkdir $D/2; then exit 0; fi
printf '{"is_error":true,"result":"Claude AI usage limit reached|%d"}' $(date +%s) > $SLUICE_ITEM_DIR/.failed/run/result.json`)
	rep, err := c.run()
	if err != nil || rep.Run.Throttles != 2 || c.noted("ran") != 3 {
		t.Errorf("%+v in %d runs, error %v", rep, c.noted("ran"), err)
	}
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
