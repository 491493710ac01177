package sluice_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
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
