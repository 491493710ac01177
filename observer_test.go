package sluice_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
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

func (d *diary) of(call string) (out []limits.EventType) {
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
			granted, released = limits.EventSlotAcquired, limits.EventSlotReleased
			refused, failure  = limits.EventThrottled, limits.EventAttemptFailed
		)
		for id, want := range map[string][]limits.EventType{
			"good":      {granted, released},
			"throttled": {granted, released, refused, limits.EventSlotWaiting, granted, released},
			"hopeless":  {granted, released, failure, granted, released, failure, limits.EventGaveUp},
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

// Who releases while the Observer is told that the Scheduler is closed leaves it to who tells.
func TestWhatIsReleasedDuringTheLastWordIsTold(t *testing.T) {
	var held *sluice.Permit
	var told []limits.EventType
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 5}, Observer: sluice.ObserverFunc(func(e sluice.Event) {
		told = append(told, e.Type)
		if e.Type == limits.EventStarted && e.Slots != 5 {
			t.Errorf("scheduler_started states %d slots of 5", e.Slots)
		}
		if e.Type == limits.EventClosed {
			held.Release(ok)
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	held = acquire(t, s, sluice.Call{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	want := []limits.EventType{limits.EventStarted, limits.EventLimitsChanged, limits.EventSlotAcquired, limits.EventClosed, limits.EventSlotReleased}
	if diff := cmp.Diff(want, told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
