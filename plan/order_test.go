package plan_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/sim"
)

// mixed are short calls, before which come some that are long.
func mixed(long, short int) plan.Workload {
	w := plan.Workload{Latency: 2 * time.Second, Calls: calls(long, plan.Call{Input: 1, MaxTokens: 10_000, Output: 10})}
	w.Calls = append(w.Calls, calls(short, plan.Call{Input: 1, MaxTokens: 10, Output: 10})...)
	return w
}

func TestTheHeaviestStretchOfAFileDecidesHowManyWorkersAreSafe(t *testing.T) {
	full := plan.Options{Safety: new(1.0)}
	for _, c := range []struct {
		name    string
		w       plan.Workload
		limits  sluice.Limits
		workers int
		safe    bool
		use     float64 // of the limit
	}{
		{"30 long calls are a minute of one worker", mixed(50, 950), sluice.Limits{TPM: 300_000}, 1, true, 1},
		{"and more than a lower limit", mixed(50, 950), sluice.Limits{TPM: 299_999}, 1, false, 1},
		{"of 15 the minute has others too", mixed(15, 950), sluice.Limits{TPM: 300_000}, 32, true, 0.5315},
		{"the end comes before the beginning", plan.Workload{Latency: 2 * time.Second, Calls: append(append(mixed(15, 500).Calls,
			mixed(0, 500).Calls...), mixed(15, 0).Calls...)}, sluice.Limits{TPM: 300_000}, 1, true, 1},
		{"a file shorter than a minute begins again", mixed(1, 9), sluice.Limits{TPM: 300_000}, 9, true, 0.9081},
		{"requests are all alike", mixed(50, 950), sluice.Limits{RPM: 300}, 10, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compute(t, c.limits, c.w, full)
			if p.Workers != c.workers || p.WorkersSafe != c.safe {
				t.Errorf("%d workers, safe %v; want %d, %v", p.Workers, p.WorkersSafe, c.workers, c.safe)
			}
			if used := p.Offered(p.Workers, p.Bounds[0]) / float64(p.Bounds[0].Limit); math.Abs(used-c.use) > 1e-5 {
				t.Errorf("%v of the limit, want %v", used, c.use)
			}
		})
	}
}

// The imitation refuses safe workers nothing, in whatever order the calls of a file come: with buckets of a minute, with
// those that the plan asks for, and with those that it was told of.
func TestSafeWorkersOfAMixedFileAreRefusedNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := plan.Workload{Latency: time.Duration(rapid.IntRange(500, 40_000).Draw(t, "latency")) * time.Millisecond}
		for range rapid.IntRange(1, 6).Draw(t, "stretches") {
			one := plan.Call{Input: rapid.IntRange(1, 3000).Draw(t, "input"), MaxTokens: rapid.IntRange(1, 3000).Draw(t, "max")}
			one.Output = rapid.IntRange(1, one.MaxTokens).Draw(t, "output")
			w.Calls = append(w.Calls, calls(rapid.IntRange(1, 150).Draw(t, "calls"), one)...)
		}
		limits := sluice.Limits{TPM: rapid.IntRange(1000, 1_000_000).Draw(t, "tpm")}
		if rapid.Bool().Draw(t, "told") {
			limits.Burst = time.Duration(rapid.IntRange(1, 70).Draw(t, "burst")) * time.Second
		}
		p, err := plan.Compute(limits, w, plan.Options{})
		if err != nil || !p.WorkersSafe {
			t.Skip(err)
		}
		held := limits.Burst
		if held == 0 && rapid.Bool().Draw(t, "asked for") {
			held = p.WorkersBurst.Duration + time.Millisecond
		}
		f, err := plan.Simulate(t.Context(), plan.Scenario{
			Provider: sim.Config{TPM: limits.TPM, Burst: held, Latency: w.Latency}, Calls: w.Calls, Unpaced: p.Workers,
		})
		if err != nil || f.Throttled > 0 || f.Completed != len(w.Calls) {
			t.Fatalf("%d workers on buckets of %v: %d of %d throttled, %v", p.Workers, held, f.Throttled, f.Tries, err)
		}
	})
}

// Where calls are charged what they declare, and declare nothing, their output still counts against a limit of output.
func TestOutputThatNobodyDeclaresCountsAgainstALimitOfOutput(t *testing.T) {
	w := plan.Workload{Latency: 2 * time.Second, InputTokens: 1000, OutputTokens: 1000}
	p := compute(t, sluice.Limits{RPM: 50, ITPM: 30_000, OTPM: 8000}, w, plan.Options{})
	if p.Throughput != 8 || p.Binding.Dimension != limits.OutputTokens || p.WorkersSafe {
		t.Errorf("%v a minute, bound by %v; safe: %v", p.Throughput, p.Binding.Dimension, p.WorkersSafe)
	}
	if p = compute(t, sluice.Limits{OTPM: 1000}, w, plan.Options{}); p.Throughput != 1 {
		t.Errorf("%v a minute", p.Throughput)
	}
	w.MaxTokens = 4000 // which is charged, whatever is used
	if p = compute(t, sluice.Limits{OTPM: 8000}, w, plan.Options{}); p.Throughput != 2 {
		t.Errorf("%v a minute", p.Throughput)
	}
}

func TestWorkersOfAHugeCapAreNoMoreThanIt(t *testing.T) {
	for _, limit := range []int{3, 2_000_000_000, 1_000_000_000_000} {
		p := compute(t, sluice.Limits{Concurrency: limit}, plan.Workload{}, plan.Options{Safety: new(1.0)})
		if p.Workers != limit {
			t.Errorf("%d workers of %d", p.Workers, limit)
		}
	}
}
