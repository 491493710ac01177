package sluice_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
)

// A call's time is over, it is cancelled, and a slot comes free, in this order, before it looks again.
func TestWhoCancelledAtTheEndOfItsTimeHasNoSlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
		for i := range 2000 {
			held := acquire(t, s, sluice.Call{})
			ctx, cancel := context.WithCancel(t.Context())
			withdrawn := make(chan struct{})
			var wg sync.WaitGroup
			wg.Go(func() {
				p, err := s.Acquire(ctx, sluice.Call{MaxWait: time.Second, Withdrawn: withdrawn})
				if err == nil {
					t.Errorf("round %d: it has a slot after its cancel", i)
					p.Release(sluice.Outcome{})
				}
			})
			synctest.Wait()
			time.Sleep(time.Second)
			if i%2 == 0 {
				cancel()
			} else {
				close(withdrawn)
			}
			held.Release(sluice.Outcome{})
			wg.Wait()
			cancel()
			if t.Failed() {
				return
			}
		}
		if l := lane(t, s); l.InFlight != 0 || l.Waiting != 0 {
			t.Errorf("left: %+v", l)
		}
	})
}

// Whoever looks at the state, or asks without waiting, may come to it late. Budgets must not grow twice for the time between.
func TestALateLookGivesNoBudgetTwice(t *testing.T) {
	for name, late := range map[string]func(*sluice.Scheduler){
		"Snapshot":   func(s *sluice.Scheduler) { s.Snapshot() },
		"TryAcquire": func(s *sluice.Scheduler) { s.TryAcquire(sluice.Call{Cost: sluice.Cost{Input: 1}}) },
	} {
		t.Run(name, func(t *testing.T) {
			const perSecond = 1000
			s := open(t, sluice.Config{Limits: sluice.Limits{TPM: 60 * perSecond, Burst: time.Minute, Concurrency: 2}})
			p := acquire(t, s, sluice.Call{Cost: sluice.Cost{Input: 50 * perSecond}})
			start, before := time.Now(), lane(t, s).Budgets[0].Level
			var wg sync.WaitGroup
			for range 5 {
				end := sluice.Stall(s)
				wg.Go(func() { late(s) })
				time.Sleep(50 * time.Millisecond)
				sluice.Look(s)
				end()
				wg.Wait()
			}
			grown := lane(t, s).Budgets[0].Level - before
			if most := perSecond*time.Since(start).Seconds() + 1; grown > most {
				t.Errorf("it grew by %.0f in the time for %.0f", grown, most)
			}
			p.Release(sluice.Outcome{})
		})
	}
}

func TestAnOrphanIsGivenBackOnce(t *testing.T) {
	s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 4}})
	for range 50 {
		func() {
			p := acquire(t, s, sluice.Call{})
			for range 4 {
				p.ReleaseIfLost()
			}
		}()
		collectUntil(t, func() bool { return lane(t, s).InFlight <= 0 })
		if n := lane(t, s).InFlight; n != 0 {
			t.Fatalf("%d in flight", n)
		}
	}
}

// collectUntil runs the garbage collector until done.
func collectUntil(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(5 * time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it was not collected")
		}
		runtime.GC()
	}
}
