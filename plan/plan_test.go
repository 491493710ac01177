package plan_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
)

// shortCalls are calls of 1,500 tokens in and 500 out, 2 s each.
func shortCalls(n int) plan.Workload {
	return plan.Workload{Requests: n, Latency: 2 * time.Second, InputTokens: 1500, OutputTokens: 500}
}

func compute(t *testing.T, l sluice.Limits, w plan.Workload, o plan.Options) plan.Plan {
	t.Helper()
	p, err := plan.Compute(l, w, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestThroughputIsThatOfTheTightestLimit(t *testing.T) {
	used := plan.Options{Charge: limits.ChargeActual}
	for _, c := range []struct {
		name    string
		limits  sluice.Limits
		n       int
		o       plan.Options
		want    float64
		binding limits.Dimension
	}{
		{"requests", sluice.Limits{RPM: 50, TPM: 400_000, Concurrency: 50}, 0, used, 50, limits.Requests},
		{"tokens", sluice.Limits{RPM: 50, TPM: 40_000, Concurrency: 5}, 0, used, 20, limits.Tokens},
		{"input", sluice.Limits{RPM: 50, ITPM: 15_000, OTPM: 100_000}, 0, used, 10, limits.InputTokens},
		{"output", sluice.Limits{RPM: 50, ITPM: 150_000, OTPM: 4_000}, 0, used, 8, limits.OutputTokens},
		{"cap", sluice.Limits{RPM: 500, Concurrency: 4}, 0, used, 120, limits.Concurrency},
		{"a cap alone", sluice.Limits{Concurrency: 1}, 0, used, 30, limits.Concurrency},
		{"a day's requests, without end", sluice.Limits{RPM: 50, RPD: 1440}, 0, used, 1, limits.RequestsPerDay},
		{"a day's requests that suffice", sluice.Limits{RPM: 50, RPD: 1440}, 1440, used, 50, limits.Requests},
		{"a day's requests that do not", sluice.Limits{RPM: 50, RPD: 1440}, 1441, used, 1, limits.RequestsPerDay},
		{"a day's tokens", sluice.Limits{RPM: 50, TPD: 2_880_000}, 0, used, 1, limits.TokensPerDay},
		{"tokens as declared: the input, as nothing is", sluice.Limits{TPM: 30_000}, 0, plan.Options{}, 20, limits.Tokens},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compute(t, c.limits, shortCalls(c.n), c.o)
			if math.Abs(p.Throughput-c.want) > 1e-9 || p.Binding.Dimension != c.binding {
				t.Errorf("%v by %s, want %v by %s", p.Throughput, p.Binding.Dimension, c.want, c.binding)
			}
		})
	}
}

func TestNextIsTheLimitThatWouldDecideThen(t *testing.T) {
	p := compute(t, sluice.Limits{RPM: 50, TPM: 40_000}, shortCalls(0), plan.Options{Charge: limits.ChargeActual})
	if p.Binding.Next != limits.Requests || p.Binding.Factor != 2.5 {
		t.Errorf("%+v", p.Binding)
	}
	p = compute(t, sluice.Limits{RPM: 50}, shortCalls(0), plan.Options{})
	if p.Binding.Next != limits.AnyDimension {
		t.Errorf("a single limit has a next one: %+v", p.Binding)
	}
}

