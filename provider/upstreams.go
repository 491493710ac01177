package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/internal/route"
)

// UpstreamsConfig configures an [Upstreams]. The field Upstreams is required.
type UpstreamsConfig struct {
	Upstreams []Upstream
	Registry  *Registry // registry that recognises models (default: the built-in registry)

	// Attempts and MaxThrottles limit the attempts of a call over all upstreams, as in sluice.Config, if the call states no limits. The
	// default of a single upstream is the Config of its Scheduler.
	Attempts, MaxThrottles int

	Prefer Preference

	// Excluded, if not nil, is called when an upstream or a key is excluded, and when the exclusion ends.
	Excluded func(Exclusion)
}

// Upstreams chooses an upstream for each call, among the upstreams that serve the requested model. Upstreams is safe for concurrent use.
// Most programs need only [Upstreams.Do].
type Upstreams struct {
	all      []*Upstream
	registry *Registry
	router   *route.Router // numbers the upstreams as all does

	lanes lanes

	mu     sync.Mutex
	served map[wanted][]route.Way // without the lanes of models that are not known
	known  map[string]bool        // models that Know was told of
}

// wanted is what a call asks an upstream for.
type wanted struct {
	model    string
	endpoint Endpoint
}

// NewUpstreams returns an Upstreams. If a field of cfg or of an upstream is invalid, the error names the field.
func NewUpstreams(cfg UpstreamsConfig) (*Upstreams, error) {
	if n := len(cfg.Upstreams); n == 0 || n > route.MaxUpstreams {
		return nil, fmt.Errorf("provider: UpstreamsConfig has %d upstreams: it must have 1 to %d", n, route.MaxUpstreams)
	}
	if cfg.Attempts < 0 {
		return nil, fmt.Errorf("provider: UpstreamsConfig.Attempts is %d: it must not be negative", cfg.Attempts)
	}
	u := &Upstreams{registry: cfg.Registry, served: make(map[wanted][]route.Way), known: make(map[string]bool),
		lanes: lanes{used: make(map[claim]time.Time), count: make(map[string]int)}}
	if u.registry == nil {
		u.registry = Published()
	}
	among := route.Config{Attempts: cfg.Attempts, MaxThrottles: cfg.MaxThrottles, Cheapest: cfg.Prefer == PreferCost, Authenticates: authenticates}
	if cfg.Excluded != nil {
		among.Excluded = func(l route.Exclusion) { cfg.Excluded(u.leftOut(l)) }
	}
	for _, up := range cfg.Upstreams {
		if err := up.check(); err != nil {
			return nil, fmt.Errorf("provider: upstream %q: %w", up.Name, err)
		}
		for _, other := range u.all {
			if other.Name == up.Name {
				return nil, fmt.Errorf("provider: two upstreams have the name %q", up.Name)
			}
			if up.Account != "" && other.Account == up.Account && other.Scheduler != up.Scheduler {
				return nil, fmt.Errorf("provider: upstream %q: another upstream of account %q has another Scheduler", up.Name, up.Account)
			}
		}
		u.all = append(u.all, &up)
		among.Upstreams = append(among.Upstreams, route.Upstream{Account: up.Account, Scheduler: up.Scheduler, Keys: len(up.Keys)})
	}
	u.router = route.New(among)
	return u, nil
}

// authenticates reports whether an error has a code of authentication. Errors of other origin are taken at their word.
func authenticates(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return !ok || e.basis == byCode
}

// leftOut names the upstream and the key.
func (u *Upstreams) leftOut(l route.Exclusion) Exclusion {
	up := u.all[l.Upstream]
	out := Exclusion{Upstream: up.Name, Whole: l.Whole, Kind: l.Kind, Err: l.Err}
	if l.Kind == sluice.Auth && len(up.Keys) > 0 {
		out.Key = up.Keys[l.Key].From
	}
	return out
}

// Serves reports whether any upstream serves a model at an endpoint, including excluded upstreams.
func (u *Upstreams) Serves(model string, e Endpoint) bool { return len(u.ways(model, e)) > 0 }

// Open returns the upstreams that serve a model at an endpoint and are not excluded, in the order of UpstreamsConfig.
func (u *Upstreams) Open(model string, e Endpoint) (all []*Upstream) {
	reports := u.router.Report()
	for _, w := range u.ways(model, e) {
		if reports[w.Upstream].Exclusion == nil {
			all = append(all, u.all[w.Upstream])
		}
	}
	return all
}

