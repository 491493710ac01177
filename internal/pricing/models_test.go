package pricing_test

import (
	"math"
	"testing"

	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/limits"
)

func TestTheTableIsWhole(t *testing.T) {
	doubtful := 0
	for _, m := range pricing.Models() {
		if m.Provider == "" || m.Name == "" || m.Mode == "" {
			t.Errorf("no name: %+v", m)
		}
		if m.Doubtful {
			doubtful++
		}
		for s, r := range m.Price().Rates {
			if !(r.Input >= 0 && r.Output >= 0 && r.Input < 10_000 && r.Output < 10_000) {
				t.Errorf("%s %s costs %+v in tier %d", m.Provider, m.Name, r, s)
			}
		}
		if found, ok := pricing.Find(m.Provider, m.Name); !ok || found != m {
			t.Errorf("%s %s is found as %+v", m.Provider, m.Name, found)
		}
	}
	if n := len(pricing.Models()); n != 2176 || doubtful != 577 {
		t.Errorf("%d rows, %d without a source", n, doubtful)
	}
}

func TestVersionsAndAliasesAreResolved(t *testing.T) {
	for _, c := range []struct{ provider, model, want string }{
		{"openai", "gpt-4o-2024-08-06", "gpt-4o-2024-08-06"},
		{"openai", "GPT-4o", "gpt-4o"},
		{"openai", "gpt-4o-2031-01-01", "gpt-4o"},
		{"openai", "ft:gpt-4o-mini-2024-07-18:acme::abc123", "ft:gpt-4o-mini-2024-07-18"},
		{"anthropic", "claude-sonnet-4-5@20990101", "claude-sonnet-4-5"},
		{"anthropic", "claude-haiku-4-5-latest", "claude-haiku-4-5"},
		{"gemini", "models/gemini-2.5-flash", "gemini-2.5-flash"},
		{"gemini", "gemini-2.5-flash-001", "gemini-2.5-flash"},
		{"mistral", "mistral-large-latest", "mistral-large-latest"},
		{"openai", "gpt-4o-other", ""},
		{"groq", "gpt-4o", ""},
		{"openai", "", ""},
	} {
		m, ok := pricing.Find(c.provider, c.model)
		if m.Name != c.want || ok != (c.want != "") {
			t.Errorf("%s %s is %q", c.provider, c.model, m.Name)
		}
	}
}

// TestRowsAgreeWithKnownPrices compares rows with prices that are known apart from the table: input, output, cached input, batch input.
func TestRowsAgreeWithKnownPrices(t *testing.T) {
	for _, c := range []struct {
		provider, model        string
		in, out, cached, batch float64
	}{
		{"openai", "gpt-4o", 2.5, 10, 1.25, 1.25},
		{"openai", "gpt-4o-mini", 0.15, 0.6, 0.075, 0.075},
		{"openai", "gpt-4.1", 2, 8, 0.5, 1},
		{"openai", "gpt-4.1-mini", 0.4, 1.6, 0.1, 0.2},
		{"openai", "gpt-4.1-nano", 0.1, 0.4, 0.025, 0.05},
		{"openai", "gpt-5", 1.25, 10, 0.125, 0.625},
		{"openai", "gpt-5-mini", 0.25, 2, 0.025, 0.125},
		{"openai", "gpt-5-nano", 0.05, 0.4, 0.005, 0.025},
		{"openai", "o1", 15, 60, 7.5, 7.5},
		{"openai", "o3", 2, 8, 0.5, 1},
		{"openai", "o4-mini", 1.1, 4.4, 0.275, 0.55},
		{"openai", "text-embedding-3-small", 0.02, 0, 0.02, 0.01},
		{"openai", "text-embedding-3-large", 0.13, 0, 0.13, 0.065},
		{"anthropic", "claude-opus-4-5", 5, 25, 0.5, 2.5},
		{"anthropic", "claude-sonnet-4-5", 3, 15, 0.3, 1.5},
		{"anthropic", "claude-haiku-4-5", 1, 5, 0.1, 0.5},
		{"gemini", "gemini-2.5-pro", 1.25, 10, 0.125, 0.625},
		{"gemini", "gemini-2.5-flash", 0.3, 2.5, 0.03, 0.15},
		{"gemini", "gemini-2.5-flash-lite", 0.1, 0.4, 0.01, 0.05},
		{"groq", "openai/gpt-oss-120b", 0.15, 0.6, 0.075, 0},
	} {
		m, ok := pricing.Find(c.provider, c.model)
		r, b := m.Price().Standard(), m.Price().Rates[limits.ServiceBatch]
		if !ok || r.Input != c.in || r.Output != c.out || math.Abs(m.Price().Cached*r.Input-c.cached) > 1e-9 || b.Input != c.batch || math.Abs(b.Output-c.out*c.batch/c.in) > 1e-9 {
			t.Errorf("%s %s: %+v, cached × %v", c.provider, c.model, m.Price().Rates, m.Price().Cached)
		}
		if write, hour := m.Price().CacheWrite, m.Price().CacheWriteHour; c.provider == "anthropic" && (write != 1.25 || hour != 2) {
			t.Errorf("%s: cache writes cost %v and %v times the input", c.model, write, hour)
		}
	}
	if nano, _ := pricing.Find("openai", "gpt-5-nano"); nano.Price().Rates[limits.ServicePriority] != (pricing.Rate{}) {
		t.Errorf("a row that states half a rate has %+v", nano.Price().Rates)
	}
}

