package plan_test

import (
	"context"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

func simulate(t testing.TB, s plan.Scenario) plan.Forecast {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	f, err := plan.Simulate(ctx, s)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func calls(n int, c plan.Call) []plan.Call {
	out := make([]plan.Call, n)
	for i := range out {
		out[i] = c
	}
	return out
}

// expected is what a scenario should come to. A time, and numbers of calls, below zero are not looked at.
type expected struct {
	scenario   plan.Scenario
	time       time.Duration // within 2 %
	answered   int
	failed     int
	throttled  int
	stopped    string
	peak       int
	share      float64 // of the first limit; 0 is not looked at
	busiest    float64 // of the first limit
	waitAtMost time.Duration
}

func (test expected) check(t *testing.T) {
	t.Helper()
	f := simulate(t, test.scenario)
	if test.time >= 0 && math.Abs(f.Time.Seconds()-test.time.Seconds()) > 0.02*test.time.Seconds() {
		t.Errorf("takes %v, want %v", f.Time, test.time)
	}
	if test.answered >= 0 && math.Abs(float64(f.Completed-test.answered)) > 0.02*float64(test.answered) ||
		test.failed >= 0 && f.Failed != test.failed || f.Throttled != test.throttled {
		t.Errorf("%d answered, %d failed, %d throttled; want %d, %d, %d", f.Completed, f.Failed, f.Throttled, test.answered, test.failed,
			test.throttled)
	}
	if (test.stopped == "") != (f.Stopped == "") || !strings.HasPrefix(f.Stopped, test.stopped) {
		t.Errorf("stopped: %q, want %q", f.Stopped, test.stopped)
	}
	if test.peak > 0 && f.Peak != test.peak {
		t.Errorf("%d in flight, want %d", f.Peak, test.peak)
	}
	if test.share > 0 && (math.Abs(f.Quotas[0].Share-test.share) > 0.03 || f.Quotas[0].Share > 1) {
		t.Errorf("%.3f of %v used, want %.2f", f.Quotas[0].Share, f.Quotas[0].Dimension, test.share)
	}
	if test.busiest > 0 && math.Abs(f.Quotas[0].Busiest-test.busiest) > 0.02*test.busiest {
		t.Errorf("%.0f in the busiest minute, want %.0f", f.Quotas[0].Busiest, test.busiest)
	}
	if test.waitAtMost > 0 && (f.Wait.Max.Duration > test.waitAtMost || f.Wait.Max.Duration == 0) {
		t.Errorf("waits %v, want at most %v", f.Wait.Max, test.waitAtMost)
	}
}

func TestForecastOfWhatCanBeWorkedOutByHand(t *testing.T) {
	const s = time.Second
	one := plan.Call{Input: 10, MaxTokens: 100, Output: 50}
	for name, test := range map[string]expected{
		"nothing to do": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{RPM: 1}, 0, s)}},
		"a call": {scenario: plan.Scenario{Provider: sim.Config{Latency: s, PerToken: 10 * time.Millisecond}, Calls: calls(1, one)},
			time: 1500 * time.Millisecond, answered: 1, peak: 1},
		"told slots, no other limit": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{Concurrency: 10}, 0, s),
			Told: sluice.Limits{Concurrency: 10}, Calls: calls(100, one)}, time: 10*s + 800*time.Millisecond, answered: 100, peak: 10, waitAtMost: 3 * s}, // the slots are tried out in two steps
		"a minute of a told rate": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{RPM: 600, Burst: s}, 0, s),
			Told: sluice.Limits{RPM: 600, Burst: s}, Calls: calls(600, one)}, time: 60600 * time.Millisecond, answered: 600, share: 0.97, busiest: 600},
		"half an hour of output tokens": {scenario: plan.Scenario{Provider: sim.Config{OTPM: 60000, Burst: 10 * s, Charge: limits.ChargeActual,
			Latency: s, PerToken: 10 * time.Millisecond}, Dialect: provider.Anthropic, Told: sluice.Limits{OTPM: 60000, Burst: 10 * s}, Calls: calls(36000, one)},
			time: 30 * time.Minute, answered: 36000, share: 0.98},
		"input tokens, of which a bucket holds a third of a call": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{ITPM: 30000, Burst: s},
			limits.ChargeActual, 2*s), Dialect: provider.Anthropic, Told: sluice.Limits{ITPM: 30000, Burst: s}, Calls: calls(201, plan.Call{Input: 1500, Output: 500})},
			time: 10 * time.Minute, answered: 201, share: 0.99},
	} {
		t.Run(name, test.check)
	}
}

