package plan_test

import (
	"errors"
	"flag"
	"math"
	"os"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
)

// TestMain gives the fast suite few property checks.
func TestMain(m *testing.M) {
	if !suite.Full {
		flag.Set("rapid.checks", "20")
	}
	os.Exit(m.Run())
}

// drawLimits draws limits of a sane size, each of which may be unknown, but not all.
func drawLimits(t *rapid.T) sluice.Limits {
	draw := func(name string, least, most int) int {
		if rapid.Bool().Draw(t, "no "+name) {
			return 0
		}
		return rapid.IntRange(least, most).Draw(t, name)
	}
	return sluice.Limits{
		RPM: rapid.IntRange(1, 100_000).Draw(t, "rpm"), TPM: draw("tpm", 1, 1e8), ITPM: draw("itpm", 1, 1e8),
		OTPM: draw("otpm", 1, 1e8), RPD: draw("rpd", 1, 1e7), TPD: draw("tpd", 1, 1e9), Concurrency: draw("cap", 1, 1000),
		Burst: time.Duration(draw("burst", 1, 60)) * time.Second,
	}
}

func drawWorkload(t *rapid.T) plan.Workload {
	return plan.Workload{
		Requests:    rapid.IntRange(0, 1_000_000).Draw(t, "requests"),
		Latency:     time.Duration(rapid.Int64Range(0, int64(10*time.Minute)).Draw(t, "latency")),
		InputTokens: rapid.IntRange(0, 100_000).Draw(t, "input"), OutputTokens: rapid.IntRange(0, 10_000).Draw(t, "output"),
		MaxTokens: rapid.SampledFrom([]int{0, 10_000, 20_000}).Draw(t, "max"),
	}
}

func drawOptions(t *rapid.T) plan.Options {
	o := plan.Options{Processes: rapid.IntRange(0, 200).Draw(t, "processes"), Charge: limits.ChargeDeclared}
	if rapid.Bool().Draw(t, "stated safety") {
		o.Safety = new(rapid.Float64Range(0, 1).Draw(t, "safety"))
	}
	if rapid.Bool().Draw(t, "charged as used") {
		o.Charge = limits.ChargeActual
	}
	return o
}

func TestSafeWorkersStayWithinEveryLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := plan.Compute(drawLimits(t), drawWorkload(t), drawOptions(t))
		if err != nil {
			t.Skip(err)
		}
		for _, b := range p.Bounds {
			offered := p.Offered(p.Workers, b)
			if p.WorkersSafe && offered > float64(b.Limit)*(1+1e-6) {
				t.Fatalf("%d workers use %v of %s %d", p.Workers, offered, b.Dimension, b.Limit)
			}
			if margin := float64(b.Limit) * p.Safety; p.Workers > 1 && offered > margin*(1+1e-6) {
				t.Fatalf("%d workers use %v of %s %d: more than the margin leaves", p.Workers, offered, b.Dimension, b.Limit)
			}
		}
		if told := p.Limits.Burst; p.WorkersSafe && told < time.Minute && told > 0 && p.WorkersBurst.Duration > told+told/1e6 {
			t.Fatalf("%d workers need buckets of %v, where %v are told", p.Workers, p.WorkersBurst, told)
		}
		if limit := p.Limits.Concurrency; limit > 0 && (p.Slots > limit || p.Workers > limit) {
			t.Fatalf("%d slots, %d workers above the cap of %d", p.Slots, p.Workers, limit)
		}
		if need := p.Throughput * p.Workload.Latency.Minutes(); float64(p.Slots) < min(need, float64(max(1, p.Workload.Requests))) &&
			(p.Workload.Requests == 0 || p.Slots < p.Workload.Requests) && p.Slots != p.Limits.Concurrency {
			t.Fatalf("%d slots do not reach %v requests a minute, which are %v open calls", p.Slots, p.Throughput, need)
		}
	})
}

func TestHigherLimitsNeverMakeAPlanSmaller(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		small, w, o := drawLimits(t), drawWorkload(t), drawOptions(t)
		large := small
		for _, limit := range []*int{&large.RPM, &large.TPM, &large.ITPM, &large.OTPM, &large.RPD, &large.TPD, &large.Concurrency} {
			if *limit > 0 {
				*limit += rapid.IntRange(0, *limit).Draw(t, "more")
			}
		}
		a, err := plan.Compute(small, w, o)
		b, err2 := plan.Compute(large, w, o)
		if errors.Join(err, err2) != nil {
			t.Skip(err, err2)
		}
		if b.Workers < a.Workers || b.Slots < a.Slots || b.Throughput < a.Throughput || a.WorkersSafe && !b.WorkersSafe {
			t.Fatalf("%+v gives %+v, %+v gives less: %+v", small, a, large, b)
		}
		if b.Time.Duration > a.Time.Duration+time.Microsecond || b.Within(time.Hour) < a.Within(time.Hour) {
			t.Fatalf("%+v takes %v, %+v takes longer: %v", small, a.Time, large, b.Time)
		}
	})
}

