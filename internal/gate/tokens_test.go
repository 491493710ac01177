package gate_test

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// reserve is what a call takes from a budget when it is granted, and what of that is left once o has come.
func (r *rig) reserve(d gate.Dimension, c gate.Cost, o gate.Outcome) (reserved, settled float64) {
	r.t.Helper()
	r.sleep(24 * time.Hour) // the buckets are full
	full := r.budget(d).Level
	h := r.acquire(gate.Call{Cost: c})
	reserved = full - r.budget(d).Level
	r.release(h, o)
	return reserved, full - r.budget(d).Level
}

func tokenRig(t *testing.T, charge gate.Charge, cached bool) *rig {
	r := newRig(t, gate.Config{Charge: charge, CountsCached: cached, Attempts: 1000,
		Limits: gate.Limits{TPM: 1_000_000, ITPM: 1_000_000, OTPM: 1_000_000, Burst: 30 * time.Second, Concurrent: 100}})
	r.release(r.acquire(gate.Call{}), gate.Outcome{})
	return r
}

func usage(in, cached, out int) gate.Outcome {
	return gate.Outcome{HasUsage: true, Usage: gate.Usage{Input: in, CachedInput: cached, Output: out}}
}

func TestTokensAreReservedAndSettledByTheChargeMode(t *testing.T) {
	kind := func(k gate.Kind, o gate.Outcome) gate.Outcome { o.Kind = k; return o }
	unsent := gate.Outcome{Kind: gate.Network, Unsent: true}
	for _, tt := range []struct {
		name              string
		charge            gate.Charge
		cached            bool
		d                 gate.Dimension
		cost              gate.Cost
		o                 gate.Outcome
		reserved, settled float64
	}{
		{"declared takes the larger of input and max_tokens", gate.ChargeDeclared, false, gate.Tokens, gate.Cost{Input: 300, MaxOutput: 1000}, usage(300, 0, 10), 1000, 1000},
		{"declared with a long input", gate.ChargeDeclared, false, gate.Tokens, gate.Cost{Input: 3000, MaxOutput: 1000}, usage(3000, 0, 10), 3000, 3000},
		{"declared never refunds a failed call", gate.ChargeDeclared, false, gate.Tokens, gate.Cost{Input: 300, MaxOutput: 1000}, gate.Outcome{Kind: gate.ServerError}, 1000, 1000},
		{"declared refunds a refused call", gate.ChargeDeclared, false, gate.Tokens, gate.Cost{Input: 300, MaxOutput: 1000}, gate.Outcome{Kind: gate.Overloaded}, 1000, 0},
		{"declared refunds a call that was never sent", gate.ChargeDeclared, false, gate.Tokens, gate.Cost{Input: 300, MaxOutput: 1000}, unsent, 1000, 0},
		{"actual reserves input and max_tokens", gate.ChargeActual, false, gate.Tokens, gate.Cost{Input: 300, MaxOutput: 1000}, usage(300, 0, 200), 1300, 500},
		{"actual output", gate.ChargeActual, false, gate.OutputTokens, gate.Cost{Input: 300, MaxOutput: 1000}, usage(300, 0, 200), 1000, 200},
		{"actual input", gate.ChargeActual, false, gate.InputTokens, gate.Cost{Input: 300, MaxOutput: 1000}, usage(350, 0, 200), 300, 350},
		{"actual leaves cached input out", gate.ChargeActual, false, gate.InputTokens, gate.Cost{Input: 300, MaxOutput: 1000}, usage(300, 250, 200), 300, 50},
		{"unless the provider counts it", gate.ChargeActual, true, gate.InputTokens, gate.Cost{Input: 300, MaxOutput: 1000}, usage(300, 250, 200), 300, 300},
		{"actual without usage stays reserved", gate.ChargeActual, false, gate.OutputTokens, gate.Cost{Input: 300, MaxOutput: 1000}, gate.Outcome{}, 1000, 1000},
		{"actual, cut in mid-stream: what was seen", gate.ChargeActual, false, gate.Tokens, gate.Cost{Input: 300, MaxOutput: 1000}, kind(gate.Network, usage(300, 0, 40)), 1300, 340},
		{"actual, failed before anything was produced", gate.ChargeActual, false, gate.Tokens, gate.Cost{Input: 300, MaxOutput: 1000}, gate.Outcome{Kind: gate.ServerError}, 1300, 300},
		{"actual, never sent", gate.ChargeActual, false, gate.Tokens, gate.Cost{Input: 300, MaxOutput: 1000}, unsent, 1300, 0},
		{"actual, refused", gate.ChargeActual, false, gate.Tokens, gate.Cost{Input: 300, MaxOutput: 1000}, gate.Outcome{Kind: gate.Overloaded}, 1300, 0},
		{"actual, an unsaid max_tokens", gate.ChargeActual, false, gate.OutputTokens, gate.Cost{Input: 300}, usage(300, 0, 2000), 1024, 2000},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := tokenRig(t, tt.charge, tt.cached)
			reserved, settled := r.reserve(tt.d, tt.cost, tt.o)
			if math.Abs(reserved-tt.reserved) > 1e-6 || math.Abs(settled-tt.settled) > 1e-6 {
				t.Fatalf("%v: reserved %.1f, settled %.1f; want %.1f and %.1f", tt.d, reserved, settled, tt.reserved, tt.settled)
			}
		})
	}
}

