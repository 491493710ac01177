package account

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/provider"
)

// upstreams are those of the settings, and their accounts.
type upstreams struct {
	*provider.Upstreams
	labels     map[string]string            // of accounts, by upstream
	names      map[string]string            // of accounts, by Scheduler
	models     map[string]map[string]bool   // that the settings or the registry name, by name of the account
	schedulers map[string]*sluice.Scheduler // by label
}

// label returns the label of the account of an upstream. An account that the settings do not name has the name of the upstream, with a
// sign that no other name has.
func label(up config.Upstream) string { return cmp.Or(up.Account, "="+up.Name) }

// Upstreams returns the open upstreams; nil if there are none.
func (a *Accounts) Upstreams() *provider.Upstreams {
	if a.upstreams == nil {
		return nil
	}
	return a.upstreams.Upstreams
}

// SetUpstreams replaces the upstreams of the settings, and the flags that name a provider. Call it before OpenUpstreams.
func (a *Accounts) SetUpstreams(all []config.Upstream) {
	file := &a.Settings.File
	*file = config.File{Name: file.Name, Limits: file.Limits, Upstreams: all} // without lines: the upstreams are in none
	a.replaced = true
}

// OpenUpstreams opens the upstreams of the settings, unless there are none or a flag names the provider.
func (a *Accounts) OpenUpstreams() error {
	chosen, err := a.chooseUpstreams()
	if err != nil || len(chosen) == 0 {
		return err
	}
	cfg := provider.UpstreamsConfig{
		Registry: a.Settings.Registry, Excluded: a.Config.Excluded,
		Attempts: a.Config.Scheduler.Attempts, MaxThrottles: a.Settings.MaxThrottles(),
	}
	if err := cfg.Prefer.UnmarshalText([]byte(a.Settings.File.Prefer)); err != nil {
		return err
	}
	ups := &upstreams{
		labels: make(map[string]string), names: make(map[string]string),
		models: make(map[string]map[string]bool), schedulers: make(map[string]*sluice.Scheduler),
	}
	for _, up := range chosen {
		if ups.labels[up.Name] = label(up); !slices.Contains(a.labels, label(up)) {
			a.labels = append(a.labels, label(up))
		}
	}
	for _, up := range chosen {
		made, err := a.openUpstream(up, ups)
		if err != nil {
			return err
		}
		cfg.Upstreams = append(cfg.Upstreams, made)
	}
	if ups.Upstreams, err = provider.NewUpstreams(cfg); err != nil {
		return fault.New(fault.Settings, err, "correct the upstream in %s", a.Settings.File.Name)
	}
	a.upstreams = ups
	return nil
}

// chooseUpstreams returns the upstreams of the settings; none if a flag names a provider or an address.
func (a *Accounts) chooseUpstreams() ([]config.Upstream, error) {
	file := &a.Settings.File
	switch {
	case len(file.Upstreams) == 0 || a.replaced:
	case a.Config.Provider != "" || a.Config.BaseURL != "":
		a.Settings.Note(fmt.Sprintf("the upstreams of %s are ignored: a flag names the provider", file.Name))
		return nil, nil
	case a.keys.Env != "":
		return nil, fault.New(fault.Conflict, errors.New("--key-env does not apply to upstreams"),
			"set key_env of each upstream, or set --provider")
	}
	return file.Upstreams, nil
}

// openUpstream opens an upstream, and its account unless another upstream has opened it.
func (a *Accounts) openUpstream(up config.Upstream, ups *upstreams) (provider.Upstream, error) {
	p, _ := a.Settings.Registry.Lookup(up.Provider) // the file was checked
	made := provider.Upstream{Name: up.Name, Provider: p, BaseURL: up.BaseURL, Account: up.Account, Models: up.Models}
	made.Price = func(model string) *provider.Price {
		if rate, err := pricing.ParseRate(up.Price); err == nil && a.Config.Rate == nil {
			return priceAt(p, model, rate)
		}
		return a.Price(p, model)
	}
	label, key := label(up), ""
	name := strings.TrimPrefix(label, "=")
	var err error
	if a.Config.Purpose == Estimate {
		key = label
	} else if made.Keys, err = a.upstreamKeys(up, p); err != nil {
		return made, err
	}
	if len(made.Keys) > 0 {
		key = made.Keys[0].Value
		a.warnUnencrypted(p, up.BaseURL, key)
	}
	ups.addModels(name, &made, a.Settings.Registry)
	if made.Scheduler = ups.schedulers[label]; made.Scheduler != nil {
		return made, nil
	}
	account := accountName(cmp.Or(up.BaseURL, p.BaseURL), key)
	if other, taken := ups.names[account]; taken {
		return made, fault.New(fault.Settings, fmt.Errorf("%s: %s and %s have the same address and key", a.Settings.File.Name, other, name),
			"set the same account in both upstreams, so that they share its limits")
	}
	ups.names[account] = name
	if made.Scheduler, err = a.scheduler(account, p, label); err != nil {
		return made, err
	}
	ups.schedulers[label] = made.Scheduler
	if a.onlyAccountAt(p, label) { // an admin key does not say which of several accounts has the limits
		a.publish(made.Scheduler, p, up.BaseURL)
	}
	return made, nil
}

