package account

import (
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/provider"
)

// Price returns the price of a model at p; nil if it is unknown. It warns once of a price without a source. It is safe for concurrent use.
func (a *Accounts) Price(p provider.Provider, model string) *provider.Price {
	price, doubt := a.Settings.Price(a.Config.Rate, p, model)
	if doubt != "" {
		if _, known := a.warned.LoadOrStore(doubt, true); !known {
			a.Config.Warn(doubt)
		}
	}
	return price
}

// Price returns the price of a model at p; nil if it is unknown. rate takes precedence, then the row of the tier, the rows of the settings,
// the published rows, and the table of models. doubt is a warning about a price without a source.
func (s *Settings) Price(rate *pricing.Rate, p provider.Provider, model string) (price *provider.Price, doubt string) {
	if rate == nil {
		rate = s.rate(p.Name, model)
	}
	if rate != nil {
		return priceAt(p, model, *rate), ""
	}
	m, listed := pricing.Find(p.Name, model)
	if !listed {
		return nil, ""
	}
	if m.Doubtful {
		doubt = fmt.Sprintf("the price of %s at %s is doubtful: it has no source. Set it with --price IN/OUT or in the settings", model, p.Name)
	}
	return m.Price().WithBatch(p.Batches.Price), doubt
}

// priceAt returns the price of a model at another standard rate. The table of models relates the rates of caches and service tiers to it.
func priceAt(p provider.Provider, model string, rate pricing.Rate) *provider.Price {
	price := provider.FlatPrice(rate.Input, rate.Output)
	if m, ok := pricing.Find(p.Name, model); ok {
		price = m.Price().At(rate.Input, rate.Output)
	}
	return price.WithBatch(p.Batches.Price)
}

// rate returns the rate of a model in the row of the tier. Without a tier, it returns the rate on which all rows of the settings agree, or
// else all published rows. It is nil if there is none, or if the rows differ.
func (s *Settings) rate(name, model string) *pricing.Rate {
	if tier := s.File.Tier; tier != "" {
		if row, err := s.Registry.Find(name, tier, model); err == nil && row.PriceIn != nil && row.PriceOut != nil {
			return &pricing.Rate{Input: *row.PriceIn, Output: *row.PriceOut}
		}
	}
	all, published := rates(s.Registry, name, model), rates(provider.Published(), name, model)
	if own := slices.DeleteFunc(slices.Clone(all), func(r pricing.Rate) bool { return slices.Contains(published, r) }); len(own) > 0 {
		all = own
	}
	if len(all) == 0 || slices.ContainsFunc(all, func(r pricing.Rate) bool { return r != all[0] }) {
		return nil
	}
	return &all[0]
}

// rates returns the rates of the rows for a model.
func rates(r *provider.Registry, name, model string) (all []pricing.Rate) {
	for _, row := range r.Tiers(name) {
		if row.Is(model) && row.PriceIn != nil && row.PriceOut != nil {
			all = append(all, pricing.Rate{Input: *row.PriceIn, Output: *row.PriceOut})
		}
	}
	return all
}

// MissingPrice returns the error about a maximum cost without prices.
func MissingPrice() error {
	return fault.New(fault.Price, errors.New("--max-cost needs the prices of the models, but some prices are unknown"),
		"set the prices in USD per million tokens, for example --price 0.15/0.60")
}
