package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
)

func TestCancelRacingGrant(t *testing.T) {
	rounds := suite.Size(10_000, 100_000)
	p := newPool(t, 1, pool.Config{})
	a, b := register(t, p, "a"), register(t, p, "b")
	asks, got := make(chan context.Context), make(chan error)
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx := range asks {
			held, err := b.Acquire(ctx, sluice.Call{})
			if err == nil {
				err = b.Release(held, sluice.Outcome{})
			}
			got <- err
		}
	})
	granted, cancelled := 0, 0
	for i := range rounds {
		held, err := a.Acquire(t.Context(), sluice.Call{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		asks <- ctx
		for range i % 4 { // at various instants: it has not asked, asks, or waits
			p.Metrics()
		}
		if i%2 == 0 {
			wg.Go(cancel)
			a.Release(held, sluice.Outcome{})
		} else {
			wg.Go(func() { a.Release(held, sluice.Outcome{}) })
			cancel()
		}
		switch err := <-got; {
		case err == nil:
			granted++
		case errors.Is(err, context.Canceled):
			cancelled++
		default:
			t.Fatal(err)
		}
	}
	close(asks)
	wg.Wait()
	m := p.Metrics()
	if m.Active != 0 || m.Waiting != 0 || m.Calls != int64(rounds+granted) || a.State().Calls != int64(rounds) || b.State().Calls != int64(granted) {
		t.Errorf("%d granted: %+v", granted, m)
	}
	if granted == 0 || cancelled == 0 {
		t.Errorf("there was no race: %d granted, %d cancelled", granted, cancelled)
	}
	a.Close()
	b.Close()
}

func TestTenThousandMembersOnFiveSlots(t *testing.T) {
	members, calls := suite.Size(1_000, 10_000), 2
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 5, pool.Config{SlotTimeout: -1})
		random := rand.New(rand.NewPCG(1, 2))
		var open, most atomic.Int32
		var wg sync.WaitGroup
		all := make([]*pool.Member, members)
		for i := range all {
			m := register(t, p, fmt.Sprint("m", i))
			all[i] = m
			takes := time.Duration(100+random.IntN(1900)) * time.Millisecond
			wg.Go(func() {
				defer m.Close()
				for range calls {
					_, err := m.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
						n := open.Add(1)
						defer open.Add(-1)
						if n > most.Load() {
							most.Store(n)
						}
						time.Sleep(takes)
						return sluice.Outcome{}
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		m := p.Metrics()
		if most.Load() != 5 || m.Calls != int64(members*calls) || m.Completed != int64(members) {
			t.Errorf("%d at once, %+v", most.Load(), m)
		}
		waits := make([]time.Duration, 0, members)
		for _, m := range all {
			waits = append(waits, m.State().TotalWait)
		}
		slices.Sort(waits)
		ratio, jain := waits[members-1].Seconds()/waits[members/2].Seconds(), jain(waits)
		t.Logf("longest wait %v, of median %.2f, Jain's index %.3f", waits[members-1], ratio, jain)
		if ratio > 1.6 || jain < 0.95 {
			t.Errorf("longest wait %v, of median %.2f, Jain's index %.3f", waits[members-1], ratio, jain)
		}
	})
}

// jain is the fairness of shares: 1 where all are equal, 1/n where one has all.
func jain(shares []time.Duration) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += s.Seconds()
		squares += s.Seconds() * s.Seconds()
	}
	return sum * sum / squares / float64(len(shares))
}

// The original took a wait of more than 30 s, and more than ten that wait, for starvation.
func TestTwelveMembersOnFiveSlotsWaitLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 5, pool.Config{})
		random := rand.New(rand.NewPCG(3, 4))
		var wg sync.WaitGroup
		for i := range 12 {
			m := register(t, p, fmt.Sprint("m", i))
			takes := time.Duration(1000+random.IntN(9000)) * time.Millisecond
			wg.Go(func() {
				defer m.Close()
				for range 20 {
					call(t, m, sluice.Call{}, takes)
				}
			})
		}
		done := make(chan struct{})
		go func() { wg.Wait(); close(done) }()
		for {
			synctest.Wait() // at no instant, once all is done that is to be done at it
			if n := p.Metrics(); n.Waiting > 10 || n.Waiting > 0 && n.Active < 5 {
				t.Errorf("%+v", n)
			}
			select {
			case <-done:
				if n := p.Metrics(); n.LongestWait > 30*time.Second || n.Calls != 240 {
					t.Errorf("%+v", n)
				}
				return
			case <-time.After(730 * time.Millisecond):
			}
		}
	})
}

func TestUrgentMembersGoFirstAndNobodyStarves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{SlotTimeout: -1})
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		defer wg.Wait()
		defer stop()
		for i := range 4 { // more than the slot can serve, for ever
			m := register(t, p, fmt.Sprint("critical", i), pool.MemberConfig{Priority: limits.Critical})
			wg.Go(func() {
				defer m.Close()
				for ctx.Err() == nil {
					call(t, m, sluice.Call{}, time.Second)
				}
			})
		}
		synctest.Wait()
		waited := map[limits.Priority]time.Duration{}
		var mu sync.Mutex
		var done sync.WaitGroup
		for _, priority := range []limits.Priority{limits.Low, limits.Normal, limits.High} {
			m := register(t, p, fmt.Sprint("priority", priority), pool.MemberConfig{Priority: priority})
			done.Go(func() {
				call(t, m, sluice.Call{}, time.Second)
				mu.Lock()
				waited[priority] = m.State().TotalWait
				mu.Unlock()
				m.Close()
			})
		}
		done.Wait()
		if !(waited[limits.High] <= waited[limits.Normal] && waited[limits.Normal] <= waited[limits.Low]) {
			t.Errorf("they waited %v", waited)
		}
		if waited[limits.High] < 25*time.Second || waited[limits.Low] > 100*time.Second {
			t.Errorf("they waited %v", waited)
		}
	})
}

func TestMembersShareTurnsWhateverTheyAskFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 2, pool.Config{})
		greedy, modest := register(t, p, "greedy"), register(t, p, "modest")
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				for ctx.Err() == nil {
					call(t, greedy, sluice.Call{}, time.Second)
				}
			})
		}
		synctest.Wait()
		for range 30 {
			call(t, modest, sluice.Call{}, time.Second)
		}
		if s := modest.State(); s.TotalWait > 30*time.Second {
			t.Errorf("30 calls beside twenty at once of another: %v of waiting", s.TotalWait)
		}
		stop()
		wg.Wait()
		greedy.Close()
		modest.Close()
	})
}
