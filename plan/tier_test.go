package plan_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

func lookup(t *testing.T, name string) provider.Provider {
	t.Helper()
	p, ok := provider.Published().Lookup(name)
	if !ok {
		t.Fatalf("no provider %s", name)
	}
	return p
}

func TestATierStatesWhatTheWorkloadDoesNot(t *testing.T) {
	tier := provider.Tier{Provider: "anthropic", Tier: "one", Limits: sluice.Limits{RPM: 60}, Latency: 3 * time.Second,
		TokensPerRequest: 400, PriceIn: new(10.0), PriceOut: new(20.0)}
	account := lookup(t, "anthropic")
	p, err := plan.ForTier(tier, account, plan.Workload{}, plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if p.Workload.Latency != 3*time.Second || p.InputTokens != 300 || p.OutputTokens != 100 || *p.CostPerRequest != 0.005 {
		t.Errorf("%+v", p)
	}
	if len(p.Assumed) != 3 || p.Assumed[0] != (plan.Assumption{What: "latency", Value: "3s", Why: "published with anthropic one"}) {
		t.Errorf("%+v", p.Assumed)
	}
	stated := plan.Workload{Latency: time.Second, InputTokens: 1_000_000, OutputTokens: 1_000_000}
	p, err = plan.ForTier(tier, account, stated, plan.Options{PriceIn: new(1.0), PriceOut: new(2.0)})
	if err != nil || p.Workload.Latency != time.Second || *p.CostPerRequest != 3 || len(p.Assumed) != 0 {
		t.Errorf("%v: %+v", err, p)
	}
}

func TestATiersTokensAreCountedAsItsProviderDoes(t *testing.T) {
	w := plan.Workload{InputTokens: 100, OutputTokens: 50, MaxTokens: 1000}
	for name, want := range map[string]float64{"openai": 1000, "anthropic": 150} {
		p, err := plan.ForTier(provider.Tier{Limits: sluice.Limits{TPM: 10_000}}, lookup(t, name), w, plan.Options{})
		if err != nil || p.ChargedTokens != want {
			t.Errorf("%s: %v tokens, %v", name, p.ChargedTokens, err)
		}
	}
}

func TestTiersAreRanked(t *testing.T) {
	tier := func(name string, rpm int, price *float64) provider.Tier {
		return provider.Tier{Provider: "openai", Tier: name, Limits: sluice.Limits{RPM: rpm}, PriceIn: price, PriceOut: price}
	}
	tiers := []provider.Tier{
		tier("slow and cheap", 60, new(1.0)), tier("unknown", 0, new(1.0)), tier("fast", 600, new(9.0)),
		tier("fast without a price", 600, nil), tier("slow", 60, new(9.0)),
	}
	for _, c := range []struct {
		by           plan.By
		n            int
		ranked, left []string
	}{
		{plan.ByTime, 1000, []string{"fast", "fast without a price", "slow and cheap", "slow"}, []string{"unknown"}},
		{plan.ByTime, 0, []string{"fast", "fast without a price", "slow and cheap", "slow"}, []string{"unknown"}},
		{plan.ByCost, 1000, []string{"slow and cheap", "fast", "slow"}, []string{"unknown", "fast without a price"}},
	} {
		ranked, left, err := plan.Rank(provider.Published(), tiers, shortCalls(c.n), plan.Options{}, c.by)
		if err != nil {
			t.Fatal(err)
		}
		if got := tierNames(ranked); !slices.Equal(got, c.ranked) {
			t.Errorf("by %d: %v", c.by, got)
		}
		if got := tierNames(left); !slices.Equal(got, c.left) || slices.ContainsFunc(left, func(c plan.Choice) bool { return c.Why == "" }) {
			t.Errorf("by %d: left out %+v", c.by, left)
		}
	}
	_, _, err := plan.Rank(provider.Published(), tiers, plan.Workload{Latency: -1}, plan.Options{}, plan.ByTime)
	if wrong, ok := errors.AsType[*plan.FieldError](err); !ok || wrong.Field != "Workload.Latency" {
		t.Errorf("%v", err)
	}
}

func tierNames(choices []plan.Choice) []string {
	var names []string
	for _, c := range choices {
		names = append(names, c.Tier.Tier)
	}
	return names
}
