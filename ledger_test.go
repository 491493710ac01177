package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// TestAnyWorkEndsOnAnyLedger runs random work on the local ledger and on one that is late, refuses and loses.
func TestAnyWorkEndsOnAnyLedger(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		remote := rapid.Bool().Draw(rt, "remote")
		workers := rapid.IntRange(1, 20).Draw(rt, "workers")
		items := rapid.IntRange(1, 60).Draw(rt, "items")
		var problem error
		synctest.Test(t, func(t *testing.T) { problem = anyWork(t, seed, remote, workers, items) })
		if problem != nil {
			rt.Fatal(problem)
		}
	})
}

func anyWork(t *testing.T, seed uint64, remote bool, workers, items int) error {
	luck := rand.New(rand.NewPCG(seed, 2))
	var l *ledgerDouble
	cfg := sluice.Config{Limits: sluice.Limits{RPM: 60 * (1 + luck.IntN(100)), Concurrency: luck.IntN(2) * (1 + luck.IntN(9)), Burst: time.Second}, MaxThrottles: 1000, Attempts: 1000}
	if remote {
		l = newLedgerDouble(seed)
		l.lose, l.cut = luck.Float64()/2, luck.Float64()/2
		cfg.Ledger = l
	}
	s, err := sluice.New(cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	var mu sync.Mutex
	var next, done, cancelled int
	outcomes := []sluice.Outcome{ok, ok, ok, ok, throttled, {Kind: sluice.RateLimit, Wait: time.Second}, {Kind: sluice.Overloaded}, {Kind: sluice.ServerError},
		{Kind: sluice.Network, Unsent: true}, {Kind: sluice.RateLimit, Dimension: limits.Requests, Limit: 60, Used: 60, Requested: 1, Wait: time.Second}}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				quits := luck.IntN(5) == 0
				patience := time.Duration(luck.IntN(3000)) * time.Millisecond
				tenant := fmt.Sprint(luck.IntN(3))
				mu.Unlock()
				if i >= items {
					return
				}
				ctx, cancel := context.WithCancel(t.Context())
				if quits {
					ctx, cancel = context.WithTimeout(t.Context(), patience)
				}
				_, err := s.Do(ctx, sluice.Call{Tenant: tenant}, func(context.Context, *sluice.Permit) sluice.Outcome {
					mu.Lock()
					o, lat := outcomes[luck.IntN(len(outcomes))], time.Duration(luck.IntN(2000))*time.Millisecond
					mu.Unlock()
					time.Sleep(lat)
					return o
				})
				cancel()
				mu.Lock()
				if err == nil {
					done++
				} else if quits {
					cancelled++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Minute)
	if done+cancelled != items {
		return fmt.Errorf("%d done and %d cancelled of %d", done, cancelled, items)
	}
	for _, lane := range s.Snapshot().Lanes {
		if lane.InFlight != 0 || lane.Waiting != 0 {
			return fmt.Errorf("an idle lane: %+v", lane)
		}
	}
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, n := range l.charged {
		if n != 1 {
			return fmt.Errorf("ask %d was charged %d times", id, n)
		}
	}
	if l.overlaps > 0 {
		return fmt.Errorf("two questions of a lane were under way at once %d times", l.overlaps)
	}
	return nil
}

func TestALedgerThatNeverAnswersEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedgerDouble(1)
		l.lose = 1
		s := open(t, sluice.Config{Ledger: l})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx, sluice.Call{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestAReplyAfterACancelIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedgerDouble(1)
		l.take = time.Second
		s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 600}, Ledger: l})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := s.Acquire(ctx, sluice.Call{}); err == nil {
			t.Fatal("granted")
		}
		time.Sleep(5 * time.Second)
		if taken, returned := l.counts(); taken != 1 || returned != 1 || lane(t, s).InFlight != 0 || lane(t, s).Waiting != 0 {
			t.Errorf("%d taken, %d given back, %+v", taken, returned, lane(t, s))
		}
	})
}

func TestCloseWaitsForWhatTheLedgerHasUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedgerDouble(1)
		l.take = time.Hour
		s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 600}, Ledger: l})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := s.Acquire(t.Context(), sluice.Call{}); !errors.Is(err, sluice.ErrClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		s.Close()
		wg.Wait()
	})
}
