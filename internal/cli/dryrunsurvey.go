package cli

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// surveyUpstreams makes the upstreams of the settings ready to be asked who serves what, and at which price. They have no keys:
// nothing is to be sent by them.
func (a *accounts) surveyUpstreams(f *upstreamFlags) error {
	chosen, err := a.chooseUpstreams(f)
	if err != nil || len(chosen) == 0 {
		return err
	}
	cfg := provider.UpstreamsConfig{Registry: a.settings.registry}
	if err := cfg.Prefer.UnmarshalText([]byte(f.prefer)); err != nil {
		return usageError(err, "leave --prefer out to have each call go where it can start soonest")
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
		return usageError(err, "mend the upstream in %s; docs/providers.md shows how such a file looks", a.settings.file.Name)
	}
	a.upstreams = &upstreams{Upstreams: ups}
	return nil
}

// surveyed are the upstreams among which calls of a model choose.
type surveyed struct {
	model string
	ups   []*provider.Upstream
}

// survey returns the upstreams that serve a request; nil where there are none.
func (a *accounts) survey(r batch.Request) *surveyed {
	if a.upstreams == nil {
		return nil
	}
	return &surveyed{r.Model, a.upstreams.Open(r.Model, r.Endpoint)}
}

// name lists them.
func (s *surveyed) name() string {
	names := make([]string, len(s.ups))
	for i, up := range s.ups {
		names[i] = up.Name
	}
	return strings.Join(names, ", ")
}

// prices are the lowest and the highest price among them, in US dollars per million tokens; false if one is not known.
func (s *surveyed) prices() (least, most toldPrices, ok bool) {
	for i, up := range s.ups {
		in, out, known := up.Price(cmp.Or(up.Models[s.model], s.model))
		if !known {
			return least, most, false
		}
		if i == 0 {
			least = toldPrices{in, out}
		}
		least = toldPrices{min(least.in, in), min(least.out, out)}
		most = toldPrices{max(most.in, in), max(most.out, out)}
	}
	return least, most, len(s.ups) > 0
}

// configured returns what the settings say of an upstream.
func (s *settings) configured(name string) config.Upstream {
	i := slices.IndexFunc(s.file.Upstreams, func(up config.Upstream) bool { return up.Name == name })
	return s.file.Upstreams[i]
}

// beginsAt returns what clients of the upstreams begin with, for each account once.
func (f *forecaster) beginsAt(s *surveyed) (all []begun, err error) {
	var known []string
	for _, up := range s.ups {
		label := accountLabel(f.accounts.settings.configured(up.Name))
		if slices.Contains(known, label) {
			continue
		}
		known = append(known, label)
		var c sluice.Config
		if err := f.accounts.shape(&c, up.Provider, label); err != nil {
			return nil, err
		}
		all = append(all, begun{name: up.Name, provider: up.Provider, limits: over(c.Limits, c.Start), account: c.Account})
	}
	return all, nil
}

// among plans calls that go by several accounts, each of which takes as many as it can. No plan and no error: the limits of one
// are not known.
func (f *forecaster) among(all []begun, model string, c *calls, limits func(begun) sluice.Limits) (*plan.Plan, error) {
	var sum *plan.Plan
	perSecond := 0.0
	for _, b := range all {
		p, err := f.plan(f.tier(laneName{b.provider.Name, model}, limits(b)), b.provider, c)
		if p == nil || err != nil {
			return nil, err
		}
		perSecond += 1 / p.Time.Seconds()
		if sum == nil {
			sum = p
			continue
		}
		sum.Throughput += p.Throughput
		sum.Bounds = nil // of several accounts, none binds alone
		sum.TooLarge = min(sum.TooLarge, p.TooLarge)
	}
	if sum == nil {
		return nil, errors.New("no upstream")
	}
	if len(all) > 1 {
		if together := float64(time.Second) / perSecond; together < float64(forever) {
			sum.Time = time.Duration(together)
		}
	}
	return sum, nil
}
