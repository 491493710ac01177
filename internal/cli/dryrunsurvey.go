package cli

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/provider"
)

// surveyUpstreams makes the upstreams of the settings ready to be asked who serves what, and at which price. They have no keys:
// nothing is to be sent by them.
func (a *accounts) surveyUpstreams() error {
	chosen, err := a.chooseUpstreams()
	if err != nil || len(chosen) == 0 {
		return err
	}
	cfg := provider.UpstreamsConfig{Registry: a.settings.registry}
	if err := cfg.Prefer.UnmarshalText([]byte(a.settings.file.Prefer)); err != nil {
		return err
	}
	idle := make(map[string]*sluice.Scheduler) // by account
	for _, up := range chosen {
		made, label := a.described(up), accountLabel(up)
		if idle[label] == nil {
			if idle[label], err = sluice.New(sluice.Config{}); err != nil {
				return err
			}
			a.schedulers, a.names = append(a.schedulers, idle[label]), append(a.names, label)
		}
		made.Scheduler = idle[label]
		cfg.Upstreams = append(cfg.Upstreams, made)
	}
	a.shares = len(idle)
	ups, err := provider.NewUpstreams(cfg)
	if err != nil {
		return fault.New(fault.Settings, err, "correct the upstream in %s", a.settings.file.Name)
	}
	a.upstreams = &upstreams{Upstreams: ups}
	return nil
}

// configured returns what the settings say of an upstream.
func (s *settings) configured(name string) config.Upstream {
	i := slices.IndexFunc(s.file.Upstreams, func(up config.Upstream) bool { return up.Name == name })
	return s.file.Upstreams[i]
}

// targets are the accounts to which requests go, with the limits that clients start with. It is safe for concurrent use.
type targets struct {
	*accounts

	mu    sync.Mutex
	known map[string]begun // by provider
}

// begun is what a client at a provider starts with.
type begun struct {
	provider provider.Provider
	config   sluice.Config
	err      error
}

// Name names the provider of a request, or the upstreams that serve it.
func (f *targets) Name(r batch.Request) string {
	if f.upstreams == nil {
		return r.Provider
	}
	var names []string
	for _, up := range f.upstreams.Open(r.Model, r.Endpoint) {
		names = append(names, up.Name)
	}
	return strings.Join(names, ", ")
}

// Places returns the accounts for a request.
func (f *targets) Places(r batch.Request) (all []forecast.Place, err error) {
	if f.upstreams == nil {
		p, err := f.at(r.Provider, r.Model)
		p.Prices = []*provider.Price{f.Price(p.Provider, r.Model)}
		return []forecast.Place{p}, err
	}
	known := make(map[string]int) // by account
	for _, up := range f.upstreams.Open(r.Model, r.Endpoint) {
		label := accountLabel(f.settings.configured(up.Name))
		i, ok := known[label]
		if !ok {
			var c sluice.Config
			if err := f.shape(&c, up.Provider, label); err != nil {
				return nil, err
			}
			i, known[label] = len(all), len(all)
			all = append(all, f.with(up.Name, up.Provider, r.Model, c))
		}
		all[i].Prices = append(all[i].Prices, up.Price(cmp.Or(up.Models[r.Model], r.Model)))
	}
	return all, nil
}

// at returns the account at the provider of that name, for a model of it.
func (f *targets) at(name, model string) (forecast.Place, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.known[name]
	if !ok {
		if b.provider = f.provider; b.provider.Name != name {
			b.provider, _ = f.settings.registry.Lookup(name)
		}
		if b.err = f.flags.checkAddress(b.provider); b.err == nil {
			b.err = f.settings.Apply(&b.config, b.provider, f.flags.model, f.limits)
			f.room.bound(&b.config)
		}
		f.known[name] = b
	}
	return f.with(name, b.provider, model, b.config), b.err
}

// with returns an account with the limits of a client, and what the row of --tier says of a model and of all.
func (f *targets) with(name string, p provider.Provider, model string, c sluice.Config) forecast.Place {
	tier := func(model string, limits sluice.Limits) provider.Tier {
		t := provider.Tier{Provider: p.Name}
		if row, err := f.settings.registry.Find(p.Name, f.settings.tier, model); err == nil && f.settings.tier != "" {
			t = row
		}
		t.Limits = limits
		return t
	}
	return forecast.Place{Name: name, Provider: p, Lane: tier(model, over(c.Limits, c.Start)), All: tier("", c.Account)}
}

// place returns the account at the provider of a model. A limit that the run has learned stands for an unknown one.
func (f *targets) place(model string) (forecast.Place, error) {
	p, err := f.of(model)
	if err != nil {
		return forecast.Place{}, err
	}
	at, err := f.at(p.Name, model)
	if err != nil {
		return forecast.Place{}, err
	}
	for _, lane := range f.Snapshot().Lanes {
		for d, limit := range at.Lane.Limits.All() {
			if learned := runinfo.Bucket(lane, d).Limit; lane.Lane == model && *limit == 0 && learned != provider.Endless {
				*limit = int(learned)
			}
		}
	}
	return at, nil
}