func TestOutputIsReservedByWhatIsUsualOnceThereAreSamples(t *testing.T) {
	r := tokenRig(t, gate.ChargeActual, false)
	for i := range 19 {
		reserved, _ := r.reserve(gate.OutputTokens, gate.Cost{Input: 10, MaxOutput: 4000}, usage(10, 0, 100+i))
		if reserved != 4000 {
			t.Fatalf("after %d samples %.0f is reserved, want max_tokens", i, reserved)
		}
	}
	for range 45 {
		r.reserve(gate.OutputTokens, gate.Cost{Input: 10, MaxOutput: 4000}, usage(10, 0, 100))
	}
	for range 128 { // nine in ten are short, one is long: the 95th percentile is the long one
		for i := range 10 {
			out := 100
			if i == 0 {
				out = 1000
			}
			r.reserve(gate.OutputTokens, gate.Cost{Input: 10, MaxOutput: 4000}, usage(10, 0, out))
		}
	}
	if got, _ := r.reserve(gate.OutputTokens, gate.Cost{Input: 10, MaxOutput: 4000}, usage(10, 0, 100)); math.Abs(got-1100) > 1 {
		t.Fatalf("%.0f is reserved, want 1.1 × 1000", got)
	}
	if got, _ := r.reserve(gate.OutputTokens, gate.Cost{Input: 10, MaxOutput: 700}, usage(10, 0, 100)); got != 700 {
		t.Fatalf("%.0f is reserved, want max_tokens where that is less", got)
	}
	for i := range 80 { // of 64, the three longest are above the 95th percentile
		out := 50
		if i == 40 || i == 50 || i == 60 {
			out = 1000
		}
		r.reserve(gate.OutputTokens, gate.Cost{Input: 10, MaxOutput: 4000}, usage(10, 0, out))
	}
	if got, _ := r.reserve(gate.OutputTokens, gate.Cost{Input: 10, MaxOutput: 4000}, usage(10, 0, 50)); math.Abs(got-55) > 1 {
		t.Fatalf("%.0f is reserved after 61 short answers and 3 long ones, want 1.1 × 50", got)
	}
}

func TestEstimatesOfInputAreCorrectedByUsage(t *testing.T) {
	r := tokenRig(t, gate.ChargeActual, false)
	for range 200 {
		r.reserve(gate.InputTokens, gate.Cost{Input: 1000, MaxOutput: 10}, usage(1500, 0, 10))
	}
	if got, _ := r.reserve(gate.InputTokens, gate.Cost{Input: 1000, MaxOutput: 10}, usage(1500, 0, 10)); math.Abs(got-1500) > 20 {
		t.Fatalf("%.0f reserved of what is usually half again as much as estimated", got)
	}
	for range 200 { // a wild ratio is bounded
		r.reserve(gate.InputTokens, gate.Cost{Input: 1, MaxOutput: 10}, usage(100_000, 0, 10))
	}
	if got, _ := r.reserve(gate.InputTokens, gate.Cost{Input: 1000, MaxOutput: 10}, usage(1000, 0, 10)); got > 4000 {
		t.Fatalf("%.0f reserved for 1000", got)
	}
}