// onlyAccountAt reports whether all upstreams at p have the account of that label.
func (a *Accounts) onlyAccountAt(p provider.Provider, account string) bool {
	return !slices.ContainsFunc(a.Settings.File.Upstreams, func(other config.Upstream) bool {
		at, _ := a.Settings.Registry.Lookup(other.Provider)
		return label(other) != account && at.Name == p.Name
	})
}

// addModels adds the models of an upstream that the settings or the registry name.
func (u *upstreams) addModels(account string, up *provider.Upstream, known *provider.Registry) {
	all := u.models[account]
	if all == nil {
		all = make(map[string]bool)
		u.models[account] = all
	}
	for _, id := range up.Models {
		all[id] = true
	}
	if up.Models == nil {
		for _, id := range known.Models(up.Provider.Name) {
			all[id] = true
		}
	}
}

// upstreamKeys returns the keys of an upstream at p.
func (a *Accounts) upstreamKeys(up config.Upstream, p provider.Provider) (all []provider.Key, err error) {
	if up.KeyFile != "" {
		key, err := a.keyFile(up)
		return []provider.Key{key}, err
	}
	for _, name := range up.KeyEnv {
		key, err := a.keys.first(name)
		if err != nil {
			return nil, err
		}
		if key.Value == "" {
			return nil, a.noKey(up, name)
		}
		all = append(all, key)
	}
	if up.KeyEnv != nil || p.Auth.Header == "" {
		return all, nil
	}
	key, err := a.keys.first(p.KeyEnv...)
	switch {
	case err != nil:
		return nil, err
	case key.Value != "":
		return []provider.Key{key}, nil
	case len(p.KeyEnv) > 0 && !p.KeyOptional:
		return nil, a.noKey(up, p.KeyEnv[0])
	}
	return nil, nil
}

// at returns err as an error about a field of an upstream.
func (a *Accounts) at(up config.Upstream, field string, err error) error {
	file := &a.Settings.File
	i := slices.IndexFunc(file.Upstreams, func(other config.Upstream) bool { return other.Name == up.Name })
	return file.At(fmt.Sprintf("upstreams[%d].%s", i, field), err)
}

// noKey is the error for an upstream whose key is missing.
func (a *Accounts) noKey(up config.Upstream, name string) error {
	err := a.at(up, "key_env", fmt.Errorf("no key for upstream %s: %s", up.Name, a.keys.unset(name)))
	if !fault.Is[*config.Error](err) { // flags define the upstream
		return fault.New(fault.Key, err, "export %s=..., name another variable with --key-env, or try --provider sim, which needs no key", name)
	}
	return fault.New(fault.Key, err, "export %s=..., or remove that upstream from the file", name)
}

// Label returns the label of the account of an upstream.
func (a *Accounts) Label(upstream string) string { return a.upstreams.labels[upstream] }

// LaneLabel returns the name of a lane of an account in progress and metrics. With several upstreams, it starts with the account.
func (a *Accounts) LaneLabel(account, lane string) string {
	if lane = a.BoundLane(account, lane); a.upstreams == nil || a.upstreams.names[account] == "" {
		return lane
	}
	return a.upstreams.names[account] + ": " + lane
}

// OtherModels is the lane of all models that no settings name, in the metrics of a gateway.
const OtherModels = "other"

// BoundLane returns the model of a lane. If clients name the models, unknown ones are OtherModels, so that their number is bounded.
func (a *Accounts) BoundLane(account, lane string) string {
	if a.Config.Purpose != Serve || a.upstreams == nil || lane == "" || a.upstreams.models[a.upstreams.names[account]][lane] {
		return lane
	}
	return OtherModels
}
