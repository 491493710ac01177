package cli

import (
	"slices"
	"sync"

	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// priceList finds the prices of models.
type priceList struct {
	told    *pricing.Rate // of flags, for all models; nil: they state none
	doubted sync.Map      // provider and model of the doubtful prices that were warned of
}

// doubtfulPrice is the warning of a price without a source, of a model at a provider.
const doubtfulPrice = "sluice: warning: the price of %s at %s is doubtful: it has no source. Set it with --price IN/OUT or in the settings"

// Price returns what a model costs at p: see settings.price. It warns once of a price without a source.
func (a *accounts) Price(p provider.Provider, model string) *provider.Price {
	price, doubtful := a.settings.price(a.prices.told, p, model)
	if doubtful {
		if _, told := a.prices.doubted.LoadOrStore(p.Name+"/"+model, true); !told {
			a.warn(doubtfulPrice+"\n", term.Escape(model), p.Name)
		}
	}
	return price
}

// price returns what a model costs at p: as flags say, or the row of the tier does, or else the rows of the settings and the published ones, or
// else the table of models; nil is unknown. The last one may have no source.
func (s *settings) price(rate *pricing.Rate, p provider.Provider, model string) (price *provider.Price, doubtful bool) {
	if rate == nil {
		rate = s.rate(p.Name, model)
	}
	if rate != nil {
		return priceAt(p, model, *rate), false
	}
	m, listed := pricing.Find(p.Name, model)
	if !listed {
		return nil, false
	}
	return m.Price().WithBatch(p.Batches.Price), m.Doubtful
}

// priceAt returns the price of a model at another standard rate: the table of models says how caches and service tiers relate to it.
func priceAt(p provider.Provider, model string, rate pricing.Rate) *provider.Price {
	price := provider.FlatPrice(rate.Input, rate.Output)
	if m, ok := pricing.Find(p.Name, model); ok {
		price = m.Price().At(rate.Input, rate.Output)
	}
	return price.WithBatch(p.Batches.Price)
}

// rate returns the rate of a model in the row of the tier, or else the one on which the rows for it agree: those of the settings before
// the published ones. Nil: none, or they differ.
func (s *settings) rate(name, model string) *pricing.Rate {
	if s.tier != "" {
		if row, err := s.registry.Find(name, s.tier, model); err == nil && row.PriceIn != nil && row.PriceOut != nil {
			return &pricing.Rate{Input: *row.PriceIn, Output: *row.PriceOut}
		}
	}
	all, published := rates(s.registry, name, model), rates(provider.Published(), name, model)
	if own := slices.DeleteFunc(slices.Clone(all), func(r pricing.Rate) bool { return slices.Contains(published, r) }); len(own) > 0 {
		all = own
	}
	if len(all) == 0 || slices.ContainsFunc(all, func(r pricing.Rate) bool { return r != all[0] }) {
		return nil
	}
	return &all[0]
}

// rates are those of the rows for a model.
func rates(r *provider.Registry, name, model string) (all []pricing.Rate) {
	for _, row := range r.Tiers(name) {
		if row.Is(model) && row.PriceIn != nil && row.PriceOut != nil {
			all = append(all, pricing.Rate{Input: *row.PriceIn, Output: *row.PriceOut})
		}
	}
	return all
}
