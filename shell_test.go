package sluice_test

import (
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// open returns a Scheduler that is closed with the test.
func open(tb testing.TB, cfg sluice.Config) *sluice.Scheduler {
	tb.Helper()
	s, err := sluice.New(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func acquire(tb testing.TB, s *sluice.Scheduler, c sluice.Call) *sluice.Permit {
	tb.Helper()
	p, err := s.Acquire(tb.Context(), c)
	if err != nil {
		tb.Fatal(err)
	}
	return p
}

// lane returns the state of the only lane.
func lane(tb testing.TB, s *sluice.Scheduler) limits.LaneSnapshot {
	tb.Helper()
	lanes := s.Snapshot().Lanes
	if len(lanes) != 1 {
		tb.Fatalf("%d lanes, want 1", len(lanes))
	}
	return lanes[0]
}