func TestWorkersKeepEveryLimitAndSlotsReachIt(t *testing.T) {
	used := limits.ChargeActual
	for _, c := range []struct {
		name           string
		limits         sluice.Limits
		w              plan.Workload
		o              plan.Options
		slots, workers int
		exceeded       []limits.Dimension
	}{
		{"the rule of thumb's first row: no number is safe", sluice.Limits{RPM: 50, TPM: 40_000, Concurrency: 5},
			shortCalls(0), plan.Options{Charge: used}, 4, 1, []limits.Dimension{limits.Tokens}},
		{"a cap, requests and a margin", sluice.Limits{RPM: 50, Concurrency: 5}, shortCalls(0), plan.Options{}, 5, 1, nil},
		{"a cap alone", sluice.Limits{Concurrency: 10}, shortCalls(0), plan.Options{}, 10, 8, nil},
		{"requests alone", sluice.Limits{RPM: 600}, shortCalls(0), plan.Options{}, 34, 16, nil},
		{"no margin", sluice.Limits{RPM: 600}, shortCalls(0), plan.Options{Safety: new(1.0)}, 34, 20, nil},
		{"a margin of nothing", sluice.Limits{RPM: 600}, shortCalls(0), plan.Options{Safety: new(0.0)}, 34, 1, nil},
		{"fewer requests than slots", sluice.Limits{RPM: 600}, shortCalls(3), plan.Options{}, 3, 16, nil},
		{"one worker uses a limit whole", sluice.Limits{RPM: 30}, shortCalls(0), plan.Options{}, 4, 1, nil},
		{"one worker exceeds a limit", sluice.Limits{RPM: 29}, shortCalls(0), plan.Options{}, 4, 1,
			[]limits.Dimension{limits.Requests}},
		{"input and output", sluice.Limits{ITPM: 450_000, OTPM: 15_000}, shortCalls(0), plan.Options{Charge: used}, 4, 1, nil},
		{"a day's requests", sluice.Limits{RPM: 600, RPD: 1000}, shortCalls(0), plan.Options{}, 1, 1,
			[]limits.Dimension{limits.RequestsPerDay}},
		{"a day's requests that suffice", sluice.Limits{RPM: 600, RPD: 1000}, shortCalls(1000), plan.Options{}, 34, 16, nil},
		{"calls of two minutes all begin in one", sluice.Limits{RPM: 60},
			plan.Workload{Latency: 2 * time.Minute, InputTokens: 1, OutputTokens: 1}, plan.Options{Safety: new(1.0)}, 153, 60, nil},
		{"a bucket that is known to be small", sluice.Limits{RPM: 600, Burst: time.Second}, shortCalls(0), plan.Options{}, 47, 9, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compute(t, c.limits, c.w, c.o)
			if p.Slots != c.slots || p.Workers != c.workers || !slices.Equal(p.Exceeded, c.exceeded) ||
				p.WorkersSafe != (len(c.exceeded) == 0) {
				t.Errorf("slots %d, workers %d, safe %v, exceeded %v", p.Slots, p.Workers, p.WorkersSafe, p.Exceeded)
			}
		})
	}
}

func TestWorkersNeedBucketsThatHoldACallOfEachAndMore(t *testing.T) {
	for _, c := range []struct {
		name    string
		limits  sluice.Limits
		o       plan.Options
		workers int
		safe    bool
		want    time.Duration
	}{
		{"16 of the 20 that the limit feeds, and 16 ÷ 4", sluice.Limits{RPM: 600}, plan.Options{}, 16, true, 2 * time.Second},
		{"as many as the limit feeds", sluice.Limits{RPM: 600}, plan.Options{Safety: new(1.0)}, 20, true, time.Minute},
		{"a cap has no bucket", sluice.Limits{Concurrency: 10}, plan.Options{}, 8, true, 0},
		{"nor does a day ask for more", sluice.Limits{RPM: 600, RPD: 100_000}, plan.Options{}, 1, true, time.Second * 2 / 19},
		{"told of a second: 9 and 9 ÷ 11", sluice.Limits{RPM: 600, Burst: time.Second}, plan.Options{}, 9, true, time.Second * 108 / 110},
		{"told of a call: one and what chance adds are too many", sluice.Limits{RPM: 60, Burst: time.Second}, plan.Options{}, 1, false, 2 * time.Second},
		{"told of a minute is as untold", sluice.Limits{RPM: 600, Burst: time.Minute}, plan.Options{}, 16, true, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compute(t, c.limits, shortCalls(0), c.o)
			if p.Workers != c.workers || p.WorkersSafe != c.safe || (p.WorkersBurst.Duration-c.want).Abs() > time.Millisecond {
				t.Errorf("%d workers, safe %v, on buckets of %v; want %d, %v, %v", p.Workers, p.WorkersSafe, p.WorkersBurst, c.workers, c.safe, c.want)
			}
		})
	}
}

func TestGraphsShareTheSlots(t *testing.T) {
	for graphs, want := range map[int]int{0: 5, 1: 5, 2: 2, 100: 1} {
		p := compute(t, sluice.Limits{Concurrency: 5}, shortCalls(0), plan.Options{Processes: graphs})
		l := p.ResourceLimits()
		if p.NodesPerProcess != want || *l.ConcurrentNodes != int64(want) || *l.ConcurrentCalls != 5 || l.LLMCalls != nil {
			t.Errorf("%d graphs: %d nodes, %+v", graphs, p.NodesPerProcess, l)
		}
	}
}