func TestForecastOfWhatCannotSucceedOrHasNoEnd(t *testing.T) {
	const s = time.Second
	one := plan.Call{Input: 10, MaxTokens: 100, Output: 50}
	for name, test := range map[string]expected{
		"too large for any bucket": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{TPM: 60}, 0, s), Calls: calls(3, one)}, failed: 3, time: -1},
		"known to be too large": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{TPM: 60}, 0, s), Told: sluice.Limits{TPM: 60},
			Calls: calls(30, one)}, failed: 30},
		"too large, as only headers show": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{ITPM: 5, OTPM: 50, RPM: 600}, 0, s),
			Dialect: provider.Anthropic, Calls: calls(2, one)}, failed: 2, throttled: 2, time: -1},
		"throttled more often than it may": {scenario: plan.Scenario{Calls: calls(1, one), Patience: plan.Patience{MaxThrottles: 7},
			Provider: sim.Config{Storms: []sim.Storm{{To: time.Hour, Silent: true}}}}, failed: 1, throttled: 8, time: -1},
		"money that is spent": {scenario: plan.Scenario{Provider: sim.Config{SpentAfter: 5}, Calls: calls(30, one)}, answered: 6, failed: 1, // a call in flight then succeeds, too
			time: -1, stopped: "no further request can succeed"},
		"a day's requests": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{RPD: 10}, 0, s), Told: sluice.Limits{RPD: 10},
			Calls: calls(30, one)}, time: 48 * time.Hour, answered: 30},
		"beyond the horizon": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{RPD: 10}, 0, s), Told: sluice.Limits{RPD: 10},
			Calls: calls(30, one), Horizon: 12 * time.Hour}, time: 12 * time.Hour, answered: 14, stopped: "the forecast stopped after 12h0m0s"},
		"without end": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{RPM: 600, Burst: s}, 0, s),
			Told: sluice.Limits{RPM: 600, Burst: s}, Calls: calls(1, one), Requests: -1, Horizon: 10 * time.Minute}, time: 10 * time.Minute, answered: 5945,
			stopped: "the forecast stopped after 10m0s"},
		"in no time": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{}, 0, 0), Calls: calls(1, one), Requests: -1, Horizon: s},
			time: -1, answered: -1, stopped: "the simulated time does not advance"},
		"unpaced and in no time": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{}, 0, 0), Calls: calls(1, one), Requests: -1, Horizon: s,
			Unpaced: 3}, time: -1, answered: -1, stopped: "the simulated time does not advance"},
		"too large without end": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{TPM: 60}, 0, s), Told: sluice.Limits{TPM: 60},
			Calls: calls(1, one), Requests: -1, Horizon: s}, time: -1, failed: -1, stopped: "the simulated time does not advance"},
		"a bound on tries": {scenario: plan.Scenario{Provider: plan.SimulatorConfig(sluice.Limits{}, 0, s), Calls: calls(1000, one), MaxTries: 100},
			time: -1, answered: -1, stopped: "the forecast stopped after 100 attempts"},
		"hangs": {scenario: plan.Scenario{Provider: sim.Config{Faults: sim.Faults{Hang: 1}}, Calls: calls(2, one), Patience: plan.Patience{Timeout: s, Attempts: 2}},
			time: -1, failed: 2},
		"answers that take too long": {scenario: plan.Scenario{Provider: sim.Config{Latency: 10 * s}, Calls: calls(1, one), Patience: plan.Patience{Timeout: s, Attempts: 1}},
			time: s, failed: 1, peak: 1},
	} {
		t.Run(name, func(t *testing.T) {
			if name == "too large without end" || name == "unpaced and in no time" { // millions of steps, as "in no time"
				suite.FullOnly(t)
			}
			test.check(t)
		})
	}
}

