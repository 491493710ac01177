package gate_test

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// A provider that charges output when it is there has a full bucket, which does not refill, while answers are on their
// way. What they will be charged is not refilled here either.
func TestWhatOpenCallsWillBeChargedIsNotForgotten(t *testing.T) {
	r := newRig(t, gate.Config{Charge: gate.ChargeActual, // 1,000 a second, 10,000 at most
		Limits: gate.Limits{OTPM: 60_000, Burst: 10 * time.Second, Concurrent: 1000}})
	call := gate.Call{Cost: gate.Cost{MaxOutput: 100}}
	var open []*gate.Ticket
	for range 50 {
		open = append(open, r.acquire(call))
	}
	r.sleep(time.Minute)
	if b := r.budget(gate.OutputTokens); math.Abs(b.Level-5000) > 1e-6 {
		t.Fatalf("with 5,000 to come: %+v", b)
	}
	for _, h := range open {
		r.release(h, usage(0, 0, 100))
	}
	if b := r.budget(gate.OutputTokens); math.Abs(b.Level-5000) > 1e-6 {
		t.Errorf("with 5,000 charged: %+v", b)
	}
	r.sleep(time.Minute)
	if b := r.budget(gate.OutputTokens); math.Abs(b.Level-10_000) > 1e-6 {
		t.Errorf("with nothing to come: %+v", b)
	}
}

func TestAnswersThatOutlastTheBucketHoldNobodyBackForGood(t *testing.T) {
	r := newRig(t, gate.Config{Charge: gate.ChargeActual,
		Limits: gate.Limits{OTPM: 60_000, Burst: 10 * time.Second, Concurrent: 1000}})
	call := gate.Call{Cost: gate.Cost{MaxOutput: 100}}
	r.fill(call) // the whole bucket is on its way
	r.sleep(time.Minute)
	if n := len(r.fill(call)); n != 9 {
		t.Errorf("%d more after a minute, want those of a second", n)
	}
}
