package provider

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
)

// Patience is how long a call may have to wait for the cheapest upstream, or for another one after an attempt failed. It is
// shorter than the minute for which an upstream that keeps failing is left alone.
const Patience = 30 * time.Second

// UpstreamsConfig shapes an Upstreams. Upstreams are what it needs.
type UpstreamsConfig struct {
	Upstreams []Upstream
	Registry  *Registry // by which models are recognised. Nil: Published

	Attempts     int // of a call, over all upstreams. Default 6
	MaxThrottles int // how often a call may be throttled, over all upstreams. Default 20; negative is never
	Prefer       Preference

	// LeftOut is told, once each, of what gets no calls any more. Nil is nobody.
	LeftOut func(LeftOut)
}

// Upstreams chooses, for each call, among several ways to its model. It is safe for concurrent use. Most callers want Do.
//
// A call waits in the queue of one upstream's Scheduler. It is moved to another where it would start much sooner there: when
// a lane pauses, stands still, or its upstream is left out. So nothing waits for what has died while others are there.
type Upstreams struct {
	cfg UpstreamsConfig
	all []*upstream

	mu      sync.Mutex
	served  map[wanted][]way
	lanes   map[string]bool // of models that nobody but who asks for them knows
	first   *routed         // of the calls that wait, in the order in which they began to
	last    *routed
	ticking bool // a timer is set to look at them
	looked  time.Time
}

// wanted is what a call asks an upstream for.
type wanted struct {
	model    string
	endpoint Endpoint
}

// way is an upstream that serves a model, under that id.
type way struct {
	up    *upstream
	model string
	lane  string // of its Scheduler: the model, or a part of its own for calls of another's account

	in, out float64 // price
	priced  bool
}

// NewUpstreams returns an Upstreams, or an error that names what is wrong with cfg.
func NewUpstreams(cfg UpstreamsConfig) (*Upstreams, error) {
	if n := len(cfg.Upstreams); n == 0 || n > mostUpstreams {
		return nil, fmt.Errorf("provider: %d upstreams: want 1 to %d", n, mostUpstreams)
	}
	if cfg.Attempts < 0 {
		return nil, fmt.Errorf("provider: Attempts is %d: it must be at least 1", cfg.Attempts)
	}
	if cfg.Registry == nil {
		cfg.Registry = Published()
	}
	const usualAttempts, usualThrottles = 6, 20
	cfg.Attempts = cmp.Or(cfg.Attempts, usualAttempts)
	cfg.MaxThrottles = max(0, cmp.Or(cfg.MaxThrottles, usualThrottles))
	u := &Upstreams{cfg: cfg, served: make(map[wanted][]way), lanes: make(map[string]bool)}
	accounts := make(map[string]*spender)
	for i, up := range cfg.Upstreams {
		if err := up.check(); err != nil {
			return nil, fmt.Errorf("provider: upstream %q: %w", up.Name, err)
		}
		if slices.ContainsFunc(u.all, func(other *upstream) bool { return other.Name == up.Name }) {
			return nil, fmt.Errorf("provider: two upstreams are named %q", up.Name)
		}
		account := up.Account
		if account == "" {
			account = "\x00" + up.Name // nobody else's
		}
		of := accounts[account]
		if of == nil {
			of = &spender{scheduler: up.Scheduler}
			accounts[account] = of
		}
		if of.scheduler != up.Scheduler {
			return nil, fmt.Errorf("provider: upstream %q: account %q has another Scheduler", up.Name, up.Account)
		}
		member := &upstream{Upstream: up, index: i, account: of, refused: make([]bool, len(up.Keys))}
		of.members = append(of.members, member)
		u.all = append(u.all, member)
	}
	u.cfg.Upstreams = nil // they are in all
	return u, nil
}

// Serves reports whether some upstream, left out or not, serves the model at the endpoint.
func (u *Upstreams) Serves(model string, e Endpoint) bool { return len(u.ways(model, e)) > 0 }

// Open returns the upstreams that serve a model at an endpoint and are not left out, in order.
func (u *Upstreams) Open(model string, e Endpoint) []*Upstream {
	ways := u.ways(model, e)
	u.mu.Lock()
	defer u.mu.Unlock()
	var all []*Upstream
	for _, w := range ways {
		if w.up.out == nil {
			all = append(all, &w.up.Upstream)
		}
	}
	return all
}

// Delay is how long a call that asked now would likely wait where it would wait least, behind those that wait already. It is false
// where all upstreams are left out. The call's lane is the model as it is asked for.
func (u *Upstreams) Delay(c sluice.Call, e Endpoint) (time.Duration, bool) {
	wait, there := u.least(c, e, (*sluice.Scheduler).Delay)
	return wait, there.up != nil
}

// Earliest is how long such a call would wait at least, even if it were the next. It is false as Delay is.
func (u *Upstreams) Earliest(c sluice.Call, e Endpoint) (time.Duration, bool) {
	wait, there := u.least(c, e, (*sluice.Scheduler).Earliest)
	return wait, there.up != nil
}

