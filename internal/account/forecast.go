package account

import (
	"cmp"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// ways returns the upstreams that serve a request. Without upstreams, its provider is one.
func (a *Accounts) ways(r batch.Request) []*provider.Upstream {
	if a.upstreams != nil {
		return a.upstreams.Open(r.Model, r.Endpoint)
	}
	p := a.Provider
	if p.Name != r.Provider {
		p, _ = a.Settings.Registry.Lookup(r.Provider)
	}
	return []*provider.Upstream{{Name: r.Provider, Provider: p, Price: func(model string) *provider.Price { return a.Price(p, model) }}}
}

// Name returns the provider of a request, or the upstreams that serve it.
func (a *Accounts) Name(r batch.Request) string {
	var names []string
	for _, up := range a.ways(r) {
		names = append(names, up.Name)
	}
	return strings.Join(names, ", ")
}

// Places returns the accounts for a request, with their initial limits and prices.
func (a *Accounts) Places(r batch.Request) (all []forecast.Place, err error) {
	known := make(map[string]int) // by account
	for _, up := range a.ways(r) {
		label := a.Label(up.Name)
		i, ok := known[label]
		if !ok {
			place, err := a.place(up.Name, up.Provider, r.Model, label)
			if err != nil {
				return nil, err
			}
			i, known[label] = len(all), len(all)
			all = append(all, place)
		}
		all[i].Prices = append(all[i].Prices, up.Price(cmp.Or(up.Models[r.Model], r.Model)))
	}
	return all, nil
}

// Place returns the account at the provider of a model. Learned limits replace unknown ones.
func (a *Accounts) Place(model string) (forecast.Place, error) {
	p, err := a.Of(model)
	if err != nil {
		return forecast.Place{}, err
	}
	place, err := a.place(p.Name, p, model, "")
	for _, lane := range a.Snapshot().Lanes {
		for d, limit := range place.Lane.Limits.All() {
			i := slices.IndexFunc(lane.Budgets, func(b limits.BucketSnapshot) bool { return b.Dimension == d })
			if lane.Lane == model && *limit == 0 && i >= 0 && lane.Budgets[i].Limit != provider.Endless {
				*limit = int(lane.Budgets[i].Limit)
			}
		}
	}
	return place, err
}

// place returns the account at p with its initial limits, and with the row of the tier for a model and for all models.
func (a *Accounts) place(name string, p provider.Provider, model, label string) (forecast.Place, error) {
	var c sluice.Config
	if err := a.ApplyLimits(&c, p, label); err != nil {
		return forecast.Place{}, err
	}
	tier := func(model string, limits sluice.Limits) provider.Tier {
		t := provider.Tier{Provider: p.Name}
		if row, err := a.Settings.Registry.Find(p.Name, a.Settings.Tier, model); err == nil && a.Settings.Tier != "" {
			t = row
		}
		t.Limits = limits
		return t
	}
	return forecast.Place{Name: name, Provider: p, Lane: tier(model, Over(c.Limits, c.Start)), All: tier("", c.Account)}, nil
}