// Delay returns the shortest expected wait of a new call over all upstreams. Delay returns false if no upstream can serve the call, for
// example because all upstreams are excluded. c.Lane is the requested model.
func (u *Upstreams) Delay(c sluice.Call, e Endpoint) (time.Duration, bool) {
	wait, _, ok := u.router.Soonest(c, u.waysOf(&c, e), (*sluice.Scheduler).Delay)
	return wait, ok
}

// Earliest returns the minimum wait of a new call over all upstreams with empty queues. If Delay returns false, Earliest returns false.
func (u *Upstreams) Earliest(c sluice.Call, e Endpoint) (time.Duration, bool) {
	wait, _, ok := u.router.Soonest(c, u.waysOf(&c, e), (*sluice.Scheduler).Earliest)
	return wait, ok
}

// Pausing returns the reason why the upstream with the shortest wait for a call is paused: ServerError, Overloaded, RateLimit or
// UsageWindow. Pausing returns OK if this upstream is not paused, or if all upstreams are excluded.
func (u *Upstreams) Pausing(c sluice.Call, e Endpoint) sluice.Kind {
	_, at, ok := u.router.Soonest(c, u.waysOf(&c, e), (*sluice.Scheduler).Earliest)
	if !ok {
		return sluice.OK
	}
	snap := u.all[at.Upstream].Scheduler.Snapshot()
	for i := range snap.Lanes {
		if l := &snap.Lanes[i]; l.Lane == at.Lane && l.Until.After(snap.At) {
			return l.Pause
		}
	}
	return sluice.OK
}

// First returns the provider of the first upstream that serves a model, and the model ID at this upstream.
func (u *Upstreams) First(model string) (p Provider, id string, ok bool) {
	for _, up := range u.all {
		if id, ok := up.model(model, u.registry); ok {
			return up.Provider, id, true
		}
	}
	return Provider{}, "", false
}

// Known returns the complete model names that the registry lists for a provider.
func (u *Upstreams) Known(provider string) []string { return u.registry.Models(provider) }

// Price returns the highest prices of the upstreams that serve a model at an endpoint, or nil if one of the prices is unknown.
func (u *Upstreams) Price(model string, e Endpoint) (highest *Price) {
	for i, w := range u.ways(model, e) {
		switch {
		case w.Price == nil:
			return nil
		case i == 0:
			highest = w.Price
		case w.Price != highest:
			highest = highest.Highest(w.Price)
		}
	}
	return highest
}

// Unpriced returns the names of the upstreams that serve a model at an endpoint for an unknown price.
func (u *Upstreams) Unpriced(model string, e Endpoint) (names []string) {
	for _, w := range u.ways(model, e) {
		if w.Price == nil {
			names = append(names, u.all[w.Upstream].Name)
		}
	}
	return names
}

// Identity returns the provider, base URL and model ID, as one text, of each upstream that serves a model at an endpoint. The texts are
// sorted, so that the order of the upstreams does not matter.
func (u *Upstreams) Identity(model string, e Endpoint) (who []string) {
	for _, w := range u.ways(model, e) {
		up := u.all[w.Upstream]
		who = append(who, fmt.Sprintf("%q %q %q", up.Provider.Name, cmp.Or(up.BaseURL, up.Provider.BaseURL), w.Model))
	}
	slices.Sort(who)
	return slices.Compact(who)
}

// All returns the upstreams in the order of UpstreamsConfig. The caller must not change the upstreams.
func (u *Upstreams) All() []*Upstream { return slices.Clone(u.all) }

// Report returns the counts and states of all upstreams, in the order of UpstreamsConfig.
func (u *Upstreams) Report() []UpstreamReport {
	all := make([]UpstreamReport, len(u.all))
	for i, r := range u.router.Report() {
		all[i] = UpstreamReport{Name: u.all[i].Name, Sent: r.Sent, Throttles: r.Throttles}
		if r.Exclusion != nil {
			all[i].Exclusion = new(u.leftOut(*r.Exclusion))
		}
	}
	return all
}

// AddModels gives each model its own lane of requests. Without AddModels, only models in Upstream.Models, in the registry or in the price
// table have a lane. For other models, each tenant has at most 200 lanes, and lanes expire after a day without requests.
func (u *Upstreams) AddModels(models ...string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, m := range models {
		u.known[m] = true
	}
	clear(u.served)
}

