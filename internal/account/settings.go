package account

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/provider"
)

// ConfigVariable is the environment variable of the default settings file.
const ConfigVariable = "SLUICE_CONFIG"

// Sources are the settings files of --config (default: the file that ConfigVariable names).
type Sources []string

// Settings are the content of the settings files, as it concerns accounts.
type Settings struct {
	Registry  *provider.Registry
	File      config.File       // without a Name if no file was read
	Upstreams []config.Upstream // those in use; nil before OpenUpstreams
	Files     signals.Files     // as they were before they were read
	TierFlag  string            // flag that replaces File.Tier; "": none
	Log       *slog.Logger      // logs warnings and notes about the settings, each text once

	sources Sources
	used    atomic.Bool // limits of the files are used
}

// Open reads the files. The Log of the Settings passes each text to log once.
func (s Sources) Open(log *slog.Logger) (*Settings, error) {
	if _, ok := log.Handler().(once); !ok {
		log = slog.New(once{log.Handler(), new(sync.Map)})
	}
	all := &Settings{Files: make(signals.Files), Log: log, sources: s}
	from := "--config"
	if name := os.Getenv(ConfigVariable); len(s) == 0 && name != "" {
		s, from = []string{name}, "$"+ConfigVariable
	}
	for _, name := range s {
		all.Files.Note(name)
	}
	file, err := config.Load(s...)
	if fault.Is[*config.Error](err) {
		return nil, err
	}
	if err != nil {
		return nil, fault.New(fault.File, fmt.Errorf("%s: %w", from, err), "name a readable file")
	}
	if from != "--config" {
		all.Log.Info(fmt.Sprintf("settings are read from %s, named by %s", file.Name, from))
	}
	all.File, all.Registry = file, file.Registry()
	return all, nil
}

// once is a handler that handles each text once.
type once struct {
	slog.Handler
	handled *sync.Map
}

// Handle handles a record with a new text.
func (o once) Handle(ctx context.Context, r slog.Record) error {
	if _, known := o.handled.LoadOrStore(r.Message, true); known {
		return nil
	}
	return o.Handler.Handle(ctx, r)
}

// reread reads the files again. It returns a line if they differ in more than their limits.
func (s *Settings) reread() (next *Settings, lines []string, err error) {
	if next, err = s.sources.Open(s.Log); err != nil {
		return nil, nil, err
	}
	if next.File.DiffersFrom(s.File) {
		lines = append(lines, next.File.Name+": only its limits are re-read; other changes apply from the next start")
	}
	next.Registry, next.File.Tier = s.Registry, s.File.Tier
	if s.Upstreams != nil {
		next.Upstreams = next.File.Upstreams
	}
	return next, lines, nil
}

// Beside returns a path that a field of the settings names. A relative path starts at the directory of the file with the field; "-" stays.
func (s *Settings) Beside(field, path string) string {
	if path == "-" || filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(filepath.Dir(s.File.NameOf(field)), path)
}

// Price returns the price of a model at p; nil if it is unknown. It warns once of a price without a source. It is safe for concurrent use.
func (a *Accounts) Price(p provider.Provider, model string) *provider.Price {
	return a.price(nil, p, model)
}

// price is Price with the rate of an upstream, over which the rate of the Config takes precedence.
func (a *Accounts) price(rate *pricing.Rate, p provider.Provider, model string) *provider.Price {
	return a.Settings.Price(cmp.Or(a.Config.Rate, rate), p, model)
}

// Price returns the price of a model at p; nil if it is unknown. rate takes precedence, then the row of the tier, the rows of the settings,
// the published rows, and the table of models. It warns of a price without a source.
func (s *Settings) Price(rate *pricing.Rate, p provider.Provider, model string) (price *provider.Price) {
	if rate == nil {
		rate = s.rate(p, model)
	}
	switch m, listed := pricing.Find(p.Name, model); {
	case !listed && rate == nil:
		return nil
	case !listed:
		price = provider.FlatPrice(rate.Input, rate.Output)
	case rate != nil: // the table relates the rates of caches and service tiers to the standard rate
		price = m.Price().At(rate.Input, rate.Output)
	default:
		price = m.Price()
		if m.Doubtful {
			s.Log.Warn(fmt.Sprintf("the price of %s at %s is doubtful: it has no source. Set it with --price IN/OUT or in the settings",
				model, p.Name))
		}
	}
	return price.WithBatch(p.Batches.Price)
}

// rate returns the rate of a model in the row of the tier. Without a tier, it returns the rate on which all rows of the settings agree, or
// else all published rows. It is nil if there is none, or if the rows differ.
func (s *Settings) rate(p provider.Provider, model string) *pricing.Rate {
	if row, err := s.TierOf(p, model); err == nil && row.PriceIn != nil && row.PriceOut != nil {
		return &pricing.Rate{Input: *row.PriceIn, Output: *row.PriceOut}
	}
	all, published := rates(s.Registry, p.Name, model), rates(provider.Published(), p.Name, model)
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
