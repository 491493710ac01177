package batch

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// account is where calls go: a key at a provider, with one Scheduler and the Handler that goes through it, or one upstream of
// several, for which the router chooses keys and has the Handler.
type account struct {
	batch     *Batch
	provider  provider.Provider
	target    provider.Target // of every call, but for endpoint and model
	handler   work.Handler
	upstreams *provider.Upstreams // with this account alone; nil: it is an upstream of the router
	router    *router             // nil: it is no upstream, but the provider's only account
	upstream  string              // which one it is; "" is none
	answered  atomic.Bool         // by whatever answer
	misses    atomic.Int32        // calls that never left, before that
	prices    prices
	added     provider.Added
	deadlines provider.Deadlines
}

// mostMisses is after how many calls in a row that could not be sent a provider that never answered is not there.
const mostMisses = 5

// account returns the account at a provider, making it at first.
func (b *Batch) account(p provider.Provider) (_ *account, err error) {
	var scheduler *sluice.Scheduler
	defer func() { // without the lock, as observers are told
		if scheduler != nil && err == nil {
			b.honour(scheduler)
		}
	}()
	b.mu.Lock()
	defer b.mu.Unlock()
	if a := b.accounts[p.Name]; a != nil {
		return a, nil
	}
	a := &account{batch: b, provider: p, target: provider.Target{BaseURL: b.cfg.BaseURL, Header: b.cfg.ExtraHeader}}
	if b.remote != nil {
		b.remote.account(a)
		b.accounts[p.Name] = a
		return a, nil
	}
	if b.cfg.Key != nil {
		key, err := b.cfg.Key(p)
		if err != nil {
			return nil, err
		}
		a.target.Key = key
	}
	if scheduler, err = b.cfg.Scheduler(p); err != nil {
		return nil, err
	}
	// Whatever is wrong with the address shows now, not at the first call.
	if err := p.Check(a.target); err != nil {
		return nil, &ConfigError{Field: "BaseURL", Err: err}
	}
	if a.upstreams, err = alone(p, a.target, scheduler); err != nil {
		return nil, err
	}
	a.handler = b.cached(b.guard.Bound(work.Routed(a.send, a.attempt)), a.who)
	b.accounts[p.Name] = a
	return a, nil
}

// accountAt returns the account at a provider, which account made before.
func (b *Batch) accountAt(provider string) *account {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.accounts[provider]
}

// honour has a Scheduler wait for the pause in which an earlier run ended, unless it is ignored: it may not have heard of it, as after
// a kill.
func (b *Batch) honour(s *sluice.Scheduler) {
	if p := b.cfg.Pauses; b.journal == nil || p != nil && p.IgnoreEarlier {
		return
	}
	limit := b.journal.Earlier().RateLimit
	if wait := time.Until(limit.Until); wait > 0 && limit.Kind.Throttle() {
		o := sluice.Outcome{Kind: limit.Kind, Dimension: limit.Dimension, Wait: wait}
		if o.Kind == sluice.UsageWindow {
			o.Until, o.Wait = limit.Until, 0 // no longer than stated
		}
		if err := s.PauseLane(limit.Lane, o); err != nil {
			b.log.Warn("the rate-limit pause of an earlier run could not be restored", "error", err)
		}
	}
}

// alone returns the upstreams of one account, which serves whatever is asked for. The Scheduler alone counts attempts and throttles.
func alone(p provider.Provider, to provider.Target, scheduler *sluice.Scheduler) (*provider.Upstreams, error) {
	up := provider.Upstream{Name: p.Name, Provider: p, BaseURL: to.BaseURL, Scheduler: scheduler}
	up.Provider.Models = nil
	if to.Key != "" {
		up.Keys = []provider.Key{{Value: to.Key}}
	}
	return provider.NewUpstreams(provider.UpstreamsConfig{Upstreams: []provider.Upstream{up}, Attempts: math.MaxInt, MaxThrottles: math.MaxInt})
}

// send makes an item's call, unless the account is left out.
func (a *account) send(ctx context.Context, item work.Item, one sluice.Call, try func(context.Context, *sluice.Permit) sluice.Outcome) (sluice.Tally, error) {
	tally, err := a.upstreams.Do(ctx, one, item.Data.(*call).endpoint, func(ctx context.Context, permit *sluice.Permit, _ provider.Destination) sluice.Outcome {
		return try(ctx, permit)
	})
	if none, ok := errors.AsType[*provider.NoUpstreamError](err); ok {
		refused, _ := errors.AsType[*sluice.CallError](err)
		err = &sluice.CallError{Outcome: sluice.Outcome{Kind: refused.Kind, Err: none.Unwrap()}, Tally: tally}
	}
	return tally, err
}