func TestTimeIsThatOfTheSlowestLimit(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits sluice.Limits
		n      int
		want   time.Duration
	}{
		{"one call", sluice.Limits{RPM: 60}, 1, 2 * time.Second},
		{"a call a second", sluice.Limits{RPM: 60}, 61, 62 * time.Second},
		{"from a full minute's bucket", sluice.Limits{RPM: 60, Burst: time.Minute}, 61, 3 * time.Second},
		{"a cap", sluice.Limits{Concurrency: 4}, 9, 6 * time.Second},
		{"a day's budget, then its refill", sluice.Limits{RPM: 60_000, RPD: 1440}, 1500, time.Hour + 2*time.Second},
		{"no end", sluice.Limits{RPM: 60}, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compute(t, c.limits, shortCalls(c.n), plan.Options{})
			if d := p.Time.Duration - c.want; d.Abs() > time.Millisecond {
				t.Errorf("%v, want %v", p.Time, c.want)
			}
			if c.n > 0 && p.Within(p.Time.Duration+time.Microsecond) < c.n {
				t.Errorf("%d of %d within that time", p.Within(p.Time.Duration), c.n)
			}
			if c.n > 1 && p.Within(p.Time.Duration-3*time.Second) >= c.n {
				t.Error("all in less")
			}
		})
	}
}

func TestCostNeedsThePricesOfWhatIsUsed(t *testing.T) {
	in, out := new(3.0), new(15.0)
	limits := sluice.Limits{RPM: 60}
	p := compute(t, limits, shortCalls(1000), plan.Options{PriceIn: in, PriceOut: out})
	if p.Cost == nil || math.Abs(*p.Cost-12) > 1e-9 {
		t.Errorf("cost %v", p.Cost)
	}
	if n, ok := p.Affordable(6); !ok || n != 500 {
		t.Errorf("%d, %v for 6", n, ok)
	}
	if n, ok := p.Affordable(-1); !ok || n != 0 {
		t.Errorf("%d, %v for less than nothing", n, ok)
	}
	p = compute(t, limits, shortCalls(1000), plan.Options{PriceIn: in})
	if _, ok := p.Affordable(6); ok || p.Cost != nil || p.CostPerRequest != nil {
		t.Errorf("cost %v without a price for output", p.Cost)
	}
	w := plan.Workload{Requests: 1000, InputTokens: 1000, NoOutput: true}
	if p = compute(t, limits, w, plan.Options{PriceIn: in}); p.Cost == nil || *p.Cost != 3 {
		t.Errorf("cost %v of calls without output", p.Cost)
	}
	p = compute(t, limits, shortCalls(0), plan.Options{PriceIn: in, PriceOut: out})
	if p.Cost != nil || p.CostPerRequest == nil {
		t.Errorf("cost %v without end", p.Cost)
	}
	p = compute(t, limits, shortCalls(1), plan.Options{PriceIn: new(0.0), PriceOut: new(0.0)})
	if n, ok := p.Affordable(1); !ok || n < 1e9 {
		t.Errorf("%d of what is free", n)
	}
}

func TestTokensAreCountedAsTheProviderDoes(t *testing.T) {
	w := plan.Workload{InputTokens: 300, OutputTokens: 50, MaxTokens: 1000}
	bounds := sluice.Limits{TPM: 30_000}
	for _, c := range []struct {
		name              string
		o                 plan.Options
		charged, reserved float64
	}{
		{"declared", plan.Options{}, 1000, 1000},
		{"used", plan.Options{Charge: limits.ChargeActual}, 350, 1300},
	} {
		p := compute(t, bounds, w, c.o)
		if p.ChargedTokens != c.charged || p.ReservedTokens != c.reserved || p.Throughput != 30_000/c.charged ||
			p.InputTokens != 300 || p.OutputTokens != 50 {
			t.Errorf("%s: %+v", c.name, p)
		}
	}
}

