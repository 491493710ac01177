package gate_test

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// What headers leave open by rounding is no news: read as if it were, a bucket of 33,333 tokens looked like one of 2,000,
// from which a call of 8,000 goes at once.
func TestRoundedNumbersOnlyBoundWhatABucketHolds(t *testing.T) {
	const rate = 2_000_000.0 / 60
	for _, tt := range []struct {
		name  string
		left  int64
		reset time.Duration
		want  float64
	}{
		{"nothing new", 2000, time.Second, rate},
		{"as little as the rounding allows", 25_000, 2 * time.Second, 24_500 + rate},
		{"it holds more", 60_000, time.Second, 59_500},
		{"it holds less", 5000, 200 * time.Millisecond, 5500 + 0.2*rate},
		{"it cannot hold more than the limit", 1_999_999, time.Minute, 2_000_000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, gate.Config{Charge: limits.ChargeActual, Limits: limits.Limits{ITPM: 2_000_000, Burst: time.Second}})
			r.answer(r.acquire(limits.Call{Cost: limits.Cost{Input: 100}}), limits.Reading{Dimension: limits.InputTokens, Limit: 2_000_000,
				Remaining: tt.left, Reset: tt.reset, Slack: 1000, ResetSlack: time.Second})
			if b := r.budget(limits.InputTokens); math.Abs(b.Cap-tt.want) > 1 {
				t.Errorf("%+v, want a cap of %.0f", b, tt.want)
			}
		})
	}
}

// tenSeconds is a lane that knows 60,000 output tokens per minute, 10,000 at once.
func tenSeconds(t *testing.T) *rig {
	return newRig(t, gate.Config{Charge: limits.ChargeActual, Limits: limits.Limits{Concurrency: 1000}}).show(limits.OutputTokens, 60_000, 10_000)
}

// A provider that charges output when it is there has a full bucket, which does not refill, while answers are on their
// way. What they will be charged is not refilled here either.
func TestWhatOpenCallsWillBeChargedIsNotForgotten(t *testing.T) {
	r := tenSeconds(t)
	call := limits.Call{Cost: limits.Cost{MaxOutput: 100}}
	var open []*gate.Ticket
	for range 50 {
		open = append(open, r.acquire(call))
	}
	r.sleep(time.Minute)
	if b := r.budget(limits.OutputTokens); math.Abs(b.Level-5000) > 1e-6 {
		t.Fatalf("with 5,000 to come: %+v", b)
	}
	for _, h := range open {
		r.release(h, usage(0, 0, 100))
	}
	if b := r.budget(limits.OutputTokens); math.Abs(b.Level-5000) > 1e-6 {
		t.Errorf("with 5,000 charged: %+v", b)
	}
	r.sleep(time.Minute)
	if b := r.budget(limits.OutputTokens); math.Abs(b.Level-10_000) > 1e-6 {
		t.Errorf("with nothing to come: %+v", b)
	}
}

func TestAnswersThatOutlastTheBucketHoldNobodyBackForGood(t *testing.T) {
	r := tenSeconds(t)
	call := limits.Call{Cost: limits.Cost{MaxOutput: 100}}
	r.fill(call) // the whole bucket is on its way
	r.sleep(time.Minute)
	if n := len(r.fill(call)); n != 10 {
		t.Errorf("%d more after a minute, want those of a second", n)
	}
}
