package pool_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
)

// An Observer panics as it is told what an open answer says: nobody has the permit then but fn, whom nobody calls again.
func TestAnOpenAnswerThatNobodyGotComesBack(t *testing.T) {
	var once atomic.Bool
	s, err := sluice.New(sluice.Config{Observer: sluice.ObserverFunc(func(e sluice.Event) {
		if e.Type == limits.EventLimitsChanged && once.CompareAndSwap(false, true) {
			panic("observer")
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p, err := pool.New(pool.Config{Scheduler: s})
	if err != nil {
		t.Fatal(err)
	}
	m, err := p.Register("m", pool.MemberConfig{})
	if err != nil {
		t.Fatal(err)
	}
	panicked := false
	func() {
		defer func() { panicked = recover() != nil }()
		var kept *sluice.Permit // as a body that is read later has it
		m.Do(t.Context(), sluice.Call{}, func(_ context.Context, permit *sluice.Permit) sluice.Outcome {
			if kept == nil {
				kept = permit
			}
			return sluice.Outcome{Open: true, Readings: []limits.Reading{{Dimension: limits.Requests, Limit: 100, Remaining: 50}}}
		})
	}()
	if !panicked {
		t.Fatal("the observer was told of nothing")
	}
	m.Close()
	collect(t, func() bool { return p.Metrics().Orphans == 0 && s.Snapshot().Lanes[0].InFlight == 0 })
}
