package sluice_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

func TestASnapshotSaysWhetherATimerIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 60, Burst: time.Second}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		first, err := s.Acquire(t.Context(), sluice.Call{})
		if err != nil {
			t.Fatal(err)
		}
		first.Release(sluice.Outcome{})
		if at := s.Snapshot().Timer; !at.IsZero() {
			t.Errorf("nothing waits, and a timer is set for %v", at)
		}
		got := make(chan *sluice.Permit)
		go func() {
			p, _ := s.Acquire(t.Context(), sluice.Call{})
			got <- p
		}()
		synctest.Wait()
		if in := time.Until(s.Snapshot().Timer); in <= 0 || in > 2*time.Second {
			t.Errorf("a call waits for its budget, and the timer is set for in %v", in)
		}
		(<-got).Release(sluice.Outcome{})
		if at := s.Snapshot().Timer; !at.IsZero() {
			t.Errorf("nothing waits any more, and a timer is set for %v", at)
		}
	})
}

func TestASnapshotIsConsistentWhileCallsComeAndGo(t *testing.T) {
	const slots = 4
	s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: slots, RPM: 6e8, Burst: time.Second}})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 12 {
		wg.Go(func() {
			for j := range 400 {
				s.Do(t.Context(), sluice.Call{Tenant: fmt.Sprint(i % 3), Priority: limits.Priority(j%4 - 1)}, func(_ context.Context, p *sluice.Permit) sluice.Outcome {
					p.Sent()
					return ok
				})
			}
		})
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		last := 0
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, l := range s.Snapshot().Lanes {
				if l.InFlight < 0 || l.InFlight > slots || l.Waiting < 0 || l.Waiting > 12 || l.Granted < last || (l.InFlight > 0) == l.Oldest.IsZero() {
					t.Errorf("%+v", l)
					return
				}
				last = l.Granted
			}
		}
	})
	wg.Wait()
	close(stop)
	reader.Wait()
	if l := lane(t, s); l.Granted != 12*400 || l.InFlight != 0 || l.Waiting != 0 || l.Budgets[0].Spent != 12*400 {
		t.Errorf("%+v", l)
	}
}
