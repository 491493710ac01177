package cli

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// upstreams are those of the settings, and what came of them.
type upstreams struct {
	*provider.Upstreams
	labels map[string]string          // of their accounts, by the Scheduler's name
	models map[string]map[string]bool // that the settings name, by those labels

	mu   sync.Mutex
	done map[string]*upstreamSummary
}

// upstreamSummary is what an upstream did in a run.
type upstreamSummary struct {
	Name      string   `json:"name"`                 // Upstream.
	Items     int      `json:"items"`                // Items recorded by this run.
	Failed    int      `json:"failed"`               // Failed items.
	Attempts  int      `json:"attempts"`             // Attempts, except rate-limited attempts.
	Throttles int      `json:"throttles"`            // Rate-limited requests.
	Cost      *float64 `json:"cost_usd"`             // Cost, if known.
	LeftOut   string   `json:"left_out,omitempty"`   // Reason for excluding the upstream.
	LastError string   `json:"last_error,omitempty"` // Last error, if no request succeeded.
}

// openUpstreams makes ready the upstreams of the settings, if there are any and no flag says where calls go. What is left out
// later is told to say.
func (a *accounts) openUpstreams(attempts int, say func(provider.Exclusion)) error {
	chosen, err := a.chooseUpstreams()
	if err != nil || len(chosen) == 0 {
		return err
	}
	cfg := provider.UpstreamsConfig{Registry: a.settings.registry, Attempts: attempts, MaxThrottles: a.settings.maxThrottles(), Excluded: say}
	if err := cfg.Prefer.UnmarshalText([]byte(a.settings.file.Prefer)); err != nil {
		return err
	}
	ups := &upstreams{labels: make(map[string]string), models: make(map[string]map[string]bool), done: make(map[string]*upstreamSummary)}
	labels := make(map[string]bool)
	for _, up := range chosen {
		labels[accountLabel(up)] = true
	}
	a.shares = len(labels)
	schedulers := make(map[string]*sluice.Scheduler) // by account
	for _, up := range chosen {
		made, err := a.upstream(up)
		if err != nil {
			return err
		}
		if len(made.Keys) > 0 {
			a.warnOfClear(made.Provider, made.BaseURL, made.Keys[0].Value)
		}
		label := accountLabel(up)
		if schedulers[label] == nil {
			if schedulers[label], err = a.upstreamScheduler(label, &made, ups); err != nil {
				return err
			}
			if !slices.ContainsFunc(chosen, func(other config.Upstream) bool { // else an admin key does not tell whose limits they are
				return accountLabel(other) != label && a.described(other).Provider.Name == made.Provider.Name
			}) {
				a.publish(schedulers[label], made.Provider, made.BaseURL)
			}
		}
		made.Scheduler = schedulers[label]
		ups.named(strings.TrimPrefix(label, "="), &made, a.settings.registry)
		cfg.Upstreams = append(cfg.Upstreams, made)
	}
	if ups.Upstreams, err = provider.NewUpstreams(cfg); err != nil {
		return fault.New(fault.Settings, err, "correct the upstream in %s", a.settings.file.Name)
	}
	a.upstreams = ups
	return nil
}

