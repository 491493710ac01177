package sluice_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// A bubble ends only when all its goroutines have: a timer or goroutine that is left behind fails the test. What it
// cannot see is a second timer, so this counts the looks at the clock.
func TestWaitingCostsOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wakes atomic.Int32
		s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 60, Burst: time.Second, Concurrency: 1000},
			Observer: sluice.ObserverFunc(func(e sluice.Event) {
				if e.Type == limits.EventSlotAcquired {
					wakes.Add(1)
				}
			})})
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 120 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second+500*time.Millisecond)
				defer cancel()
				p, err := s.Acquire(ctx, sluice.Call{})
				if err == nil {
					p.Release(ok)
				}
			})
		}
		wg.Wait()
		if n, sec := wakes.Load(), time.Since(start).Seconds(); float64(n) < 0.9*min(sec, 110) || float64(n) > sec+2 {
			t.Errorf("%d grants in %.0f s at one a second", n, sec)
		}
	})
}

func TestACallThatWaitsForHoursNeedsNoOneElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{})
		until := time.Now().Add(7 * time.Hour)
		sc := &script{outcomes: []sluice.Outcome{{Kind: sluice.UsageWindow, Until: until}, ok}}
		if _, err := s.Do(t.Context(), sluice.Call{}, sc.run); err != nil {
			t.Fatal(err)
		}
		if late := time.Since(until); late < 0 || late > time.Second {
			t.Errorf("it went out %v after the window's end", late)
		}
	})
}

func TestNothingIsStartedThatOutlivesClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 10 {
			s, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 1}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			for range 3 {
				s.Acquire(ctx, sluice.Call{})
			}
			cancel()
			s.Close()
		}
	})
}

func TestAnInstantBeforeTheOneThatIsArmedForIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 60, Burst: time.Second}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		acquire(t, s, sluice.Call{Lane: "far"}).Release(sluice.Outcome{Kind: sluice.RateLimit, Wait: time.Hour})
		wg.Go(func() { s.Acquire(ctx, sluice.Call{Lane: "far"}) })
		synctest.Wait() // the timer is armed, a minute ahead
		acquire(t, s, sluice.Call{Lane: "near"}).Release(ok)
		start := time.Now()
		acquire(t, s, sluice.Call{Lane: "near"}).Release(ok)
		if d := time.Since(start); d > 1100*time.Millisecond {
			t.Errorf("a call waited %v at one a second", d)
		}
		cancel()
		wg.Wait()
	})
}
