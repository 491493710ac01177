package sluice_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

func TestAnObserverHearsOfAGrantBeforeItsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var heard []string
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}, Observer: sluice.ObserverFunc(func(e sluice.Event) {
			if e.Call == "first" && e.Type == limits.EventSlotReleased {
				time.Sleep(time.Second) // an observer that is slow for once
			}
			mu.Lock()
			heard = append(heard, string(e.Type)+" "+e.Call)
			mu.Unlock()
		})})
		first := acquire(t, s, sluice.Call{ID: "first"})
		var wg sync.WaitGroup
		wg.Go(func() { acquire(t, s, sluice.Call{ID: "second"}).Release(sluice.Outcome{}) })
		synctest.Wait()
		first.Release(sluice.Outcome{})
		wg.Wait()
		seen := map[string]int{}
		for i, h := range heard {
			seen[h] = i
		}
		if seen["released second"] < seen["granted second"] {
			t.Errorf("events out of order: %q", heard)
		}
	})
}

func TestAnAttemptThatEndsItsGoroutineGivesItsPermitBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
		var wg sync.WaitGroup
		wg.Go(func() {
			s.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
				runtime.Goexit() // as t.FailNow does
				return sluice.Outcome{}
			})
		})
		wg.Wait()
		if n := lane(t, s).InFlight; n != 0 {
			t.Errorf("%d in flight: the slot is lost for good", n)
		}
	})
}

func TestACallThatTheProviderSaysCanNeverFitIsErrTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{})
		_, err := s.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
			return sluice.Outcome{Kind: sluice.RateLimit, TooLarge: true, Err: errors.New("Request too large for gpt-4o")}
		})
		if !errors.Is(err, sluice.ErrTooLarge) {
			t.Errorf("%v is not ErrTooLarge", err)
		}
	})
}

func TestTheFirstAskDoesNotOvertakeTheBudgetsItIsMeantFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedgerDouble(1)
		l.correct = 30 * time.Millisecond // its first try was lost
		s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 60, Burst: time.Second, Concurrency: 64}, Ledger: l})
		ctx, cancel := context.WithTimeout(t.Context(), 900*time.Millisecond)
		defer cancel()
		var granted atomic.Int32
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if _, err := s.Acquire(ctx, sluice.Call{}); err == nil {
					granted.Add(1)
				}
			})
		}
		wg.Wait()
		if n := granted.Load(); n > 2 {
			t.Errorf("%d calls went out in the first second of a budget of one a second", n)
		}
	})
}

func TestASecondSchedulerDoesNotEmptyASharedBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedgerDouble(1)
		cfg := sluice.Config{Limits: sluice.Limits{RPM: 600, Burst: time.Second}, Ledger: idsOf{l, 1 << 32}}
		first := open(t, cfg)
		for range 300 {
			acquire(t, first, sluice.Call{}).Release(sluice.Outcome{})
		}
		cfg.Ledger = idsOf{l, 2 << 32}
		second := open(t, cfg)
		start := time.Now()
		acquire(t, second, sluice.Call{}).Release(sluice.Outcome{})
		if d := time.Since(start); d > time.Second {
			t.Errorf("the first call of a Scheduler that joins later waits for %v at ten a second", d)
		}
	})
}

// idsOf tells the IDs of one Scheduler from another's.
type idsOf struct {
	l    *ledgerDouble
	base uint64
}

func (i idsOf) Take(ctx context.Context, asks limits.Asks) (limits.Reply, error) {
	asks.Calls = slices.Clone(asks.Calls)
	for j := range asks.Calls {
		asks.Calls[j].ID += i.base
	}
	return i.l.Take(ctx, asks)
}

func (i idsOf) Watch(tell func(string, limits.LaneState, bool)) (stop func()) { return i.l.Watch(tell) }

func (i idsOf) Settle(ctx context.Context, s limits.Settlement) error {
	s.ID += i.base
	return i.l.Settle(ctx, s)
}

func (i idsOf) Correct(ctx context.Context, c limits.Correction) error {
	c.ID += i.base
	return i.l.Correct(ctx, c)
}

func TestACloseDeliversWhatWasReleasedBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedgerDouble(1)
		s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 600}, Ledger: l})
		acquire(t, s, sluice.Call{}).Release(sluice.Outcome{Kind: sluice.Network, Unsent: true})
		s.Close()
		if _, returned := l.counts(); returned != 1 {
			t.Error("a budget that was given back never reaches the shared ledger")
		}
	})
}

func TestTryAcquireTakesNothingFromASharedLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedgerDouble(1)
		s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 600}, Ledger: l})
		if p := s.TryAcquire(sluice.Call{}); p != nil {
			t.Fatal("got a permit")
		}
		time.Sleep(time.Second)
		if taken, _ := l.counts(); taken != 0 {
			t.Errorf("%d calls were charged for a permit that is never given", taken)
		}
	})
}

func TestALedgersWrongReplyDoesNotCrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Ledger: wrongLedger{}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.Acquire(ctx, sluice.Call{})
	})
}

type wrongLedger struct{}

func (wrongLedger) Watch(func(string, limits.LaneState, bool)) (stop func()) { return func() {} }
func (wrongLedger) Take(context.Context, limits.Asks) (limits.Reply, error) {
	return limits.Reply{Granted: 3}, nil // more than was asked for, and no marks
}
func (wrongLedger) Settle(context.Context, limits.Settlement) error  { return nil }
func (wrongLedger) Correct(context.Context, limits.Correction) error { return nil }

func TestAnObserverHearsNothingAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Bool
		var late atomic.Int32
		s, err := sluice.New(sluice.Config{Observer: sluice.ObserverFunc(func(e sluice.Event) {
			if e.Call == "slow" && e.Type == limits.EventSlotReleased {
				time.Sleep(time.Second)
			}
			if closed.Load() {
				late.Add(1)
			}
		})})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		p := acquire(t, s, sluice.Call{ID: "slow"})
		wg.Go(func() { p.Release(ok) })
		synctest.Wait()
		acquire(t, s, sluice.Call{ID: "quick"}).Release(ok)
		s.Close()
		closed.Store(true)
		wg.Wait()
		if n := late.Load(); n > 0 {
			t.Errorf("%d events are told after Close: whoever closes its events file then loses them", n)
		}
	})
}
