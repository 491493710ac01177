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

func TestADrainDuringThePreflightStartsNothing(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 4, `echo >> $D/ran`)
	c.limits.Limits.Concurrent, c.limits.Attempts = 4, 1
	c.cfg.Preflight = proc.Preflight{Command: []string{"/bin/sh", "-c", "echo >> $D/asked; sleep 20"}}
	x := c.open()
	r := c.start(context.Background(), x)
	c.await("asked", 1)
	x.Drain()
	if _, err := r.ended(); !errors.Is(err, work.ErrDrained) {
		t.Errorf("error %v", err)
	}
	if n := c.noted("ran"); n != 0 || len(c.results()) != 0 {
		t.Errorf("%d commands ran, recorded %+v", n, c.results())
	}
}

// limitedOnce meets a limit at its first run.
const limitedOnce = `echo >> $D/ran
if mkdir $D/met 2>/dev/null; then echo "Claude AI usage limit reached|$(date +%s)"; exit 1; fi`

func TestThePreflightAsksAgainAfterEachPause(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 3, limitedOnce)
	c.cfg.Preflight = proc.Preflight{Command: []string{"/bin/sh", "-c", "echo >> $D/asked"}}
	if rep, err := c.run(); err != nil || rep.Succeeded != 3 {
		t.Fatalf("%+v, error %v", rep, err)
	}
	if n := c.noted("asked"); n != 2 || c.noted("ran") != 4 {
		t.Errorf("%d preflights, %d runs", n, c.noted("ran"))
	}
}

// A limit holds back those too that have a permit and wait for their turn.
func TestAPausedLaneStartsNothingThatWasPaced(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 3, `date +%s%N >> $D/ran
if mkdir $D/met; then echo "Claude AI usage limit reached|$(($(date +%s) + 9))"; exit 1; fi`)
	c.limits.Limits.Concurrent = 3
	c.pace(0.9, 30*time.Second) // three seconds apart: the first tells of its limit before the next has its turn
	if rep, err := c.run(); err != nil || rep.Succeeded != 3 {
		t.Fatalf("%+v, error %v", rep, err)
	}
	if ran := c.times("ran"); len(ran) != 4 || ran[1].Sub(ran[0]) < 7*time.Second {
		t.Errorf("commands began at %v", ran)
	}
}

// What a window has left does not put commands off that far that they wait for their turn beyond its reset.
func TestNoTurnIsBeyondTheReset(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 3, `date +%s%N >> $D/ran`)
	c.limits.Limits.Concurrent = 3
	c.pace(0.995, 4*time.Second) // nothing more fits
	if _, err := c.start(context.Background(), c.open()).ended(); err != nil {
		t.Fatal(err)
	}
	if ran := c.times("ran"); len(ran) != 3 || ran[2].Sub(ran[0]) > 7*time.Second {
		t.Errorf("commands began at %v", ran)
	}
}

// refuse answers every item, with a refusal until an instant for the first two.
const refuse = `until=$(date -u -d '+2 seconds' +%Y-%m-%dT%H:%M:%SZ)
while read -r line; do
	date +%s%N >> $D/ran
	id=$(echo "$line" | sed 's/.*"id":"\([^"]*\)".*/\1/')
	if mkdir $D/met; then echo '{"id":"'$id'","ok":false,"error":{"message":"slow","kind":"KIND","reset_at":"'$until'"}}'
	else echo '{"id":"'$id'","ok":true}'; fi
done 2>/dev/null`

func TestAResetThatAWorkerStatesIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"rate_limit", "usage_window", "overloaded"} {
		t.Run(kind, func(t *testing.T) {
			c := newCourse(t, 3, strings.Replace(refuse, "KIND", kind, 1))
			c.cfg.Command.Args, c.cfg.Persistent = c.cfg.Command.Args[:3], true
			if rep, err := c.run(); err != nil || rep.Succeeded != 3 {
				t.Fatalf("%+v, error %v", rep, err)
			}
			if ran := c.times("ran"); len(ran) != 4 || ran[1].Sub(ran[0]) < time.Second {
				t.Errorf("commands began at %v", ran)
			}
			if n := c.cfg.Pauses.Count(); n != 1 {
				t.Errorf("%d pauses", n)
			}
		})
	}
}

// Those that were sent before a pause may tell of one that lasts longer, such as a week's. All is held back until then, and
// said to be: what the next run waits for is what stands there.
func TestALaterResetOfAnEarlierCommandIsTold(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 2, `date +%s%N >> $D/ran
test $1 = item2 && sleep 0.3
mkdir $D/met.$1 || exit 0
case $1 in item1) s=8;; *) s=12;; esac
echo "Claude AI usage limit reached|$(($(date +%s) + $s))"; exit 1`)
	c.limits.Limits.Concurrent = 2
	x := c.open()
	began := time.Now()
	r := c.start(context.Background(), x)
	var state work.State
	var err error
	for time.Since(began) < 6*time.Second && state.RateLimit.Until.Sub(began) < 11*time.Second {
		time.Sleep(10 * time.Millisecond)
		state, err = work.LoadState(proc.StatePath(c.cfg.Dir))
	}
	if err != nil || state.Status != work.Limited || state.RateLimit.Until.Sub(began) < 11*time.Second || state.PauseCount != 1 {
		t.Errorf("%+v, error %v", state, err)
	}
	if rep, err := r.ended(); err != nil || rep.Succeeded != 2 {
		t.Errorf("%+v, error %v", rep, err)
	}
	if ran := c.times("ran"); len(ran) != 4 || ran[2].Sub(began) < 11*time.Second {
		t.Errorf("commands began at %v", ran)
	}
}

// A limit that is met while the preflight is on is asked about by another one: the first may have asked before.
func TestALimitMetDuringThePreflightIsAskedAbout(t *testing.T) {
	t.Parallel()
	c := newCourse(t, 2, `mkdir $D/met.$1 || exit 0
if test $1 = item2; then until test $(wc -l < $D/asked) = 2; do sleep 0.01; done; echo > $D/told; fi
echo "Claude AI usage limit reached|$(date +%s)"; exit 1`)
	c.limits.Limits.Concurrent = 2
	c.cfg.Preflight = proc.Preflight{Command: []string{"/bin/sh", "-c", `echo >> $D/asked
test $(wc -l < $D/asked) = 1 && exit
until test -e $D/told; do sleep 0.01; done; sleep 0.3`}}
	if rep, err := c.run(); err != nil || rep.Succeeded != 2 {
		t.Fatalf("%+v, error %v", rep.Summary, err)
	}
	if n := c.noted("asked"); n != 3 {
		t.Errorf("%d preflights", n)
	}
}
