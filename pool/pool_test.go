package pool_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
)

// newPool returns a Pool over a Scheduler of so many slots, which is closed with the test. Nothing may be left then. Calls
// of before have shown that the provider takes so many.
func newPool(tb testing.TB, slots int, cfg pool.Config) *pool.Pool {
	tb.Helper()
	p, s := freshPool(tb, slots, cfg)
	for range slots {
		permit, err := s.Acquire(tb.Context(), sluice.Call{})
		if err != nil {
			tb.Fatal(err)
		}
		permit.Release(sluice.Outcome{})
	}
	return p
}

// freshPool returns one whose slots were never used, and its Scheduler.
func freshPool(tb testing.TB, slots int, cfg pool.Config) (*pool.Pool, *sluice.Scheduler) {
	tb.Helper()
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: slots}})
	if err != nil {
		tb.Fatal(err)
	}
	cfg.Scheduler = s
	p, err := pool.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if m := p.Metrics(); m.Active != 0 || m.Waiting != 0 || m.Orphans != 0 || m.Running != 0 || m.Queued != 0 {
			tb.Errorf("left: %+v", m)
		}
		holds := func(l limits.LaneSnapshot) bool { return l.InFlight != 0 || l.Waiting != 0 }
		for range 1000 { // a permit that was forgotten is back in the pool a moment before it is back in the scheduler
			if !slices.ContainsFunc(s.Snapshot().Lanes, holds) {
				break
			}
			time.Sleep(time.Millisecond)
		}
		for _, l := range s.Snapshot().Lanes {
			if holds(l) {
				tb.Errorf("the scheduler still has %d in flight and %d waiting", l.InFlight, l.Waiting)
			}
		}
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return p, s
}

func register(tb testing.TB, p *pool.Pool, id string, cfg ...pool.MemberConfig) *pool.Member {
	tb.Helper()
	m, err := p.Register(id, append(cfg, pool.MemberConfig{})[0])
	if err != nil {
		tb.Fatal(err)
	}
	return m
}

func TestAThirdMemberWaitsForOneOfTwoSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 2, pool.Config{})
		a, b, c := register(t, p, "a"), register(t, p, "b"), register(t, p, "c")
		held, err := a.Acquire(t.Context(), sluice.Call{})
		if err != nil {
			t.Fatal(err)
		}
		other, _ := b.Acquire(t.Context(), sluice.Call{})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if _, err := c.Acquire(ctx, sluice.Call{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the third: %v", err)
		}
		if err := b.Release(nil, sluice.Outcome{}); !errors.Is(err, pool.ErrNotHeld) { // as of an Acquire that failed
			t.Errorf("no permit: %v", err)
		}
		if err := b.Release(held, sluice.Outcome{}); !errors.Is(err, pool.ErrNotHeld) {
			t.Errorf("a release by another: %v", err)
		}
		if m := p.Metrics(); m.Active != 2 || m.TotalWait != 50*time.Millisecond || m.Waits != 3 {
			t.Errorf("%+v", m)
		}
		if err := a.Release(held, sluice.Outcome{}); err != nil {
			t.Error(err)
		}
		if err := a.Release(held, sluice.Outcome{}); !errors.Is(err, pool.ErrNotHeld) {
			t.Errorf("a second release: %v", err)
		}
		got, err := c.Acquire(t.Context(), sluice.Call{})
		if err != nil {
			t.Fatal(err)
		}
		c.Release(got, sluice.Outcome{})
		b.Release(other, sluice.Outcome{})
		if m := p.Metrics(); m.Calls != 3 {
			t.Errorf("%d calls counted", m.Calls)
		}
		for _, m := range []*pool.Member{a, b, c} {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestAForgottenPermitComesBack(t *testing.T) {
	p := newPool(t, 1, pool.Config{})
	m := register(t, p, "m")
	if _, err := m.Acquire(t.Context(), sluice.Call{}); err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err == nil {
		t.Error("it was closed without a word")
	}
	collect(t, func() bool { return p.Metrics().Orphans == 0 })
}