// Pausing is why the upstream pauses at which such a call would wait least: ServerError of one that keeps failing, Overloaded,
// RateLimit or UsageWindow. It is OK where that is not paused, or all are left out.
func (u *Upstreams) Pausing(c sluice.Call, e Endpoint) sluice.Kind {
	_, there := u.least(c, e, (*sluice.Scheduler).Earliest)
	if there.up == nil {
		return sluice.OK
	}
	snap := there.up.Scheduler.Snapshot()
	for i := range snap.Lanes {
		if l := &snap.Lanes[i]; l.Lane == there.lane && l.Until.After(snap.At) {
			return l.Pause
		}
	}
	return sluice.OK
}

// least is the shortest wait of such a call, and where that is: nowhere, if all upstreams are left out.
func (u *Upstreams) least(c sluice.Call, e Endpoint, wait func(*sluice.Scheduler, sluice.Call) time.Duration) (least time.Duration, there way) {
	least = math.MaxInt64
	for _, w := range u.ways(c.Lane, e) {
		u.mu.Lock()
		out := w.up.out != nil
		u.mu.Unlock()
		if out {
			continue
		}
		c.Lane = w.lane
		if d := wait(w.up.Scheduler, c); there.up == nil || d < least {
			least, there = d, w
		}
	}
	return least, there
}

// First returns the provider of the first upstream that serves a model, and the model's id there.
func (u *Upstreams) First(model string) (p Provider, id string, ok bool) {
	for _, up := range u.all {
		if id, ok := up.model(model, u.cfg.Registry); ok {
			return up.Provider, id, true
		}
	}
	return Provider{}, "", false
}

// Known returns those models of a provider that the registry knows by their whole names.
func (u *Upstreams) Known(provider string) []string { return u.cfg.Registry.Models(provider) }

// Price returns the highest that a model's tokens may cost at an endpoint, in US dollars per million; false where the price of
// one of its upstreams is not known.
func (u *Upstreams) Price(model string, e Endpoint) (in, out float64, ok bool) {
	ways := u.ways(model, e)
	for _, w := range ways {
		if !w.priced {
			return 0, 0, false
		}
		in, out = max(in, w.in), max(out, w.out)
	}
	return in, out, len(ways) > 0
}

// Unpriced names the upstreams that serve a model at an endpoint at a price that is not known.
func (u *Upstreams) Unpriced(model string, e Endpoint) (names []string) {
	for _, w := range u.ways(model, e) {
		if !w.priced {
			names = append(names, w.up.Name)
		}
	}
	return names
}

// Identity names who may answer for a model at an endpoint, provider, address and the model's id of each, in whatever order
// they were listed.
func (u *Upstreams) Identity(model string, e Endpoint) (who []string) {
	for _, w := range u.ways(model, e) {
		who = append(who, fmt.Sprintf("%q %q %q", w.up.Provider.Name, cmp.Or(w.up.BaseURL, w.up.Provider.BaseURL), w.model))
	}
	slices.Sort(who)
	return slices.Compact(who)
}

// All returns the upstreams, in order. They are not to be changed.
func (u *Upstreams) All() []*Upstream {
	all := make([]*Upstream, len(u.all))
	for i, up := range u.all {
		all[i] = &up.Upstream
	}
	return all
}

// Report says what the upstreams did, in order.
func (u *Upstreams) Report() []UpstreamReport {
	u.mu.Lock()
	defer u.mu.Unlock()
	all := make([]UpstreamReport, len(u.all))
	for i, up := range u.all {
		all[i] = UpstreamReport{Name: up.Name, Sent: int(up.sent.Load()), Throttles: int(up.throttles.Load()), LeftOut: up.out}
	}
	return all
}

const (
	longestModel = 512 // a name of more bytes is no model's

	// mostLanes bounds the lanes of models that an upstream is recognised for by the beginning of their names alone: whoever
	// asks can make up any number of them. Those of any more share one.
	mostLanes = 200
)