// named notes the models of an upstream that the settings or the registry name.
func (u *upstreams) named(label string, up *provider.Upstream, known *provider.Registry) {
	all := u.models[label]
	if all == nil {
		all = make(map[string]bool)
		u.models[label] = all
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

// accountLabel names the account of an upstream: its own has its name, which is nobody's account by the sign before it.
func accountLabel(up config.Upstream) string { return cmp.Or(up.Account, "="+up.Name) }

// chooseUpstreams returns the upstreams of the settings: none if a flag names a provider or an address.
func (a *accounts) chooseUpstreams() ([]config.Upstream, error) {
	s, all := a.settings, a.settings.file.Upstreams
	switch {
	case len(all) == 0:
		return nil, nil
	case a.flags.provider != "" || a.flags.baseURL != "":
		s.note(fmt.Sprintf("the upstreams of %s are ignored: a flag names the provider", s.file.Name))
		return nil, nil
	case a.flags.keyEnv != "":
		return nil, fault.New(fault.Conflict, errors.New("--key-env does not apply to upstreams"), "set key_env of each upstream, or set --provider")
	}
	return all, nil
}

// described is what the settings say of an upstream, but for its keys and its Scheduler.
func (a *accounts) described(up config.Upstream) provider.Upstream {
	p, _ := a.settings.registry.Lookup(up.Provider) // the file was checked
	made := provider.Upstream{Name: up.Name, Provider: p, BaseURL: up.BaseURL, Account: up.Account, Models: up.Models}
	made.Price = func(model string) *provider.Price {
		if rate, err := pricing.ParseRate(up.Price); err == nil && a.prices.told == nil {
			return priceAt(p, model, rate)
		}
		return a.Price(p, model)
	}
	return made
}

// upstream makes what the settings say of one ready, but for its Scheduler.
func (a *accounts) upstream(up config.Upstream) (provider.Upstream, error) {
	made := a.described(up)
	p := made.Provider
	if up.KeyFile != "" {
		key, err := a.keyFile(up)
		made.Keys = []provider.Key{key}
		return made, err
	}
	for _, name := range up.KeyEnv {
		key, err := a.firstKey([]string{name})
		if err != nil {
			return made, err
		}
		if key.Value == "" {
			return made, a.noKey(up, name)
		}
		made.Keys = append(made.Keys, key)
	}
	if up.KeyEnv != nil || p.Auth.Header == "" {
		return made, nil
	}
	key, err := a.firstKey(p.KeyEnv)
	switch {
	case err != nil:
		return made, err
	case key.Value != "":
		made.Keys = []provider.Key{key}
	case len(p.KeyEnv) > 0 && !p.KeyOptional:
		return made, a.noKey(up, p.KeyEnv[0])
	}
	return made, nil
}

// at returns err as one about a field of an upstream.
func (a *accounts) at(up config.Upstream, field string, err error) error {
	file := &a.settings.file
	i := slices.IndexFunc(file.Upstreams, func(other config.Upstream) bool { return other.Name == up.Name })
	return file.At(fmt.Sprintf("upstreams[%d].%s", i, field), err)
}

func (a *accounts) noKey(up config.Upstream, name string) error {
	err := a.at(up, "key_env", fmt.Errorf("no key for upstream %s: %s", up.Name, a.unset(name)))
	if _, filed := errors.AsType[*config.Error](err); !filed { // it is made of flags
		return fault.New(fault.Key, err, "export %s=..., name another variable with --key-env, or try --provider sim, which needs no key", name)
	}
	return fault.New(fault.Key, err, "export %s=..., or remove that upstream from the file", name)
}

// upstreamScheduler makes the Scheduler of an account, whose first upstream is made.
func (a *accounts) upstreamScheduler(label string, first *provider.Upstream, ups *upstreams) (*sluice.Scheduler, error) {
	a.tuning.begin()
	defer a.tuning.end()
	c := a.template
	if err := a.shape(&c, first.Provider, label); err != nil {
		return nil, err
	}
	key := ""
	if len(first.Keys) > 0 {
		key = first.Keys[0].Value
	}
	c.Name = accountName(cmp.Or(first.BaseURL, first.Provider.BaseURL), key)
	name := strings.TrimPrefix(label, "=")
	if other, taken := ups.labels[c.Name]; taken {
		return nil, fault.New(fault.Settings, fmt.Errorf("%s: %s and %s have the same address and key", a.settings.file.Name, other, name),
			"set the same account in both upstreams, so that they share its limits")
	}
	ups.labels[c.Name] = name
	return a.schedulerOf(c, first.Provider, label)
}

// ofAccount returns the limits of an account of upstreams; nil if it has none of its own.
func (s *settings) ofAccount(label string) (limits *config.Limits) {
	for _, up := range s.file.Upstreams {
		if accountLabel(up) == label && up.Limits != nil {
			limits = up.Limits
		}
	}
	return limits
}

// observe counts a result.
func (u *upstreams) observe(res *work.Result) {
	if u == nil || res.Upstream == "" {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	sum := u.done[res.Upstream]
	if sum == nil {
		sum = &upstreamSummary{}
		u.done[res.Upstream] = sum
	}
	sum.Items++
	if res.Kind != sluice.OK {
		sum.Failed++
	}
	if res.HasCost && !res.Cached { // that these cost nothing does not make the price of others known
		if sum.Cost == nil {
			sum.Cost = new(float64)
		}
		*sum.Cost = prose.RoundDollars(*sum.Cost + res.Cost)
	}
}

// summary is what the upstreams did, in order; nil without any.
func (u *upstreams) summary() []upstreamSummary {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []upstreamSummary
	for _, rep := range u.Report() {
		sum := upstreamSummary{}
		if done := u.done[rep.Name]; done != nil {
			sum = *done
		}
		sum.Name, sum.Attempts, sum.Throttles = rep.Name, rep.Sent-rep.Throttles, rep.Throttles
		if rep.Exclusion != nil {
			sum.LeftOut = rep.Exclusion.String()
		}
		all = append(all, sum)
	}
	return all
}

// blame says of upstreams that answered nothing what their last call met; last is by lane.
func blame(all []upstreamSummary, last map[string]string) []upstreamSummary {
	for i := range all {
		up := &all[i]
		for _, lane := range slices.Sorted(maps.Keys(last)) { // of several models the same one is quoted each time
			if up.Items == 0 && up.LeftOut == "" && strings.HasPrefix(lane, up.Name+": ") {
				up.LastError = last[lane]
			}
		}
	}
	return all
}

// String is what the upstream did, for people.
func (s upstreamSummary) String() string {
	text := fmt.Sprintf("%s: %s items", s.Name, prose.Group(s.Items))
	if s.Throttles > 0 {
		text += fmt.Sprintf(", throttled %s", prose.Times(s.Throttles))
	}
	if s.Cost != nil {
		text += ", " + prose.Dollars(*s.Cost)
	}
	switch {
	case s.LeftOut != "":
		text += ", excluded: " + s.LeftOut
	case s.LastError != "":
		text += ": " + s.LastError
	}
	return text
}

// label names a lane of an account: by its upstream, where there are several.
func (u *upstreams) label(account, lane string) string {
	if u == nil || u.labels[account] == "" {
		return lane
	}
	return u.labels[account] + ": " + lane
}
