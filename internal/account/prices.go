package account

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/provider"
)

// Price returns the price of a model at p; nil if it is unknown. It warns once of a price without a source. It is safe for concurrent use.
func (a *Accounts) Price(p provider.Provider, model string) *provider.Price {
	return a.price(nil, p, model)
}

// price is Price with the rate of an upstream, over which the rate of the Config takes precedence.
func (a *Accounts) price(rate *pricing.Rate, p provider.Provider, model string) *provider.Price {
	price, doubt := a.Settings.Price(cmp.Or(a.Config.Rate, rate), p, model)
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
	switch m, listed := pricing.Find(p.Name, model); {
	case !listed && rate == nil:
		return nil, ""
	case !listed:
		price = provider.FlatPrice(rate.Input, rate.Output)
	case rate != nil: // the table relates the rates of caches and service tiers to the standard rate
		price = m.Price().At(rate.Input, rate.Output)
	default:
		price = m.Price()
		if m.Doubtful {
			doubt = fmt.Sprintf("the price of %s at %s is doubtful: it has no source. Set it with --price IN/OUT or in the settings", model, p.Name)
		}
	}
	return price.WithBatch(p.Batches.Price), doubt
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