func TestSimulateNamesTheFieldThatMakesNoSense(t *testing.T) {
	one := calls(1, plan.Call{})
	for word, s := range map[string]plan.Scenario{
		"Config.RPM":                          {Provider: sim.Config{RPM: -1}},
		"Told: Concurrency":                   {Told: sluice.Limits{Concurrency: -3}},
		"Told: TPM":                           {Told: sluice.Limits{TPM: -3}},
		"Start: RPD":                          {Start: sluice.Limits{RPD: -3}},
		"Start: Burst":                        {Start: sluice.Limits{Burst: -3}},
		"Requests: 3 is set, but Calls":       {Requests: 3},
		"Horizon: the horizon is missing":     {Calls: one, Requests: -1},
		"Horizon: 2562047h47m16.":             {Calls: one, Horizon: math.MaxInt64},
		"Timeout: 2562047h47m16.":             {Calls: one, Patience: plan.Patience{Timeout: math.MaxInt64}},
		"PerToken: 2562047h47m16.":            {Calls: one, Provider: sim.Config{PerToken: math.MaxInt64}},
		"PerToken: 1h0m0s":                    {Calls: calls(1, plan.Call{Output: 1_000_000}), Provider: sim.Config{PerToken: time.Hour}},
		"Latency: 2562047h47m16.":             {Calls: one, Provider: sim.Config{Latency: math.MaxInt64}},
		"Unpaced":                             {Unpaced: -1},
		"RoundTrip":                           {RoundTrip: -1},
		"Calls[1]":                            {Calls: append(calls(1, plan.Call{}), plan.Call{MaxTokens: -1})},
		"Calls[0]":                            {Calls: calls(1, plan.Call{Input: 1 << 50})},
		"Calls[0]: 0 input tokens, at most 0": {Calls: calls(1, plan.Call{Output: -2})},
		"Dialect":                             {Dialect: 99},
	} {
		_, err := plan.Simulate(context.Background(), s)
		if wrong, ok := errors.AsType[*plan.FieldError](err); !ok || !strings.Contains(wrong.Error(), word) {
			t.Errorf("want a FieldError that names %s: %v", word, err)
		}
	}
}

// countdown is a context that ends when it was looked at so often.
type countdown struct {
	context.Context
	looks int
}

func (c *countdown) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}

func TestSimulateStopsWhenItsContextEndsAndKeepsWhatWasSeen(t *testing.T) {
	f, err := plan.Simulate(&countdown{context.Background(), 10}, day(24))
	if !errors.Is(err, context.Canceled) || f.Stopped != "cancelled" {
		t.Errorf("stopped: %q, %v", f.Stopped, err)
	}
	// It looks every few thousand steps of less than a few microseconds each.
	if f.Completed == 0 || f.Tries > 11*5000 {
		t.Errorf("%d tries, %d answered", f.Tries, f.Completed)
	}
}

// A rule of thumb that is wrong in practice: so many workers as the limit feeds. Unpaced they are throttled, paced not.
func TestWorkersWithoutASchedulerAreThrottledWhereSlotsWithOneAreNot(t *testing.T) {
	bounds := sluice.Limits{RPM: 600, TPM: 600_000, Burst: time.Second}
	s := plan.Scenario{
		Provider: plan.SimulatorConfig(bounds, limits.ChargeDeclared, 900*time.Millisecond),
		Calls:    []plan.Call{{Input: 300, MaxTokens: 500, Output: 100}, {Input: 500, MaxTokens: 200, Output: 150}},
		Requests: -1, Horizon: 10 * time.Minute,
	}
	s.Unpaced = 8 // 533 a minute: below the limit
	if f := simulate(t, s); f.Throttled != 0 || f.Peak != 8 || math.Abs(f.Throughput-533) > 5 {
		t.Errorf("8 workers: %d throttled, %d in flight, %.0f a minute", f.Throttled, f.Peak, f.Throughput)
	}
	s.Unpaced = 12 // 800 a minute
	if f := simulate(t, s); f.Throttled < 100 || f.Refused[limits.Requests] != f.Throttled {
		t.Errorf("12 workers: %d throttled, by limit %v", f.Throttled, f.Refused)
	}
	s.Unpaced, s.Told = 0, bounds
	s.Told.Concurrency = 12
	f := simulate(t, s)
	if f.Throttled != 0 || f.Peak > 12 || f.Throughput < 0.97*600 || f.Throughput > 601 {
		t.Errorf("12 slots: %d throttled, %d in flight, %.0f a minute", f.Throttled, f.Peak, f.Throughput)
	}
	for _, q := range f.Quotas {
		if q.Share > 1 || q.Busiest > float64(q.Limit)*1.02+10 {
			t.Errorf("beyond the limit: %+v", q)
		}
	}
}

