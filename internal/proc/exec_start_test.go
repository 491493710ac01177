//go:build linux

package proc_test

import (
	"context"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/work"
)

// preflight is a command that the plays of tests know by its last word.
var preflight = []string{"preflight"}

func TestADrainDuringThePreflightStartsNothing(t *testing.T) {
	bubble(t, 4, func(t *testing.T, c *course) {
		c.limits.Limits.Concurrency, c.limits.Attempts = 4, 1
		c.cfg.Limits.Preflight = preflight
		c.play(func(ctx context.Context, _ call) int { rest(ctx, 20*time.Second); return 0 })
		c.drained(time.Second)
		if n := len(c.began("item")); n != 0 || len(c.results()) != 0 {
			t.Errorf("%d commands ran, recorded %+v", n, c.results())
		}
	})
}

func TestThePreflightAsksAgainAfterEachPause(t *testing.T) {
	bubble(t, 3, func(t *testing.T, c *course) {
		c.cfg.Limits.Preflight = preflight
		c.play(func(_ context.Context, k call) int {
			if k.last == "item1" && k.nth == 1 {
				return k.limited(time.Now().Add(time.Hour))
			}
			return 0
		})
		c.succeed(3)
		if n := len(c.began("preflight")); n != 2 || len(c.began("item")) != 4 {
			t.Errorf("%d preflights, %d runs", n, len(c.began("item")))
		}
	})
}

func TestAResetThatAWorkerStatesIsWaitedFor(t *testing.T) {
	for _, kind := range []string{"rate_limit", "usage_window", "overloaded"} {
		bubble(t, 3, func(t *testing.T, c *course) {
			c.cfg.Command.Args, c.cfg.Command.Persistent = c.cfg.Command.Args[:3], true
			until := time.Now().Add(20 * time.Minute).UTC().Truncate(time.Second)
			var ran []time.Time
			c.cfg.Command.Run = crew(func(_ context.Context, o order, say func(string, ...any)) {
				if ran = append(ran, time.Now()); len(ran) == 1 {
					say(`{"id":%q,"ok":false,"error":{"message":"slow","kind":%q,"reset_at":%q}}`, o.ID, kind, until.Format(time.RFC3339))
					return
				}
				say(`{"id":%q,"ok":true}`, o.ID)
			})
			c.succeed(3)
			if len(ran) != 4 || ran[1].Before(until) || ran[1].After(until.Add(time.Minute)) {
				t.Errorf("%s: commands began at %v, the limit ends at %v", kind, ran, until)
			}
			if n := c.cfg.Pauses.Count(); n != 1 {
				t.Errorf("%s: %d pauses", kind, n)
			}
		})
	}
}

// Those that were sent before a pause may tell of one that lasts longer, such as a week's. All is held back until then, and
// said to be: what the next run waits for is what stands there.
func TestALaterResetOfAnEarlierCommandIsTold(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *course) {
		c.limits.Limits.Concurrency = 2
		began := time.Now()
		resets := map[string]time.Duration{"item1": 8 * time.Minute, "item2": 12 * time.Minute}
		c.play(func(_ context.Context, k call) int {
			if k.nth > 1 {
				return 0
			}
			if time.Sleep(time.Second); k.last == "item2" {
				time.Sleep(time.Minute)
			}
			return k.limited(began.Add(resets[k.last]))
		})
		r := c.start(context.Background(), c.open())
		time.Sleep(5 * time.Minute)
		state, err := work.LoadState(proc.StatePath(c.cfg.Dir))
		if err != nil || state.Status != work.Limited || state.RateLimit.Until.Sub(began) < 12*time.Minute || state.PauseCount != 1 {
			t.Errorf("%+v, error %v", state, err)
		}
		if rep, err := r.ended(); err != nil || rep.Succeeded != 2 {
			t.Errorf("%+v, error %v", rep, err)
		}
		if ran := c.began("item"); len(ran) != 4 || ran[2].Sub(began) < 12*time.Minute {
			t.Errorf("commands began at %v", ran)
		}
	})
}

// The next run waits for a limit that the one before met, if it is not told to ignore it.
func TestALimitOfTheRunBeforeIsWaitedFor(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		bubble(t, 2, func(t *testing.T, c *course) {
			until := time.Now().Add(50 * time.Minute)
			c.play(func(_ context.Context, k call) int {
				if time.Now().Before(until) && !c.cfg.Limits.IgnorePause {
					return k.limited(until)
				}
				return 0
			})
			c.drained(10 * time.Minute)
			if n := len(c.began("item")); n != 1 {
				t.Errorf("%d commands", n)
			}
			c.cfg.Limits.IgnorePause = ignore
			c.succeed(2)
			if ran := c.began("item"); len(ran) != 3 || ran[1].Before(until) != ignore {
				t.Errorf("commands began at %v, the limit ends at %v", ran, until)
			}
		})
	}
}

// A limit that is met while the preflight is on is asked about by another one: the first may have asked before.
func TestALimitMetDuringThePreflightIsAskedAbout(t *testing.T) {
	bubble(t, 2, func(t *testing.T, c *course) {
		c.limits.Limits.Concurrency = 2
		c.cfg.Limits.Preflight = preflight
		c.play(func(_ context.Context, k call) int {
			switch {
			case k.last == "preflight" && k.nth > 1:
				time.Sleep(10 * time.Minute)
				return 0
			case k.last == "preflight" || k.nth > 1:
				return 0
			case k.last == "item2":
				for len(c.began("preflight")) < 2 {
					time.Sleep(time.Second)
				}
			}
			return k.limited(time.Now())
		})
		c.succeed(2)
		if n := len(c.began("preflight")); n != 3 {
			t.Errorf("%d preflights", n)
		}
	})
}