func TestCallsAreChargedOneByOne(t *testing.T) {
	w := plan.Workload{Calls: []plan.Call{{Input: 1000, MaxTokens: 100}, {Input: 100, MaxTokens: 3000, Output: 500}}}
	p := compute(t, sluice.Limits{TPM: 40_000}, w, plan.Options{})
	if p.ChargedTokens != 2000 || p.Workload.Requests != 2 || p.InputTokens != 550 || p.OutputTokens != 300 {
		t.Errorf("%+v", p)
	}
	w.Requests = 1000 // the calls are a sample
	if p = compute(t, sluice.Limits{TPM: 2000}, w, plan.Options{}); p.TooLarge != 500 || p.Workload.Requests != 1000 {
		t.Errorf("%d of %d are above the limit", p.TooLarge, p.Workload.Requests)
	}
}

func TestAPlanSaysWhatItAssumes(t *testing.T) {
	for _, c := range []struct {
		name    string
		w       plan.Workload
		want    []plan.Assumption
		in, out float64
	}{
		{"nothing is known", plan.Workload{}, []plan.Assumption{{"latency", "2s", "not set"},
			{"input_tokens", "1500", "not set"}, {"output_tokens", "500", "not set"}}, 1500, 500},
		{"all is known", shortCalls(1), nil, 1500, 500},
		{"max_tokens is declared", plan.Workload{Latency: 1, InputTokens: 10, MaxTokens: 70},
			[]plan.Assumption{{"output_tokens", "max_tokens", "not set"}}, 10, 70},
		{"no output is no gap", plan.Workload{Latency: 1, InputTokens: 10, NoOutput: true}, nil, 10, 0},
		{"some calls do not say", plan.Workload{Latency: 1, Calls: []plan.Call{{Input: 10, Output: 30}, {Input: 20, Output: plan.NoOutput},
			{MaxTokens: 60}}}, []plan.Assumption{{"input_tokens", "1500", "not set by 1 of 3 requests"},
			{"output_tokens", "max_tokens, or 500", "not set by 1 of 3 requests"}}, 510, 30},
		{"several answers are asked for", plan.Workload{Latency: 1, Calls: []plan.Call{{Input: 10, Answers: 3}, {Input: 10, Answers: 3, MaxTokens: 300}}},
			[]plan.Assumption{{"output_tokens", "max_tokens, or 500", "not set"}}, 10, 900},
		{"an answer is cut at max_tokens", plan.Workload{Latency: 1, MaxTokens: 40, Calls: []plan.Call{{Input: 10, Output: 90}, {Input: 10, Output: 20}}},
			[]plan.Assumption{{"output_tokens", "max_tokens", "1 of 2 responses would be longer than max_tokens, and are cut"}}, 10, 30},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compute(t, sluice.Limits{RPM: 1}, c.w, plan.Options{Charge: limits.ChargeActual})
			if !slices.Equal(p.Assumed, c.want) || p.InputTokens != c.in || p.OutputTokens != c.out {
				t.Errorf("%+v; %v in, %v out", p.Assumed, p.InputTokens, p.OutputTokens)
			}
		})
	}
}

func TestAPlanSaysWhichCallsDeclareNothingWhereThatCounts(t *testing.T) {
	why := ": each request is charged only for its input"
	for _, c := range []struct {
		w    plan.Workload
		want []plan.Assumption
	}{
		{shortCalls(1), []plan.Assumption{{"max_tokens", "none", "not set" + why}}},
		{plan.Workload{Latency: 1, InputTokens: 1, OutputTokens: 1, MaxTokens: 9}, nil},
		{plan.Workload{Latency: 1, Calls: []plan.Call{{Input: 1, Output: 1}, {Input: 1, Output: 1, MaxTokens: 2}}},
			[]plan.Assumption{{"max_tokens", "none", "not set by 1 of 2 requests" + why}}},
	} {
		if p := compute(t, sluice.Limits{TPM: 100_000}, c.w, plan.Options{}); !slices.Equal(p.Assumed, c.want) {
			t.Errorf("%+v, want %+v", p.Assumed, c.want)
		}
	}
}