// scenarios of all kinds, most of them nonsense.
func anyScenario() *rapid.Generator[plan.Scenario] {
	return rapid.Custom(func(t *rapid.T) plan.Scenario {
		limit := func(name string) int {
			return rapid.SampledFrom([]int{0, 0, 1, 7, 60, 900, limits.MaxLimit}).Draw(t, name)
		}
		span := func(name string) time.Duration {
			return rapid.SampledFrom([]time.Duration{-1, 0, 1, time.Millisecond, time.Second, time.Hour}).Draw(t, name)
		}
		part := func(name string) float64 { return rapid.SampledFrom([]float64{0, 0, 0.01, 0.2}).Draw(t, name) }
		bounds := func(name string) sluice.Limits {
			return sluice.Limits{RPM: limit(name + " RPM"), TPM: limit(name + " TPM"), ITPM: limit(name + " ITPM"), OTPM: limit(name + " OTPM"),
				RPD: limit(name + " RPD"), Concurrency: limit(name + " Concurrency"), Burst: max(0, span(name+" Burst"))}
		}
		s := plan.Scenario{
			Provider: plan.SimulatorConfig(bounds("real"), limits.Charge(rapid.IntRange(0, 1).Draw(t, "charge")), span("latency")),
			Dialect:  rapid.SampledFrom([]provider.Dialect{provider.OpenAI, provider.Anthropic, provider.Gemini}).Draw(t, "dialect"),
			Told:     bounds("told"), Start: bounds("start"), Stream: rapid.Bool().Draw(t, "stream"),
			RoundTrip: max(0, span("round trip")), Workers: rapid.IntRange(0, 30).Draw(t, "workers"), Spare: rapid.IntRange(-1, 20).Draw(t, "spare"),
			Unpaced: rapid.SampledFrom([]int{0, 0, 0, 1, 10}).Draw(t, "unpaced"), Patience: plan.Patience{Attempts: rapid.IntRange(0, 3).Draw(t, "attempts"),
				MaxThrottles: rapid.IntRange(-1, 3).Draw(t, "throttles"), Timeout: max(0, span("timeout"))}, MaxTries: 5000,
		}
		p := &s.Provider
		p.PerToken, p.Seed, p.Jitter = max(0, span("per token")), rapid.Uint64().Draw(t, "seed"), part("jitter")
		p.Queue, p.FixedWindow = rapid.IntRange(0, 3).Draw(t, "queue"), rapid.Bool().Draw(t, "windows")
		p.NoHeaders, p.LateHeaders, p.VagueBodies = rapid.Bool().Draw(t, "no headers"), rapid.Bool().Draw(t, "late"), rapid.Bool().Draw(t, "vague")
		p.Faults = sim.Faults{ServerError: part("500"), Overloaded: part("529"), Reset: part("reset"), Hang: part("hang"), Cut: part("cut"),
			BadRequest: part("400")}
		if rapid.Bool().Draw(t, "storm") {
			p.Storms = []sim.Storm{{From: time.Second, To: rapid.SampledFrom([]time.Duration{time.Minute, math.MaxInt64}).Draw(t, "to")}}
		}
		s.Calls = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) plan.Call {
			return plan.Call{Input: rapid.IntRange(0, 2000).Draw(t, "in"), MaxTokens: rapid.IntRange(0, 2000).Draw(t, "most"),
				Output: rapid.IntRange(-1, 2000).Draw(t, "out")}
		}), 0, 20).Draw(t, "calls")
		if len(s.Calls) > 0 {
			s.Requests = rapid.SampledFrom([]int{0, 100, -1}).Draw(t, "draw")
			s.Horizon = rapid.SampledFrom([]time.Duration{time.Second, time.Hour, 48 * time.Hour}).Draw(t, "horizon")
		}
		return s
	})
}

func TestEveryScenarioComesToAnEndThatAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := anyScenario().Draw(t, "scenario")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		f, err := plan.Simulate(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(s.Calls); f.Stopped == "" && s.Requests == 0 && f.Completed+f.Failed != n || s.Requests < 0 && f.Stopped == "" {
			t.Fatalf("%d answered, %d failed of %d; stopped: %q", f.Completed, f.Failed, n, f.Stopped)
		}
		if told := s.Told.Concurrency; s.Unpaced == 0 && told > 0 && f.Peak > told || s.Unpaced > 0 && f.Peak > s.Unpaced {
			t.Fatalf("%d in flight", f.Peak)
		}
		var sum plan.Step
		for _, step := range f.Steps {
			sum.Sent += step.Sent
			sum.Completed += step.Completed
			sum.Failed += step.Failed
			sum.Throttled += step.Throttled
			sum.InFlight = max(sum.InFlight, step.InFlight)
		}
		if sum.Sent != f.Tries || sum.Completed != f.Completed || sum.Failed != f.Failed || sum.Throttled != f.Throttled || sum.InFlight != f.Peak {
			t.Fatalf("the steps come to %+v, the whole to %+v", sum, f)
		}
		if len(f.Steps) > plan.MaxSteps || f.Time.Duration < 0 || f.Time.Duration > time.Duration(len(f.Steps)+1)*f.Width {
			t.Fatalf("%d steps of %v in %v", len(f.Steps), f.Width, f.Time)
		}
		for _, q := range f.Quotas {
			if math.IsNaN(q.Share) || q.Spent < 0 {
				t.Fatalf("%+v", q)
			}
		}
		again, err := plan.Simulate(ctx, s)
		if err != nil || !reflect.DeepEqual(f, again) {
			t.Fatalf("the same twice differs: %+v, %+v, %v", f, again, err)
		}
	})
}

func TestAWindowIsPlannedAndSimulatedAsStated(t *testing.T) {
	told := sluice.Limits{Requests: limits.Window{N: 100, Period: 10 * time.Second}}
	p, err := plan.Compute(told, plan.Workload{Requests: 300, Latency: 300 * time.Millisecond, InputTokens: 10, OutputTokens: 5}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Throughput != 600 {
		t.Errorf("%v requests per minute at 100 in 10 s", p.Throughput)
	}
	s := p.Scenario(0)
	s.Told = told
	f, err := plan.Simulate(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if f.Throttled > 0 || f.Completed != 300 || f.Time.Duration > 21*time.Second { // three windows, of which two are waited for
		t.Errorf("%d answered in %v, %d rejected", f.Completed, f.Time, f.Throttled)
	}
}

// A limit per day that is used up lets one request through every 86 s. Rejections confirm this, so it is not tested each time.
func TestAConfirmedHeaderIsNotTestedAgain(t *testing.T) {
	f := simulate(t, plan.Scenario{
		Provider: plan.SimulatorConfig(sluice.Limits{RPD: 1000, Burst: time.Minute}, limits.ChargeDeclared, 2*time.Second),
		Dialect:  provider.OpenAI, Calls: []plan.Call{{Input: 1500, Output: 500}}, Requests: -1, Horizon: 130 * time.Minute,
		Workers: 16, Told: sluice.Limits{Concurrency: 1},
	})
	if f.Throttled > 10 {
		t.Errorf("%d of %d requests are rejected", f.Throttled, f.Tries)
	}
}
