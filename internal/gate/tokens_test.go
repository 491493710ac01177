package gate_test

import (
	"math"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// reserve is what a call takes from a budget when it is granted, and what of that is left once o has come.
func (r *rig) reserve(d limits.Dimension, c limits.Cost, o limits.Outcome) (reserved, settled float64) {
	r.t.Helper()
	r.sleep(24 * time.Hour) // the buckets are full
	full := r.budget(d).Level
	h := r.acquire(limits.Call{Cost: c})
	reserved = full - r.budget(d).Level
	r.release(h, o)
	return reserved, full - r.budget(d).Level
}

func tokenRig(t *testing.T, charge limits.Charge, cached bool) *rig {
	r := newRig(t, gate.Config{Charge: charge, CountsCached: cached, Attempts: 1000,
		Limits: limits.Limits{TPM: 1_000_000, ITPM: 1_000_000, OTPM: 1_000_000, Burst: 30 * time.Second, Concurrency: 100}})
	r.release(r.acquire(limits.Call{}), limits.Outcome{})
	return r
}

func usage(in, cached, out int) limits.Outcome {
	return limits.Outcome{HasUsage: true, Usage: limits.Usage{Input: in, CachedInput: cached, Output: out}}
}

func TestTokensAreReservedAndSettledByTheChargeMode(t *testing.T) {
	kind := func(k limits.Kind, o limits.Outcome) limits.Outcome { o.Kind = k; return o }
	limited := limits.Outcome{Kind: limits.RateLimit, Dimension: limits.Requests}
	unsent := limits.Outcome{Kind: limits.Network, Unsent: true}
	for _, tt := range []struct {
		name              string
		charge            limits.Charge
		cached            bool
		d                 limits.Dimension
		cost              limits.Cost
		o                 limits.Outcome
		reserved, settled float64
	}{
		{"declared takes the larger of input and max_tokens", limits.ChargeDeclared, false, limits.Tokens, limits.Cost{Input: 300, MaxOutput: 1000}, usage(300, 0, 10), 1000, 1000},
		{"declared with a long input", limits.ChargeDeclared, false, limits.Tokens, limits.Cost{Input: 3000, MaxOutput: 1000}, usage(3000, 0, 10), 3000, 3000},
		{"declared never refunds a failed call", limits.ChargeDeclared, false, limits.Tokens, limits.Cost{Input: 300, MaxOutput: 1000}, limits.Outcome{Kind: limits.ServerError}, 1000, 1000},
		{"declared refunds a rate-limited call", limits.ChargeDeclared, false, limits.Tokens, limits.Cost{Input: 300, MaxOutput: 1000}, limited, 1000, 0},
		{"declared keeps the charge of an overload", limits.ChargeDeclared, false, limits.Tokens, limits.Cost{Input: 300, MaxOutput: 1000}, limits.Outcome{Kind: limits.Overloaded}, 1000, 1000},
		{"declared refunds a call that was never sent", limits.ChargeDeclared, false, limits.Tokens, limits.Cost{Input: 300, MaxOutput: 1000}, unsent, 1000, 0},
		{"actual reserves input and max_tokens", limits.ChargeActual, false, limits.Tokens, limits.Cost{Input: 300, MaxOutput: 1000}, usage(300, 0, 200), 1300, 500},
		{"actual output", limits.ChargeActual, false, limits.OutputTokens, limits.Cost{Input: 300, MaxOutput: 1000}, usage(300, 0, 200), 1000, 200},
		{"actual input", limits.ChargeActual, false, limits.InputTokens, limits.Cost{Input: 300, MaxOutput: 1000}, usage(350, 0, 200), 300, 350},
		{"actual leaves cached input out", limits.ChargeActual, false, limits.InputTokens, limits.Cost{Input: 300, MaxOutput: 1000}, usage(300, 250, 200), 300, 50},
		{"unless the provider counts it", limits.ChargeActual, true, limits.InputTokens, limits.Cost{Input: 300, MaxOutput: 1000}, usage(300, 250, 200), 300, 300},
		{"actual without usage stays reserved", limits.ChargeActual, false, limits.OutputTokens, limits.Cost{Input: 300, MaxOutput: 1000}, limits.Outcome{}, 1000, 1000},
		{"actual, cut in mid-stream: what was seen", limits.ChargeActual, false, limits.Tokens, limits.Cost{Input: 300, MaxOutput: 1000}, kind(limits.Network, usage(300, 0, 40)), 1300, 340},
		{"actual, failed before anything was produced", limits.ChargeActual, false, limits.Tokens, limits.Cost{Input: 300, MaxOutput: 1000}, limits.Outcome{Kind: limits.ServerError}, 1300, 300},
		{"actual, never sent", limits.ChargeActual, false, limits.Tokens, limits.Cost{Input: 300, MaxOutput: 1000}, unsent, 1300, 0},
		{"actual, rate-limited", limits.ChargeActual, false, limits.Tokens, limits.Cost{Input: 300, MaxOutput: 1000}, limited, 1300, 0},
		{"actual, an unsaid max_tokens", limits.ChargeActual, false, limits.OutputTokens, limits.Cost{Input: 300}, usage(300, 0, 2000), 1024, 2000},
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
	r := tokenRig(t, limits.ChargeActual, false)
	for i := range 19 {
		reserved, _ := r.reserve(limits.OutputTokens, limits.Cost{Input: 10, MaxOutput: 4000}, usage(10, 0, 100+i))
		if reserved != 4000 {
			t.Fatalf("after %d samples %.0f is reserved, want max_tokens", i, reserved)
		}
	}
	for range 45 {
		r.reserve(limits.OutputTokens, limits.Cost{Input: 10, MaxOutput: 4000}, usage(10, 0, 100))
	}
	for range 128 { // nine in ten are short, one is long
		for i := range 10 {
			out := 100
			if i == 0 {
				out = 1000
			}
			r.reserve(limits.OutputTokens, limits.Cost{Input: 10, MaxOutput: 4000}, usage(10, 0, out))
		}
	}
	cost := limits.Cost{Input: 10, MaxOutput: 4000}
	alone, _ := r.reserve(limits.OutputTokens, cost, usage(10, 0, 100))
	if alone < 400 || alone > 1000 {
		t.Fatalf("%.0f is reserved for one request of 190 on average and 1000 at most", alone)
	}
	var open []*gate.Ticket
	among := 0.0
	for range 80 { // differences cancel out
		before := r.budget(limits.OutputTokens).Spent
		open = append(open, r.acquire(limits.Call{Cost: cost}))
		among = r.budget(limits.OutputTokens).Spent - before
		r.sleep(time.Second)
	}
	if among < 190 || among > alone/2 {
		t.Fatalf("%.0f is reserved beside 79 others, %.0f alone", among, alone)
	}
	for _, h := range open {
		r.release(h, usage(10, 0, 100))
	}
	if got, _ := r.reserve(limits.OutputTokens, limits.Cost{Input: 10, MaxOutput: 70}, usage(10, 0, 70)); got != 70 {
		t.Fatalf("%.0f is reserved, want max_tokens where that is less", got)
	}
}

func TestEstimatesOfInputAreCorrectedByUsage(t *testing.T) {
	r := tokenRig(t, limits.ChargeActual, false)
	for range 200 {
		r.reserve(limits.InputTokens, limits.Cost{Input: 1000, MaxOutput: 10}, usage(1500, 0, 10))
	}
	if got, _ := r.reserve(limits.InputTokens, limits.Cost{Input: 1000, MaxOutput: 10}, usage(1500, 0, 10)); math.Abs(got-1500) > 20 {
		t.Fatalf("%.0f reserved of what is usually half again as much as estimated", got)
	}
	for range 200 { // a wild ratio is bounded
		r.reserve(limits.InputTokens, limits.Cost{Input: 1, MaxOutput: 10}, usage(100_000, 0, 10))
	}
	if got, _ := r.reserve(limits.InputTokens, limits.Cost{Input: 1000, MaxOutput: 10}, usage(1000, 0, 10)); got > 4000 {
		t.Fatalf("%.0f reserved for 1000", got)
	}
}

func TestACallIsTooLargeOnlyByALowerBound(t *testing.T) {
	for _, tt := range []struct {
		name   string
		charge limits.Charge
		told   limits.Limits
		cost   limits.Cost
		fits   bool
	}{
		{"max_tokens above the limit", limits.ChargeDeclared, limits.Limits{TPM: 1000}, limits.Cost{MaxOutput: 1001}, false},
		{"max_tokens at the limit", limits.ChargeDeclared, limits.Limits{TPM: 1000}, limits.Cost{MaxOutput: 1000}, true},
		{"an estimate above it", limits.ChargeDeclared, limits.Limits{TPM: 1000}, limits.Cost{Input: 50_000}, true},
		{"output alone", limits.ChargeDeclared, limits.Limits{OTPM: 1000}, limits.Cost{MaxOutput: 1001}, false},
		{"a day's", limits.ChargeDeclared, limits.Limits{TPD: 1000}, limits.Cost{MaxOutput: 1001}, false},
		{"where output is charged as it comes, nothing is certain", limits.ChargeActual, limits.Limits{TPM: 1000, OTPM: 1000}, limits.Cost{MaxOutput: 1001}, true},
		{"no limit", limits.ChargeDeclared, limits.Limits{}, limits.Cost{MaxOutput: 1 << 40}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, gate.Config{Charge: tt.charge, Limits: tt.told})
			w := &gate.Ticket{Call: limits.Call{Cost: tt.cost}}
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
	r := newRig(t, gate.Config{Limits: limits.Limits{TPM: 6000, Burst: time.Second, Concurrency: 10}}) // 100 a second, the bucket holds 100
	r.acquire(limits.Call{Cost: limits.Cost{Input: 1000}})
	r.wantLevel(limits.Tokens, -900, 1)
	w := r.queue(limits.Call{Cost: limits.Cost{Input: 50}})
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
	r := newRig(t, gate.Config{Limits: limits.Limits{TPM: 6000, Burst: time.Second, Concurrency: 100}})
	r.acquire(limits.Call{Tenant: "s", Cost: limits.Cost{Input: 100}})
	big := r.queue(limits.Call{Tenant: "b", Cost: limits.Cost{Input: 500}})
	for range 30 {
		r.queue(limits.Call{Tenant: "s", Cost: limits.Cost{Input: 10}})
	}
	r.sleep(1500 * time.Millisecond)
	if !big.Granted() {
		t.Fatalf("a large request still waits while small ones pass: %d of them", len(r.granted)-1)
	}
}

func TestARefundNeverOverfillsABucket(t *testing.T) {
	r := newRig(t, gate.Config{Limits: limits.Limits{TPM: 6000, Burst: time.Second, Concurrency: 10}})
	h := r.acquire(limits.Call{Cost: limits.Cost{Input: 80}})
	r.sleep(time.Minute) // the bucket is full again
	r.release(h, limits.Outcome{Kind: limits.Network, Unsent: true})
	if b := r.budget(limits.Tokens); b.Level > b.Cap {
		t.Fatalf("the bucket holds %.0f of %.0f", b.Level, b.Cap)
	}
}
