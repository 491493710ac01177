// Package route chooses an upstream for each call. It moves a call to another upstream if an attempt fails or another one can start it
// much sooner, and leaves out keys and accounts that the provider rejects until a probe is accepted.
//
// A call waits in the queue of one upstream's Scheduler at a time, so nothing waits for an upstream that is down while others are up.
package route

import (
	"cmp"
	"container/list"
	"context"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/internal/pricing"
)

// MaxUpstreams is the maximum number of upstreams: those that failed a call are bits of a word.
const MaxUpstreams = 64

// Config shapes a Router. Upstreams are required, 1 to MaxUpstreams.
type Config struct {
	Upstreams []Upstream

	// Attempts and MaxThrottles are the maximum attempts and retries after rate-limited attempts of a call, over all upstreams, if the call
	// states none. Default: as the Scheduler of a single upstream; else 6, and 20 for at least 10 minutes. Negative MaxThrottles: none.
	Attempts, MaxThrottles int

	Cheapest bool // prefer the cheapest upstream of those that can start a call within patience, not the soonest

	// Authenticates reports whether the error of an Auth outcome proves that the key is rejected, if no request with the key was
	// accepted before. Required.
	Authenticates func(error) bool

	// Excluded receives each key and account that is left out, and with the kind OK those that are used again. Nil: nothing does.
	Excluded func(Exclusion)
}

// Upstream is an upstream. Its index in Config.Upstreams names it.
type Upstream struct {
	Account   string // upstreams of one account share its Scheduler and its health; "" is its own account
	Scheduler *sluice.Scheduler
	Keys      int // number of keys, which take turns. 0 counts as one
}

// Way is an upstream for a call.
type Way struct {
	Upstream int
	Model    string // for the caller only
	Lane     string // of the upstream's Scheduler

	Price *pricing.Price // nil is unknown
}

// Exclusion says that a key or an account is left out, or used again.
type Exclusion struct {
	Upstream int
	Key      int         // the rejected key, if Kind is Auth
	Whole    bool        // the upstream has no other key
	Kind     sluice.Kind // Auth: the key was rejected; QuotaExhausted: its account is spent; OK: a probe was accepted
	Err      error       // from the provider
}

// NoUpstreamError is the error of a call if all upstreams of its ways are left out.
type NoUpstreamError struct{ Left []Exclusion } // in the order of the ways

// Error returns a sentence.
func (*NoUpstreamError) Error() string { return "all upstreams are excluded" }

// Report counts the attempts at an upstream.
type Report struct {
	Sent      int        // throttled ones included
	Throttles int        // of those
	Exclusion *Exclusion // nil: it takes calls
}

// Router sends calls through the Schedulers of upstreams. It is safe for concurrent use.
type Router struct {
	cfg       Config
	upstreams []*upstream
	attempts  int           // of a call that states no maximum; 0: its Scheduler decides
	items     atomic.Uint64 // number of calls

	mu      sync.Mutex
	waiting list.List     // calls that wait (*call), in the order in which they began to
	ticking bool          // a timer is set to look at them
	looked  time.Time     // when it last did
	changed chan struct{} // closed when the health of a key or an account changes
}

// New returns a Router. Upstreams of one account must have the same Scheduler.
func New(cfg Config) *Router {
	r := &Router{cfg: cfg, changed: make(chan struct{})}
	if len(cfg.Upstreams) > 1 {
		r.attempts = gate.DefaultAttempts
	}
	accounts := make(map[string]*account)
	for i, up := range cfg.Upstreams {
		of := accounts[up.Account]
		if of == nil || up.Account == "" {
			of = &account{}
			accounts[up.Account] = of
		}
		of.members = append(of.members, i)
		r.upstreams = append(r.upstreams, &upstream{Upstream: up, index: i, account: of, keys: make([]health, max(1, up.Keys))})
	}
	return r
}

// Report returns a report of each upstream, in order.
func (r *Router) Report() []Report {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]Report, len(r.upstreams))
	for i, up := range r.upstreams {
		all[i] = Report{Sent: int(up.sent.Load()), Throttles: int(up.throttles.Load()), Exclusion: up.leftOutLocked()}
	}
	return all
}

// Soonest returns the shortest wait of a call and its way. The function wait returns the wait at a Scheduler. It is false if all upstreams are left out.
func (r *Router) Soonest(c sluice.Call, ways []Way, wait func(*sluice.Scheduler, sluice.Call) time.Duration) (least time.Duration, at Way, ok bool) {
	least = math.MaxInt64
	for _, w := range ways {
		up := r.upstreams[w.Upstream]
		r.mu.Lock()
		out := up.leftOutLocked() != nil
		r.mu.Unlock()
		if out {
			continue
		}
		c.Lane = w.Lane
		if d := wait(up.Scheduler, c); !ok || d < least {
			least, at, ok = d, w, true
		}
	}
	return least, at, ok
}

