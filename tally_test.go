package sluice_test

import (
	"context"
	"testing"
	"testing/synctest"
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

func TestATallyAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
		holder := acquire(t, s, sluice.Call{})
		time.AfterFunc(3*time.Second, func() { holder.Release(ok) })
		start := time.Now()
		try := 0
		tally, err := s.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
			time.Sleep(time.Second)
			try++
			used := sluice.Usage{Input: 100, Output: 10}
			switch try {
			case 1:
				return sluice.Outcome{Kind: sluice.RateLimit, Wait: time.Second}
			case 2:
				return sluice.Outcome{Kind: sluice.InvalidOutput, HasUsage: true, Usage: used}
			}
			return sluice.Outcome{HasUsage: true, Usage: used}
		})
		if err != nil {
			t.Fatal(err)
		}
		if tally.Usage != (sluice.Usage{Input: 200, Output: 20}) || !tally.HasUsage || tally.Latency != time.Second {
			t.Errorf("%+v", tally)
		}
		if tally.Queued != 3*time.Second || tally.Cooldown < time.Second || tally.Cooldown > 1300*time.Millisecond || tally.Backoff > 200*time.Millisecond {
			t.Errorf("waited %v for its turn, %v in pauses, %v by itself", tally.Queued, tally.Cooldown, tally.Backoff)
		}
		if got, want := tally.Wait()+3*time.Second, time.Since(start); got != want {
			t.Errorf("waits and tries are %v of %v", got, want)
		}
	})
}
