package account

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/provider"
)

// label returns the label of the account of an upstream. An account that the settings do not name has the name of the upstream, with a
// sign that no other name has. The account of flags is one of an upstream without a name, and its label is "".
func label(up config.Upstream) string {
	if up.Account == "" && up.Name != "" {
		return "=" + up.Name
	}
	return up.Account
}

// Upstreams returns the open upstreams; nil if there are none.
func (a *Accounts) Upstreams() *provider.Upstreams { return a.upstreams }

// Listed reports whether the settings have upstreams, and no flag names the provider in their place.
func (a *Accounts) Listed() bool {
	return len(a.Settings.File.Upstreams) > 0 && a.Config.Provider == "" && a.Config.BaseURL == ""
}

// implied returns the provider of the Config as an upstream, or else each provider with a key in the environment.
func (a *Accounts) implied() (all []config.Upstream, err error) {
	const compatible = "openai-compatible"
	isSet := func(name string) bool { return os.Getenv(name) != "" }
	if c := &a.Config; c.Provider != "" || c.BaseURL != "" {
		all = []config.Upstream{{Name: cmp.Or(c.Provider, compatible), Provider: cmp.Or(a.Provider.Name, compatible), BaseURL: c.BaseURL}}
		if c.Keys.Env != "" {
			all[0].KeyEnv = config.Names{c.Keys.Env}
		}
		if c.Model != "" {
			all[0].Models = config.Models{c.Model: c.Model}
		}
	} else {
		for _, p := range a.Settings.Registry.All() {
			if p.BaseURL != "" && p.Name != "sim" && slices.ContainsFunc(p.KeyEnv, isSet) {
				all = append(all, config.Upstream{Name: p.Name, Provider: p.Name})
			}
		}
	}
	if len(all) == 0 {
		return nil, fault.New(fault.Key, errors.New("no upstream is configured"),
			"export a provider's key, such as OPENAI_API_KEY=..., set --config to a file with upstreams, or try --provider sim, which needs no key")
	}
	return all, nil
}

// OpenUpstreams opens the upstreams of the settings. If there are none or a flag names the provider, a gateway gets upstreams from flags
// and the environment, and other programs get none.
func (a *Accounts) OpenUpstreams() (err error) {
	c, s, file := &a.Config, a.Settings, &a.Settings.File
	switch serves := c.Purpose == Serve || c.Purpose == Check; {
	case serves && !a.Listed():
		if s.Upstreams, err = a.implied(); err != nil {
			return err
		}
	case serves && c.Model != "":
		return fault.New(fault.Conflict, errors.New("--model does not apply to upstreams"),
			"list the models of each upstream in its field models, or set --provider")
	case len(file.Upstreams) == 0:
		return nil
	case !a.Listed():
		s.Log.Info(fmt.Sprintf("the upstreams of %s are ignored: a flag names the provider", file.Name))
		return nil
	case c.Keys.Env != "":
		return fault.New(fault.Conflict, errors.New("--key-env does not apply to upstreams"),
			"set key_env of each upstream, or set --provider")
	default:
		s.Upstreams = file.Upstreams
	}
	cfg := provider.UpstreamsConfig{
		Registry: s.Registry, Excluded: c.Excluded, Attempts: c.Scheduler.Attempts, MaxThrottles: a.MaxThrottles(), Prefer: file.Prefer,
	}
	for _, up := range s.Upstreams {
		made, err := a.openUpstream(up)
		if err != nil {
			return err
		}
		cfg.Upstreams = append(cfg.Upstreams, made)
	}
	if a.upstreams, err = provider.NewUpstreams(cfg); err != nil {
		return fault.New(fault.Settings, err, "correct the upstream in %s", file.Name)
	}
	return nil
}

// openUpstream opens an upstream, and its account unless another upstream has opened it.
func (a *Accounts) openUpstream(up config.Upstream) (made provider.Upstream, err error) {
	p, _ := a.Settings.Registry.Lookup(up.Provider) // the file was checked
	made = provider.Upstream{Name: up.Name, Provider: p, BaseURL: up.BaseURL, Account: up.Account, Models: up.Models}
	var rate *pricing.Rate
	if own, err := pricing.ParseRate(up.Price); err == nil {
		rate = &own
	}
	made.Price = func(model string) *provider.Price { return a.price(rate, p, model) }
	key := label(up)
	if a.Config.Purpose != Estimate {
		if made.Keys, err = a.keysOf(up, p); err != nil {
			return made, err
		}
		key = append(made.Keys, provider.Key{})[0].Value
	}
	made.Scheduler, err = a.open(up, p, key)
	return made, err
}

// modelsOf returns the models of an account of upstreams, as far as the settings or the registry name them.
func (s *Settings) modelsOf(account string) map[string]bool {
	all := make(map[string]bool)
	for _, up := range s.Upstreams {
		if label(up) != account {
			continue
		}
		for _, id := range up.Models {
			all[id] = true
		}
		if up.Models == nil {
			p, _ := s.Registry.Lookup(up.Provider)
			for _, id := range s.Registry.Models(p.Name) {
				all[id] = true
			}
		}
	}
	return all
}

// At returns err as an error about a field of an upstream, in the settings file if that lists the upstream.
func (a *Accounts) At(upstream, field string, err error) error {
	if !a.Listed() {
		return err
	}
	i := slices.IndexFunc(a.Settings.Upstreams, func(up config.Upstream) bool { return up.Name == upstream })
	return a.Settings.File.At(fmt.Sprintf("upstreams[%d].%s", i, field), err)
}

// Label returns the label of the account of an open upstream; "" if there is none of that name.
func (a *Accounts) Label(upstream string) string {
	for _, up := range a.Settings.Upstreams {
		if up.Name == upstream {
			return label(up)
		}
	}
	return ""
}

// LaneLabel returns the name of a lane of an account in progress and metrics. With upstreams, it starts with the account.
func (a *Accounts) LaneLabel(account, lane string) string {
	if m := a.member(account); m.label != "" {
		return m.title() + ": " + a.BoundLane(account, lane)
	}
	return lane
}

// otherModels is the lane of all models that no settings name, in the metrics of a gateway.
const otherModels = "other"

// BoundLane returns the model of a lane. If clients name the models, unknown ones are one lane, so that the number of lanes is bounded.
func (a *Accounts) BoundLane(account, lane string) string {
	m := a.member(account)
	if a.Config.Purpose != Serve || m.label == "" || lane == "" || m.models[lane] {
		return lane
	}
	return otherModels
}
