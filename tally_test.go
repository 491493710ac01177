package sluice_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
)

func TestTalliesOfOneCallAddUp(t *testing.T) {
	before := sluice.Tally{
		Attempts: 1, Throttles: 2, Queued: 1, Cooldown: 2, Backoff: 3, Latency: time.Second,
		Usage: sluice.Usage{Input: 5}, HasUsage: true,
	}
	waited := sluice.Tally{Queued: 10, Cooldown: 20, Backoff: 30}
	want := sluice.Tally{
		Attempts: 1, Throttles: 2, Queued: 11, Cooldown: 22, Backoff: 33, Latency: time.Second,
		Usage: sluice.Usage{Input: 5}, HasUsage: true,
	}
	if got := before.Add(waited); got != want {
		t.Errorf("a wait without a try: %+v, want %+v", got, want)
	}
	tried := sluice.Tally{Throttles: 1, Latency: time.Minute, Usage: sluice.Usage{Output: 7}, HasUsage: true}
	want.Throttles, want.Latency, want.Usage.Output = 3, time.Minute, 7
	if got := before.Add(waited).Add(tried); got != want {
		t.Errorf("another try: %+v, want %+v", got, want)
	}
}
