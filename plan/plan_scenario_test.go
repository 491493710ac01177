package plan_test

import (
	"context"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/sim"
)

func TestAPlansScenarioComesToThePlansFigures(t *testing.T) {
	actual := plan.Options{Charge: limits.ChargeActual}
	for _, c := range []struct {
		name   string
		limits sluice.Limits
		w      plan.Workload
		o      plan.Options
		off    float64
	}{
		{"requests", sluice.Limits{RPM: 600}, plan.Workload{Requests: 1000, Latency: 500 * time.Millisecond}, plan.Options{}, 0.05},
		{"tokens of calls in their order", sluice.Limits{TPM: 60_000},
			plan.Workload{Calls: slices.Repeat([]plan.Call{
				{Input: 3000, MaxTokens: 500}, {Input: 500, MaxTokens: 1000}, {Input: 2000, Output: plan.NoOutput}, {Input: 9000},
			}, 100)}, plan.Options{}, 0.05},
		{"calls drawn from a sample", sluice.Limits{ITPM: 60_000, OTPM: 20_000},
			plan.Workload{Requests: 2000, MaxTokens: 300, Calls: []plan.Call{{Input: 300, Output: 100}, {Input: 100, Output: 50}}}, actual, 0.1}, // the order of the calls decides by ± 5 %
		{"slots", sluice.Limits{Concurrency: 5}, plan.Workload{Requests: 500, NoOutput: true}, plan.Options{}, 0.05},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := plan.Compute(c.limits, c.w, c.o)
			if err != nil {
				t.Fatal(err)
			}
			s := p.Scenario(0.2)
			s.Start = c.limits // a guarantee counts input and output, and the whole of max_tokens until a call ends
			f, err := plan.Simulate(context.Background(), s)
			if err != nil {
				t.Fatal(err)
			}
			if f.Completed != p.Workload.Requests || f.Failed > 0 || f.Stopped != "" {
				t.Errorf("%+v", f)
			}
			sum := int64(0)
			for _, call := range c.w.Calls {
				sum += int64(call.Input)
			}
			if c.w.Requests == 0 && f.Input != sum {
				t.Errorf("%d tokens were sent of %d: not each call once", f.Input, sum)
			}
			if off := float64(f.Time.Duration)/float64(p.Time.Duration) - 1; math.Abs(off) > c.off {
				t.Errorf("foreseen %v, computed %v", f.Time, p.Time)
			}
			if off := float64(f.Latency.Mean.Duration)/float64(p.Workload.Latency) - 1; math.Abs(off) > 0.03 && f.Completed >= 300 {
				t.Errorf("a latency of %v, where %v were stated", f.Latency.Mean, p.Workload.Latency)
			}
			if n := f.Within(f.Time.Duration); n != f.Completed {
				t.Errorf("%d of %d within the whole time", n, f.Completed)
			}
			if n := float64(f.Within(f.Time.Duration / 2)); math.Abs(n/float64(f.Completed)-0.5) > 0.15 && f.Completed > 10 {
				t.Errorf("%v of %d within half of the time", n, f.Completed)
			}
			if n := f.Within(-1); n != 0 {
				t.Errorf("%d before the start", n)
			}
		})
	}
}

func TestAPlanWithoutEndNeedsAHorizon(t *testing.T) {
	p, err := plan.Compute(sluice.Limits{RPM: 60}, plan.Workload{}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := p.Scenario(0)
	if _, err := plan.Simulate(context.Background(), s); err == nil {
		t.Error("it has none, and is looked at")
	}
	s.Horizon, s.Told = 10*time.Minute, sluice.Limits{RPM: 6_000}
	s.Provider = sim.Config{RPM: 6_000, Burst: time.Second, Latency: time.Second}
	told := 0
	s.Progress = func(ended int, at time.Duration) {
		if told++; ended < 0 || at < 0 || at > s.Horizon {
			t.Errorf("%d calls had ended at %v", ended, at)
		}
	}
	f, err := plan.Simulate(context.Background(), s)
	if err != nil || f.Time.Duration != s.Horizon || f.Stopped == "" || told == 0 {
		t.Errorf("%v %q, %v; progress was told %d times", f.Time, f.Stopped, err, told)
	}
}