func (a *account) unreachable(cause error) *UnreachableError {
	return &UnreachableError{Provider: cmp.Or(a.upstream, a.provider.Name), BaseURL: a.baseURL(), Err: cause}
}

// outOfFiles reports whether it was this host that had no room for a connection, which says nothing of the provider.
func outOfFiles(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// who says whose answers a cache has of it.
func (a *account) who(string, provider.Endpoint) []string {
	return []string{a.provider.Name, a.baseURL()}
}

func (a *account) baseURL() string { return cmp.Or(a.target.BaseURL, a.provider.BaseURL) }

// call is what an attempt needs of an item's request.
type call struct {
	endpoint provider.Endpoint
	stream   bool
	body     []byte
	bound    string      // the member of the body that bounds the output, if Sluice added it; else ""
	line     *call       // as the line has it, once an attempt has another body
	sent     sluice.Cost // of the last attempt
	account  *account    // that the line is for; nil with upstreams
	trip     *trip       // nil where calls are made elsewhere
	terms    *terms
	tries    tries
	far      *far        // nil where calls are made here
	held     func() bool // reports whether a worker may still make it; nil outside of workers
}

// attempt is one exchange of an item.
func (a *account) attempt(ctx context.Context, permit *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
	to := a.target
	to.Model = item.Lane
	return a.exchange(ctx, permit, &item, a.price(item.Lane), item.Data.(*call).body, to)
}

// exchange is one exchange with whom it is told, at a price; nil is unknown.
func (a *account) exchange(ctx context.Context, permit *sluice.Permit, item *work.Item, at *provider.Price, body []byte, to provider.Target) (work.Result, sluice.Outcome) {
	cfg, c := &a.batch.cfg, item.Data.(*call)
	result := work.Result{Data: c}
	to.Endpoint = c.endpoint
	body, added := a.added.Complete(&a.provider, c.endpoint, to.Model, body, c.bound, c.stream)
	req, err := a.provider.NewRequest(ctx, to, body)
	if err != nil {
		return result, sluice.Outcome{Kind: sluice.BadRequest, Err: err, Unsent: true}
	}
	if c.held != nil && !c.held() {
		return result, sluice.Outcome{Kind: sluice.Network, Err: sluice.ErrWithdrawn, Unsent: true, Abandoned: true, Final: true}
	}
	c.sent = c.cost(item.Cost)
	var deadline func() time.Duration
	if c.terms.timeout == 0 { // of a stream it is not asked for
		deadline = func() time.Duration { return a.deadlines.Of(to.Model) }
	}
	began := time.Now()
	answer, o := provider.Exchange(ctx, cfg.Transport, permit, req, provider.ExchangeConfig{
		Provider: a.provider,
		Endpoint: c.endpoint,
		Stream:   c.stream,
		Timeout:  c.terms.timeout,
		Deadline: deadline,
		Key:      to.Key,
		Cost:     c.sent,
		Added:    added,
	})
	a.added.Refused(to.Model, &o)
	if o.Kind == sluice.OK && !c.stream {
		a.deadlines.Observe(to.Model, time.Since(began))
	}
	if answer.Status != 0 && !a.answered.Load() {
		a.answered.Store(true)
	}
	if o.Kind == sluice.Network && o.Unsent && ctx.Err() == nil && !outOfFiles(o.Err) && !a.answered.Load() && a.misses.Add(1) >= mostMisses &&
		(a.router == nil || a.router.unreached(item.Lane, c.endpoint)) {
		a.batch.runner.Stop(a.unreachable(o.Err))
	}
	result.Status, result.RequestID = answer.Status, answer.RequestID
	result.Payload, result.FinishReason = answer.Body, answer.FinishReason
	c.check(item.ID, answer.Body, &o)
	if o.HasUsage {
		a.batch.learn(item, c.sent, o.Usage)
	}
	c.trip.bill.add(a.batch, item, at, answer.Status, &o)
	c.count(answer.Status, &o)
	a.batch.batches.countLive(item.Seq, c, &o)
	return result, o
}

// check refuses a good answer that the run does not accept, and has the next attempt say so.
func (c *call) check(id string, body []byte, o *sluice.Outcome) {
	if o.Kind != sluice.OK || c.terms.check == nil {
		return
	}
	if err := c.terms.check(id, c.endpoint, body); err != nil {
		o.Kind, o.Err = sluice.InvalidOutput, err
		if c.terms.feedback {
			c.correct(body, err)
		}
	}
}