func TestACallIsTooLargeOnlyByALowerBound(t *testing.T) {
	for _, tt := range []struct {
		name   string
		charge gate.Charge
		limits gate.Limits
		cost   gate.Cost
		fits   bool
	}{
		{"max_tokens above the limit", gate.ChargeDeclared, gate.Limits{TPM: 1000}, gate.Cost{MaxOutput: 1001}, false},
		{"max_tokens at the limit", gate.ChargeDeclared, gate.Limits{TPM: 1000}, gate.Cost{MaxOutput: 1000}, true},
		{"an estimate above it", gate.ChargeDeclared, gate.Limits{TPM: 1000}, gate.Cost{Input: 50_000}, true},
		{"output alone", gate.ChargeDeclared, gate.Limits{OTPM: 1000}, gate.Cost{MaxOutput: 1001}, false},
		{"a day's", gate.ChargeDeclared, gate.Limits{TPD: 1000}, gate.Cost{MaxOutput: 1001}, false},
		{"where output is charged as it comes, nothing is certain", gate.ChargeActual, gate.Limits{TPM: 1000, OTPM: 1000}, gate.Cost{MaxOutput: 1001}, true},
		{"no limit", gate.ChargeDeclared, gate.Limits{}, gate.Cost{MaxOutput: 1 << 40}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, gate.Config{Charge: tt.charge, Limits: tt.limits})
			w := &gate.Ticket{Call: gate.Call{Cost: tt.cost}}
			if got := r.g.Acquire(r.now, w); got != tt.fits {
				t.Fatalf("Acquire reports %v", got)
			}
			r.drain()
			if !tt.fits {
				if l := r.lane(); l.Waiting != 0 || l.InFlight != 0 {
					t.Fatalf("a call that was refused leaves %+v", l)
				}
				return
			}
			r.sleep(time.Hour)
			if !w.Granted() {
				t.Fatalf("a call above the bucket's size does not go from a full bucket: %+v", r.lane())
			}
		})
	}
}

func TestACallLargerThanTheBucketGoesFromAFullOneAndLeavesADebt(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{TPM: 6000, Burst: time.Second, Concurrent: 10}}) // 100 a second, the bucket holds 100
	r.acquire(gate.Call{Cost: gate.Cost{Input: 1000}})
	r.wantLevel(gate.Tokens, -900, 1)
	w := r.queue(gate.Call{Cost: gate.Cost{Input: 50}})
	r.sleep(9 * time.Second)
	if w.Granted() {
		t.Fatal("a debt of 900 at 99 a second is not paid after 9 s")
	}
	r.sleep(700 * time.Millisecond)
	if !w.Granted() {
		t.Fatal("a debt of 900 at 99 a second, and 50, are there after 9.7 s")
	}
}

func TestAnOversizeCallWaitsForAFullBucketAndSmallOnesDoNotOvertakeItForEver(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{TPM: 6000, Burst: time.Second, Concurrent: 100}})
	r.acquire(gate.Call{Tenant: "s", Cost: gate.Cost{Input: 100}})
	big := r.queue(gate.Call{Tenant: "b", Cost: gate.Cost{Input: 500}})
	for range 30 {
		r.queue(gate.Call{Tenant: "s", Cost: gate.Cost{Input: 10}})
	}
	r.sleep(1500 * time.Millisecond)
	if !big.Granted() {
		t.Fatalf("a large request still waits while small ones pass: %d of them", len(r.granted)-1)
	}
}

func TestARefundNeverOverfillsABucket(t *testing.T) {
	r := newRig(t, gate.Config{Limits: gate.Limits{TPM: 6000, Burst: time.Second, Concurrent: 10}})
	h := r.acquire(gate.Call{Cost: gate.Cost{Input: 80}})
	r.sleep(time.Minute) // the bucket is full again
	r.release(h, gate.Outcome{Kind: gate.Network, Unsent: true})
	if b := r.budget(gate.Tokens); b.Level > b.Cap {
		t.Fatalf("the bucket holds %.0f of %.0f", b.Level, b.Cap)
	}
}
