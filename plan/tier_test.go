package plan_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
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
	tier := provider.Tier{Provider: "anthropic", Tier: "one", Limits: sluice.Limits{RPM: 60}, Latency: limits.Millis{Duration: 3 * time.Second},
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