// FuzzCompute: whatever is put in, what comes out is an error that names a field, or finite figures.
func FuzzCompute(f *testing.F) {
	f.Add(50, 40_000, 0, 0, 0, 0, 5, int64(0), 0, int64(0), 0, 0, 0, 0.8, 0, 0.0)
	f.Add(0, 0, 0, 0, 0, 0, 0, int64(0), 0, int64(0), 0, 0, 0, 0.0, 0, 0.0)
	f.Add(math.MaxInt, 1, 1, 1, 1, 1, 1, int64(1), math.MaxInt, int64(math.MaxInt64), 1, 1, 1, 1.0, 1, 1.0)
	f.Add(1_000_000_000_000, 0, 0, 0, 0, 0, 0, int64(0), 10_000_000_000, int64(2_592_000_000_000_000), 0, 0, 0, 1.0, 1, 1e9)
	f.Add(1, 1, 1, 1, 1, 1, 1, int64(-1), -1, int64(-1), -1, -1, -1, math.NaN(), -1, math.Inf(-1))
	f.Add(1, 1, 1, 1, 1, 1, 1, int64(1), 1, int64(1), 1, 1, 1, 1.0, 1_000_000_000, 1.0)
	f.Fuzz(func(t *testing.T, rpm, tpm, itpm, otpm, rpd, tpd, concurrent int, burst int64, requests int, latency int64,
		in, out, declared int, safety float64, graphs int, price float64) {
		l := sluice.Limits{RPM: rpm, TPM: tpm, ITPM: itpm, OTPM: otpm, RPD: rpd, TPD: tpd, Concurrency: concurrent,
			Burst: time.Duration(burst)}
		w := plan.Workload{Requests: requests, Latency: time.Duration(latency), InputTokens: in, OutputTokens: out, MaxTokens: declared}
		o := plan.Options{Safety: &safety, Processes: graphs, PriceIn: &price, PriceOut: &price}
		w.Calls = []plan.Call{{Input: out, Output: in, MaxTokens: declared}, {}}
		for range 2 {
			p, err := plan.Compute(l, w, o)
			checkPlan(t, p, err)
			w.Calls = nil
		}
	})
}

func checkPlan(t *testing.T, p plan.Plan, err error) {
	t.Helper()
	checkFinite(t, err, p.Throughput, p.ChargedTokens, p.ReservedTokens, p.InputTokens, p.OutputTokens)
	if err != nil {
		return
	}
	if p.Cost != nil {
		checkFinite(t, nil, *p.Cost, *p.CostPerRequest)
	}
	if m := p.CapModel; m != nil {
		if checkFinite(t, nil, m.PerMinute, m.OffersRequests, m.OffersTokens); m.ParallelCalls < 1 || m.ParallelNodes < 1 {
			t.Fatalf("%+v", m)
		}
	}
	for _, b := range p.Bounds {
		checkFinite(t, nil, b.PerMinute, b.Charged, p.Offered(p.Workers, b))
	}
	if p.WorkersBurst.Duration < 0 || p.WorkersBurst.Duration > time.Minute {
		t.Fatalf("%d workers on buckets of %v", p.Workers, p.WorkersBurst)
	}
	n, _ := p.Affordable(1)
	if min(p.Slots, p.Workers, p.NodesPerProcess) < 1 || p.Time.Duration < 0 || p.Throughput <= 0 || min(n, p.Within(time.Hour), p.TooLarge) < 0 {
		t.Fatalf("%+v", p)
	}
}

func checkFinite(t *testing.T, err error, numbers ...float64) {
	t.Helper()
	if err != nil {
		if _, ok := errors.AsType[*plan.FieldError](err); !ok {
			t.Fatalf("%v names no field", err)
		}
		return
	}
	for i, n := range numbers {
		if math.IsNaN(n) || math.IsInf(n, 0) {
			t.Fatalf("number %d is %v", i, n)
		}
	}
}