// knows reports whether a model of that id at an upstream is more than the word of whoever asks for it.
func (u *Upstreams) knows(up *Upstream, id string) bool {
	u.mu.Lock()
	told := u.known[id]
	u.mu.Unlock()
	return told || up.Models != nil || slices.Contains(u.Known(up.Provider.Name), id) || pricing.Listed(up.Provider.Name, id)
}

// waysOf returns the upstreams that serve a call, in order, with its lanes there.
func (u *Upstreams) waysOf(c *sluice.Call, e Endpoint) []route.Way {
	ways := u.ways(c.Lane, e)
	if slices.ContainsFunc(ways, func(w route.Way) bool { return w.Lane == "" }) {
		ways = slices.Clone(ways)
		for i := range ways {
			if w := &ways[i]; w.Lane == "" {
				w.Lane = u.lanes.of(c.Tenant, w.Model)
			}
		}
	}
	return ways
}

const longestModel = 512 // a name of more bytes is no model's

// ways returns the upstreams that serve a model at an endpoint, in order. Where the model is not known, the way has no lane.
func (u *Upstreams) ways(model string, e Endpoint) []route.Way {
	if len(model) > longestModel {
		return nil
	}
	want := wanted{model, e}
	u.mu.Lock()
	found, known := u.served[want]
	u.mu.Unlock()
	if known {
		return found
	}
	for i, up := range u.all {
		id, ok := up.model(model, u.registry)
		if !ok || !up.Provider.Has(e) {
			continue
		}
		w := route.Way{Upstream: i, Model: id}
		if u.knows(up, id) {
			w.Lane = id
		}
		if up.Price != nil {
			w.Price = up.Price(id)
		}
		found = append(found, w)
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	const most = 1000 // models come from whoever asks
	if len(u.served) == most {
		clear(u.served)
	}
	u.served[want] = found
	return found
}

// Do makes a call with the Scheduler of an upstream, like sluice.Scheduler.Do. c.Lane is the requested model, and the upstream's Scheduler
// uses the upstream's model ID as lane. fn makes one attempt and gets ctx as its context. A call waits in the queue of one upstream at a
// time. A call moves if another upstream can start it much sooner, or if its upstream is excluded.
//
// After a network error, a server error or a timeout, Do retries the call at another upstream that can start it within 30 s. Do excludes a
// rejected key, and all upstreams of an account without remaining quota. After an exclusion, the call moves to another upstream, and the
// rejection does not count as an attempt. If all upstreams are excluded, Do fails with a *sluice.CallError, which unwraps to a
// *[NoUpstreamError].
func (u *Upstreams) Do(ctx context.Context, c sluice.Call, e Endpoint, fn func(context.Context, *sluice.Permit, Destination) sluice.Outcome) (sluice.Tally, error) {
	return u.do(ctx, c, u.waysOf(&c, e), e, nil, fn)
}

// do is Do for these ways. content returns what the call has in common with others of the same content; nil is that it differs from all.
func (u *Upstreams) do(ctx context.Context, c sluice.Call, ways []route.Way, e Endpoint, content func() string, fn func(context.Context, *sluice.Permit, Destination) sluice.Outcome) (sluice.Tally, error) {
	model := func() string { return Redact(clip(c.Lane, 200)) }
	if len(ways) == 0 {
		err := fmt.Errorf("no upstream serves model %q at endpoint %s", model(), e)
		return sluice.Tally{}, &sluice.CallError{Outcome: sluice.Outcome{Kind: sluice.BadRequest, Err: err}}
	}
	tally, err := u.router.Do(ctx, c, ways, content, func(ctx context.Context, p *sluice.Permit, w route.Way, key int) sluice.Outcome {
		up := u.all[w.Upstream]
		return fn(ctx, p, Destination{Upstream: up, Model: w.Model, Key: up.value(key), Price: w.Price})
	})
	if left, ok := errors.AsType[*route.NoUpstreamError](err); ok {
		none := &NoUpstreamError{Model: model()}
		for _, l := range left.Left {
			none.Left = append(none.Left, u.leftOut(l))
		}
		failed, _ := errors.AsType[*sluice.CallError](err)
		failed.Err = none
	}
	return tally, err
}