// lane is the one that a model has at an upstream.
func (u *Upstreams) lane(up *upstream, id string) string {
	if up.Models != nil || slices.Contains(u.Known(up.Provider.Name), id) {
		return id
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.lanes[id] && len(u.lanes) == mostLanes {
		return "others"
	}
	u.lanes[id] = true
	return id
}

// ways returns the upstreams that serve a model at an endpoint, in order.
func (u *Upstreams) ways(model string, e Endpoint) []way {
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
	for _, up := range u.all {
		id, ok := up.model(model, u.cfg.Registry)
		if !ok || !up.Provider.Has(e) {
			continue
		}
		c := way{up: up, model: id, lane: u.lane(up, id)}
		if up.Price != nil {
			c.in, c.out, c.priced = up.Price(id)
		}
		found = append(found, c)
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

// Do sends a call through the Scheduler of an upstream, as sluice.Scheduler.Do does: fn makes one attempt, by the way that it
// is told. The call's lane is the model as it is asked for; its lane at the upstream is the model's id there.
//
// An attempt that the network, the server or its time failed is made at another upstream if one may start within Patience.
// A key that is refused is left out, and an account that is spent, with all its upstreams; the call goes on elsewhere, and
// neither spends an attempt. Where none is left, Do fails with a *sluice.CallError of that kind, which unwraps to a
// *NoneLeftError. The context that fn gets is ctx.
func (u *Upstreams) Do(ctx context.Context, c sluice.Call, e Endpoint, fn func(context.Context, *sluice.Permit, Via) sluice.Outcome) (sluice.Tally, error) {
	return u.do(ctx, c, u.ways(c.Lane, e), e, fn)
}

func (u *Upstreams) do(ctx context.Context, c sluice.Call, ways []way, e Endpoint, fn func(context.Context, *sluice.Permit, Via) sluice.Outcome) (sluice.Tally, error) {
	r := &routed{upstreams: u, ctx: ctx, call: c, fn: fn, ways: ways}
	if len(r.ways) == 0 {
		err := fmt.Errorf("no upstream serves model %q at %s", Redact(clip(c.Lane, 200)), e)
		return sluice.Tally{}, &sluice.CallError{Outcome: sluice.Outcome{Kind: sluice.BadRequest, Err: err}}
	}
	for {
		at, ok := r.choose()
		if !ok {
			none := u.noneLeft(r)
			return r.tally, &sluice.CallError{Outcome: none, Tally: r.tally}
		}
		again, err := r.visit(at)
		if !again {
			return r.tally, err
		}
	}
}

// noneLeft is the outcome of a call whose upstreams are all left out.
func (u *Upstreams) noneLeft(r *routed) sluice.Outcome {
	u.mu.Lock()
	defer u.mu.Unlock()
	none := &NoneLeftError{Model: Redact(clip(r.call.Lane, 200))}
	kind := sluice.Auth
	for _, c := range r.ways {
		if out := c.up.out; out != nil {
			none.Left = append(none.Left, *out)
			none.last, kind = out.Err, out.Kind
		}
	}
	return sluice.Outcome{Kind: kind, Err: none}
}

// refuse leaves out what a fatal outcome says is of no use any more, and moves what waits for it.
func (u *Upstreams) refuse(up *upstream, key string, o *sluice.Outcome) {
	u.mu.Lock()
	told := up.refuseLocked(key, o)
	u.mu.Unlock()
	if u.cfg.LeftOut != nil {
		for _, out := range told {
			u.cfg.LeftOut(out)
		}
	}
	if len(told) > 0 {
		u.look()
	}
}

// offer is what a way offers for a call.
type offer struct {
	way
	delay   time.Duration
	waiting int
	price   float64
}

// offers asks those ways that are not left out, and whose bits are not among tried.
func (r *routed) offers(tried uint64) []offer {
	u := r.upstreams
	all := r.offered[:0]
	u.mu.Lock()
	for _, c := range r.ways {
		if c.up.out == nil && tried&(1<<c.up.index) == 0 {
			all = append(all, offer{way: c, waiting: c.up.waiting})
		}
	}
	u.mu.Unlock()
	r.offered = all
	for i := range all {
		q := &all[i]
		q.delay = q.ask(r.call)
		q.price = math.Inf(+1)
		if q.priced {
			q.price = q.cost(r.call.Cost)
		}
	}
	return all
}

// ask is how long a call that asked now would wait there.
func (w way) ask(call sluice.Call) time.Duration {
	call.Lane = w.lane
	return w.up.Scheduler.Delay(call)
}

// usualOutput is how many tokens an answer is taken to have where the request sets no bound.
const usualOutput = 500

// cost is what a call is estimated to cost there.
func (w way) cost(of sluice.Cost) float64 {
	return w.in*float64(of.Input) + w.out*float64(cmp.Or(of.MaxOutput, usualOutput))
}

// best returns the offer that is preferred; false if there is none.
func (u *Upstreams) best(offers []offer) (offer, bool) {
	if len(offers) == 0 {
		return offer{}, false
	}
	soonest := slices.MinFunc(offers, sooner)
	if u.cfg.Prefer != PreferCost {
		return soonest, true
	}
	cheapest, found := soonest, false
	for _, o := range offers {
		if o.delay <= Patience && (!found || cmp.Or(cmp.Compare(o.price, cheapest.price), sooner(o, cheapest)) < 0) {
			cheapest, found = o, true
		}
	}
	return cheapest, true
}

// sooner orders offers by when the call can start. Before any answer all say at once: then the fewest that wait decide.
func sooner(a, b offer) int {
	return cmp.Or(cmp.Compare(a.delay, b.delay), cmp.Compare(a.waiting, b.waiting), cmp.Compare(a.up.index, b.up.index))
}
