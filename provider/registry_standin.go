package provider

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
)

// A few rows in the place of the registry, until that is merged.

// Registry is what is known of providers.
type Registry struct{ tiers []Tier }

// Tier is one row of published limits.
type Tier struct {
	Provider, Tier string
	Models         []string
	Limits         sluice.Limits

	PriceIn, PriceOut *float64 // US dollars per million tokens

	Latency          time.Duration
	TokensPerRequest int

	Source, Date, Note string
	Doubtful           bool
}

// Is reports whether the tier is for that model.
func (t Tier) Is(model string) bool {
	return len(t.Models) == 0 || slices.ContainsFunc(t.Models, func(m string) bool { return strings.HasPrefix(model, m) })
}

// Published returns the registry that is built in.
func Published() *Registry {
	const survey, docs = "https://github.com/rand/lift-sys", "https://docs.anthropic.com/en/api/rate-limits"
	return &Registry{[]Tier{
		{Provider: "openai", Tier: "survey-2025", Limits: sluice.Limits{RPM: 500, TPM: 30_000},
			Latency: 1500 * time.Millisecond, TokensPerRequest: 2000, Source: survey, Date: "2025-10-21", Doubtful: true},
		{Provider: "anthropic", Tier: "start", Models: []string{"claude-fable-5"},
			Limits: sluice.Limits{RPM: 1000, ITPM: 500_000, OTPM: 100_000}, Source: docs, Date: "2026"},
		{Provider: "anthropic", Tier: "start", Models: []string{"claude-sonnet-4-6", "claude-sonnet-4-5"},
			Limits: sluice.Limits{RPM: 1000, ITPM: 2_000_000, OTPM: 400_000}, Source: docs, Date: "2026"},
		{Provider: "anthropic", Tier: "start", Models: []string{"claude-3-5-haiku"}, PriceIn: new(0.8), PriceOut: new(4.0),
			Limits: sluice.Limits{RPM: 1000, ITPM: 100_000, OTPM: 20_000}, Source: docs, Date: "2026"},
		{Provider: "anthropic", Tier: "survey-2025", Limits: sluice.Limits{RPM: 50, TPM: 40_000, Concurrent: 5},
			Latency: 2 * time.Second, TokensPerRequest: 2000, Source: survey, Date: "2025-10-21", Doubtful: true},
		{Provider: "modal", Tier: "survey-2025", Limits: sluice.Limits{RPM: 600, TPM: 100_000, Concurrent: 4},
			Latency: 500 * time.Millisecond, TokensPerRequest: 2000, Source: survey, Date: "2025-10-21", Doubtful: true},
	}}
}

// Names returns the names of all providers.
func (r *Registry) Names() []string { return append(Names(), "modal") }

// Lookup returns the provider of that name.
func (r *Registry) Lookup(name string) (Provider, bool) {
	if name == "modal" {
		return Provider{Name: name, CountsCached: true}, true
	}
	return Lookup(name)
}

// Recognise returns the provider that a model id belongs to.
func (r *Registry) Recognise(model string) (Provider, bool) { return Recognise(model) }

// Tiers returns the limits that a provider publishes, or those of all providers for "".
func (r *Registry) Tiers(provider string) []Tier {
	var tiers []Tier
	for _, t := range r.tiers {
		if provider == "" || t.Provider == provider {
			tiers = append(tiers, t)
		}
	}
	return tiers
}

// Find returns the limits of a tier for a model.
func (r *Registry) Find(provider, tier, model string) (Tier, error) {
	if _, ok := r.Lookup(provider); !ok {
		return Tier{}, fmt.Errorf("unknown provider %q", provider)
	}
	var of []Tier
	var names []string
	for _, t := range r.Tiers(provider) {
		names = append(names, t.Tier)
		if t.Tier == tier {
			of = append(of, t)
		}
	}
	for _, t := range of {
		if model == "" && len(of) == 1 || model != "" && t.Is(model) {
			return t, nil
		}
	}
	switch {
	case len(of) == 0:
		return Tier{}, fmt.Errorf("%s has no tier %q, but %s", provider, tier, strings.Join(slices.Compact(names), ", "))
	case model == "":
		return Tier{}, fmt.Errorf("tier %s of %s differs by model: name one", tier, provider)
	}
	return Tier{}, fmt.Errorf("tier %s of %s has no limits for %q", tier, provider, model)
}

// Suggest returns the names of the providers that somebody may have meant who wrote name, nearest first.
func (r *Registry) Suggest(name string) []string {
	var near []string
	for _, known := range r.Names() {
		if len(name) > 2 && strings.HasPrefix(known, name[:3]) {
			near = append(near, known)
		}
	}
	return near
}
