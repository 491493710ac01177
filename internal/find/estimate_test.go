package find_test

import (
	"errors"
	"math"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/provider"
)

// forecastOf returns a Config that is complete but for what change adds.
func forecastOf(t *testing.T, change func(*find.Config)) find.Config {
	t.Helper()
	p, ok := provider.Lookup("openai")
	if !ok {
		t.Fatal("no openai")
	}
	cfg := find.Config{Provider: p, Target: provider.Target{Model: "gpt-4o-mini", BaseURL: "http://sim.invalid/v1"}}
	change(&cfg)
	return cfg
}

func TestAForecastLeavesOutWhatIsTold(t *testing.T) {
	measured, err := find.Estimate(forecastOf(t, func(c *find.Config) { c.Budget.Tokens = -1 }))
	if err != nil {
		t.Fatal(err)
	}
	told, err := find.Estimate(forecastOf(t, func(c *find.Config) {
		c.Budget.Tokens, c.Told = -1, sluice.Limits{RPM: 60, TPM: 1000, Concurrency: 8}
	}))
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]find.Amount{"usually": {told.Typical, measured.Typical}, "at most": {told.Max, measured.Max}} {
		if pair[0].Requests >= pair[1].Requests || pair[0].Tokens >= pair[1].Tokens || pair[0].Cost != nil {
			t.Errorf("%s %+v with told limits, %+v without", name, pair[0], pair[1])
		}
	}
	if m := &measured; m.Max.Requests < m.Typical.Requests || m.Max.Tokens < m.Typical.Tokens {
		t.Errorf("at most %+v, usually %+v", m.Max, m.Typical)
	}
}

func TestAForecastStaysWithinWhatTheSearchMayCost(t *testing.T) {
	in, out := 2.5, 10.0
	for _, c := range []struct {
		name   string
		change func(*find.Config)
		within func(find.Amount) bool
	}{
		{"the usual token budget", func(*find.Config) {}, func(a find.Amount) bool { return a.Tokens == find.DefaultTokenBudget }},
		{"a token budget", func(c *find.Config) { c.Budget.Tokens = 5000 }, func(a find.Amount) bool { return a.Tokens == 5000 && a.Requests > 100 && a.Requests < 300 }},
		{"no token budget", func(c *find.Config) { c.Budget.Tokens = -1 }, func(a find.Amount) bool { return a.Tokens > 2*find.DefaultTokenBudget }},
		{"a server of one's own", func(c *find.Config) { c.Target.BaseURL = "http://127.0.0.1:8000/v1" },
			func(a find.Amount) bool { return a.Tokens > 2*find.DefaultTokenBudget }},
		{"a cost", func(c *find.Config) { c.Budget.PriceIn, c.Budget.PriceOut, c.Budget.MaxCost = &in, &out, new(0.25) },
			func(a find.Amount) bool { return math.Abs(*a.Cost-0.25) < 1e-9 && a.Tokens < find.DefaultTokenBudget }},
		{"what costs nothing", func(c *find.Config) {
			c.Budget.PriceIn, c.Budget.PriceOut, c.Budget.MaxCost = new(0.0), new(0.0), new(0.0)
		},
			func(a find.Amount) bool {
				return *a.Cost == 0 && a.Tokens == find.DefaultTokenBudget && a.Requests > 10_000
			}},
		{"a cost above the token budget", func(c *find.Config) {
			c.Budget.PriceIn, c.Budget.PriceOut, c.Budget.MaxCost, c.Budget.Tokens = &in, &out, new(25.0), 1000
		},
			func(a find.Amount) bool { return a.Tokens == 1000 && *a.Cost <= 0.01+1e-9 && *a.Cost > 0.0025 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			f, err := find.Estimate(forecastOf(t, c.change))
			if err != nil {
				t.Fatal(err)
			}
			if !c.within(f.Max) || f.TokenBudget > 0 && f.Max.Tokens > f.TokenBudget {
				t.Errorf("at most %+v of %d", f.Max, f.TokenBudget)
			}
		})
	}
}

func TestAForecastCountsThePromptsOfASweep(t *testing.T) {
	for _, c := range []struct{ max, usual, most int }{
		{1, 6, 6},              // nothing to scale back to
		{2, 6, 12},             // 1
		{3, 6, 18},             // 2, 1
		{6, 18, 18 + 8},        // 4: 3 passed
		{100, 712, 712},        // 90 passed
		{27, 132, 132 + 42},    // 21: 18 passed
		{40, 212, 212 + 64},    // 32: 27 passed, and 25 is below
		{12, 42, 42 + 18 + 14}, // 9, 7: 6 passed
	} {
		f, err := find.EstimateSweep(forecastOf(t, func(cfg *find.Config) { cfg.MaxWorkers, cfg.Budget.Tokens = c.max, -1 }))
		if err != nil {
			t.Fatal(err)
		}
		if f.Typical.Requests != c.usual || f.Max.Requests != c.most {
			t.Errorf("up to %d: %+v, want %d and %d at most", c.max, f, c.usual, c.most)
		}
	}
}

func TestAForecastNamesTheFieldThatIsWrong(t *testing.T) {
	for _, estimate := range []func(find.Config) (find.Forecast, error){find.Estimate, find.EstimateSweep} {
		_, err := estimate(forecastOf(t, func(c *find.Config) { c.Budget.MaxCost = new(1.0) }))
		if wrong, ok := errors.AsType[*fault.FieldError](err); !ok || wrong.Field != "MaxCost" {
			t.Errorf("error %v", err)
		}
	}
}
