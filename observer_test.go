package sluice_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice"
)

// diary writes down events and uses the Scheduler meanwhile, which would deadlock if it were told of them under a lock.
type diary struct {
	mu     sync.Mutex
	s      *sluice.Scheduler
	events []sluice.Event
	depth  int
}

func (d *diary) Observe(e sluice.Event) {
	d.mu.Lock()
	d.events = append(d.events, e)
	s, outer := d.s, d.depth == 0 && e.Call != ""
	if outer {
		d.depth++
	}
	d.mu.Unlock()
	if s == nil || !outer {
		return
	}
	s.Snapshot()
	if p := s.TryAcquire(sluice.Call{Lane: "observer"}); p != nil {
		p.Release(ok)
	}
	if p, err := s.Acquire(context.Background(), sluice.Call{Lane: "observer"}); err == nil {
		p.Release(ok)
	}
	d.mu.Lock()
	d.depth--
	d.mu.Unlock()
}

func (d *diary) of(call string) (out []sluice.EventType) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.events {
		if e.Call == call {
			out = append(out, e.Type)
		}
	}
	return out
}

func TestAnObserverIsToldInOrderAndMayUseTheScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		s := open(t, sluice.Config{Observer: d, Attempts: 2})
		d.s = s
		failed := sluice.Outcome{Kind: sluice.ServerError, Wait: time.Second}
		for id, outcomes := range map[string][]sluice.Outcome{"good": {ok}, "throttled": {throttled, ok}, "hopeless": {failed, failed}} {
			s.Do(t.Context(), sluice.Call{ID: id}, (&script{outcomes: outcomes}).run)
		}
		const (
			granted, released = sluice.EventSlotAcquired, sluice.EventSlotReleased
			refused, failure  = sluice.EventThrottled, sluice.EventAttemptFailed
		)
		for id, want := range map[string][]sluice.EventType{
			"good":      {granted, released},
			"throttled": {granted, released, refused, sluice.EventSlotWaiting, granted, released},
			"hopeless":  {granted, released, failure, granted, released, failure, sluice.EventGaveUp},
		} {
			if diff := cmp.Diff(want, d.of(id)); diff != "" {
				t.Errorf("events of %s (-want +got):\n%s", id, diff)
			}
		}
		at := time.Time{}
		for _, e := range d.events {
			if e.At.Before(at) || e.At.IsZero() {
				t.Errorf("%s at %v after one at %v", e.Type, e.At, at)
			}
			at = e.At
		}
	})
}