// Use runs fn with a key of an upstream, even if it is left out, and counts a request in flight meanwhile. Its outcome changes no health.
func (r *Router) Use(at int, fn func(key int) sluice.Outcome) sluice.Outcome {
	up := r.upstreams[at]
	r.mu.Lock()
	key, _ := up.takeKeyLocked(time.Now(), noItem)
	r.mu.Unlock()
	o := fn(key)
	r.mu.Lock()
	defer r.mu.Unlock()
	up.keys[key].finish(time.Now())
	up.account.health.finish(time.Now())
	return o
}

// Do sends a call through the Scheduler of an upstream, as sluice.Scheduler.Do does: fn makes one attempt, by the given way and key,
// with ctx as its context.
//
// If an attempt fails, the next one is made at another upstream that can start it within patience. If a key is rejected or an account
// is spent, the call moves without spending an attempt. If no upstream remains, Do fails with a
// *sluice.CallError of that kind, which unwraps to a *NoUpstreamError.
//
// Calls of the same content are one item. Nil: the ID of the call names its item, and a call without an ID is an item of its own.
func (r *Router) Do(ctx context.Context, spec sluice.Call, ways []Way, content func() string, fn func(context.Context, *sluice.Permit, Way, int) sluice.Outcome) (sluice.Tally, error) {
	spec.Item = r.items.Add(1)
	spec.Attempts, spec.MaxThrottles = cmp.Or(spec.Attempts, r.cfg.Attempts), cmp.Or(spec.MaxThrottles, r.cfg.MaxThrottles)
	c := &call{router: r, ctx: ctx, spec: spec, ways: ways, content: content, fn: fn}
	for {
		at, ok := c.choose()
		if !ok && c.awaitHeld() {
			continue
		}
		if ctx.Err() != nil {
			return c.tally, ctx.Err()
		}
		if !ok {
			return c.tally, &sluice.CallError{Outcome: r.noneLeft(ways), Tally: c.tally}
		}
		if again, err := c.visit(at); !again {
			return c.tally, err
		}
	}
}

// noneLeft returns the outcome of a call whose upstreams are all left out.
func (r *Router) noneLeft(ways []Way) sluice.Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	none, kind := &NoUpstreamError{}, sluice.Auth
	for _, w := range ways {
		if out := r.upstreams[w.Upstream].leftOutLocked(); out != nil {
			none.Left, kind = append(none.Left, *out), out.Kind
		}
	}
	return sluice.Outcome{Kind: kind, Err: none}
}

// learn updates the health of the key and the account by the outcome of an attempt. It returns what a rejection for the key proves.
func (r *Router) learn(c *call, o *sluice.Outcome) (v verdict) {
	now := time.Now()
	r.mu.Lock()
	up := r.upstreams[c.at.Upstream]
	key, account := &up.keys[c.key], &up.account.health
	before := [...]condition{key.condition, account.condition}
	probe := key.finish(now)
	probe = account.finish(now) || probe
	var events []Exclusion
	switch {
	case o.Open || o.Kind == sluice.OK || o.Kind == sluice.InvalidOutput:
		if back := key.accept(c.sent); account.accept(c.sent) || back {
			events = append(events, Exclusion{Upstream: up.index})
		}
	case o.Kind == sluice.Auth:
		elsewhere := c.rejectedAt&^(1<<c.at.Upstream) != 0 // the item may be at fault
		if c.atFault > 0 && key.accepted.IsZero() {        // elsewhere the item was at fault
			v = ofItem
		} else if v = key.reject(now, c.sent, c.item(), r.cfg.Authenticates(o.Err) && !elsewhere); v == ofKey {
			events = up.leaveOutLocked(now, c.key, o, probe)
		} else if v == ofItem {
			o.Others = key.passed
		}
	case o.Kind == sluice.QuotaExhausted:
		v, events = ofKey, up.leaveOutLocked(now, c.key, o, probe)
	}
	changed := probe || before != [...]condition{key.condition, account.condition}
	if changed {
		close(r.changed)
		r.changed = make(chan struct{})
	}
	r.mu.Unlock()
	if r.cfg.Excluded != nil {
		for _, out := range events {
			r.cfg.Excluded(out)
		}
	}
	if changed {
		r.moveWaiting()
	}
	return v
}