func TestCostFollowsTheProvider(t *testing.T) {
	find := func(provider, model string) *pricing.Price {
		m, ok := pricing.Find(provider, model)
		if !ok {
			t.Fatalf("no %s %s", provider, model)
		}
		return m.Price()
	}
	const million = 1_000_000
	sonnet, gpt, flash := find("anthropic", "claude-sonnet-4-5"), find("openai", "gpt-5"), find("gemini", "gemini-2.5-flash")
	for name, c := range map[string]struct {
		price *pricing.Price
		usage limits.Usage
		want  pricing.Cost
	}{
		"input and output":             {sonnet, limits.Usage{Input: million, Output: million}, pricing.Cost{USD: 18}},
		"a cache that is read":         {sonnet, limits.Usage{Input: million, CachedInput: million}, pricing.Cost{USD: 0.3}},
		"a cache that is written":      {sonnet, limits.Usage{Input: 2 * million, CacheWrite: million, CacheWriteHour: million}, pricing.Cost{USD: 3.75 + 6}},
		"a batch":                      {sonnet, limits.Usage{Input: million, CachedInput: million / 2, Output: million, Service: limits.ServiceBatch}, pricing.Cost{USD: 0.75 + 0.075 + 7.5}},
		"web searches":                 {sonnet, limits.Usage{Searches: 1000, OtherTools: 2}, pricing.Cost{USD: 10, Unpriced: 2}},
		"flex":                         {gpt, limits.Usage{Input: million, CachedInput: million, Output: million, Service: limits.ServiceFlex}, pricing.Cost{USD: 0.0625 + 5}},
		"priority":                     {gpt, limits.Usage{Input: million, Output: million, Service: limits.ServicePriority}, pricing.Cost{USD: 22.5}},
		"a tier whose rate is unknown": {sonnet, limits.Usage{Input: million, Service: limits.ServicePriority}, pricing.Cost{USD: 3, Estimated: 3}},
		"a response that broke off":    {sonnet, limits.Usage{Input: million, Searches: 100, Estimated: true}, pricing.Cost{USD: 4, Estimated: 3}},
		"a tool without a price":       {flash, limits.Usage{Searches: 1}, pricing.Cost{Unpriced: 1}},
		"a rate of your own":           {gpt.At(2.5, 10), limits.Usage{Input: million, CachedInput: million, Service: limits.ServiceFlex}, pricing.Cost{USD: 0.125}},
		"a part for batches":           {pricing.Flat(1, 2).WithBatch(0.5), limits.Usage{Input: million, Output: million, Service: limits.ServiceBatch}, pricing.Cost{USD: 1.5}},
		"nonsense":                     {gpt, limits.Usage{Input: -5, CachedInput: million, Output: -1}, pricing.Cost{USD: 0.125}},
	} {
		got := c.price.Cost(c.usage)
		if math.Abs(got.USD-c.want.USD) > 1e-9 || math.Abs(got.Estimated-c.want.Estimated) > 1e-9 || got.Unpriced != c.want.Unpriced {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