func TestComputeNamesWhatIsWrong(t *testing.T) {
	good := sluice.Limits{RPM: 60}
	for _, c := range []struct {
		field string
		l     sluice.Limits
		w     plan.Workload
		o     plan.Options
	}{
		{"Limits", sluice.Limits{}, plan.Workload{}, plan.Options{}},
		{"Limits", sluice.Limits{OTPM: 5}, plan.Workload{NoOutput: true}, plan.Options{}},
		{"Limits", sluice.Limits{RPD: 5}, plan.Workload{Requests: 5}, plan.Options{}},
		{"Limits.RPM", sluice.Limits{RPM: -1}, plan.Workload{}, plan.Options{}},
		{"Limits.TPM", sluice.Limits{TPM: -1}, plan.Workload{}, plan.Options{}},
		{"Limits.TPD", sluice.Limits{TPD: math.MaxInt}, plan.Workload{}, plan.Options{}},
		{"Limits.RPM", sluice.Limits{RPM: math.MaxInt}, plan.Workload{}, plan.Options{}},
		{"Limits.Concurrency", sluice.Limits{Concurrency: -1}, plan.Workload{}, plan.Options{}},
		{"Limits.Burst", sluice.Limits{RPM: 1, Burst: -1}, plan.Workload{}, plan.Options{}},
		{"Workload.Requests", good, plan.Workload{Requests: -1}, plan.Options{}},
		{"Workload.Requests", good, plan.Workload{Requests: math.MaxInt}, plan.Options{}},
		{"Workload.Requests", sluice.Limits{RPD: 1}, plan.Workload{Requests: 1e9}, plan.Options{}},
		{"Workload.Latency", good, plan.Workload{Latency: -1}, plan.Options{}},
		{"Workload.Latency", good, plan.Workload{Latency: math.MaxInt64}, plan.Options{}},
		{"Workload.InputTokens", good, plan.Workload{InputTokens: -1}, plan.Options{}},
		{"Workload.OutputTokens", good, plan.Workload{OutputTokens: -1}, plan.Options{}},
		{"Workload.OutputTokens", good, plan.Workload{OutputTokens: 1, NoOutput: true}, plan.Options{}},
		{"Workload.OutputTokens", good, plan.Workload{OutputTokens: 500, MaxTokens: 100}, plan.Options{}},
		{"Workload.Calls[0]", good, plan.Workload{Calls: []plan.Call{{Answers: -1}}}, plan.Options{}},
		{"Workload.Calls[0]", good, plan.Workload{Calls: []plan.Call{{Answers: 1 << 40}}}, plan.Options{}},
		{"Workload.MaxTokens", good, plan.Workload{MaxTokens: math.MaxInt}, plan.Options{}},
		{"Workload.Calls[1]", good, plan.Workload{Calls: []plan.Call{{}, {Input: -1}}}, plan.Options{}},
		{"Workload.Calls[0]", good, plan.Workload{Calls: []plan.Call{{Output: -2}}}, plan.Options{}},
		{"Workload.Calls[0]", good, plan.Workload{Calls: []plan.Call{{Output: math.MaxInt}}}, plan.Options{}},
		{"Options.Safety", good, plan.Workload{}, plan.Options{Safety: new(-0.1)}},
		{"Options.Safety", good, plan.Workload{}, plan.Options{Safety: new(1.1)}},
		{"Options.Safety", good, plan.Workload{}, plan.Options{Safety: new(math.NaN())}},
		{"Options.Processes", good, plan.Workload{}, plan.Options{Processes: -1}},
		{"Options.Charge", good, plan.Workload{}, plan.Options{Charge: 9}},
		{"Options.PriceIn", good, plan.Workload{}, plan.Options{PriceIn: new(math.Inf(1))}},
		{"Options.PriceOut", good, plan.Workload{}, plan.Options{PriceOut: new(-1.0)}},
	} {
		_, err := plan.Compute(c.l, c.w, c.o)
		wrong, ok := errors.AsType[*plan.FieldError](err)
		if !ok || wrong.Field != c.field {
			t.Errorf("%v, want a fault in %s", err, c.field)
		}
		if c.l.RPM == math.MaxInt && !strings.Contains(err.Error(), "9223372036854775807 is above") {
			t.Errorf("%v", err)
		}
		if c.field == "Limits" && !errors.Is(err, plan.ErrNoLimits) {
			t.Errorf("%v is not ErrNoLimits", err)
		}
	}
}
