package batch

import (
	"context"
	"fmt"
	"strconv"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// router is how items go by Config.Upstreams.
type router struct {
	upstreams *provider.Upstreams
	handler   work.Handler
	accounts  map[string]*account // by upstream
}

// trip is how an item's call went that is made here.
type trip struct {
	via  provider.Destination // of the last attempt, with upstreams
	bill bill
}

// newRouter returns the router of a batch; nil if it has no upstreams.
func newRouter(b *Batch) *router {
	u := b.cfg.Upstreams
	if u == nil {
		return nil
	}
	r := &router{upstreams: u, accounts: make(map[string]*account)}
	for _, up := range u.All() {
		r.accounts[up.Name] = &account{batch: b, provider: up.Provider, router: r, upstream: "upstream " + up.Name,
			target: provider.Target{BaseURL: up.BaseURL, Header: b.cfg.ExtraHeader}}
	}
	r.handler = b.cached(b.guard.Bound(work.Routed(r.send, r.attempt)), u.Identity)
	return r
}

// send has the upstreams choose the ways of an item's attempts.
func (r *router) send(ctx context.Context, item work.Item, one sluice.Call, try func(context.Context, *sluice.Permit) sluice.Outcome) (sluice.Tally, error) {
	c := item.Data.(*call)
	return r.upstreams.Do(ctx, one, c.endpoint, func(ctx context.Context, permit *sluice.Permit, via provider.Destination) sluice.Outcome {
		c.trip.via = via
		return try(ctx, permit)
	})
}

// attempt is one exchange of an item, with the upstream whose turn it is.
func (r *router) attempt(ctx context.Context, permit *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
	c := item.Data.(*call)
	t := c.trip
	a := r.accounts[t.via.Upstream.Name]
	to := a.target
	to.Key, to.Model = t.via.Key, t.via.Model
	body := c.body
	if t.via.Model != item.Lane {
		body = provider.WithModel(body, t.via.Model)
	}
	return a.exchange(ctx, permit, &item, t.via.Price, body, to)
}

// answered reports whether any upstream ever answered.
func (r *router) answered() bool {
	for _, a := range r.accounts {
		if a.answered.Load() {
			return true
		}
	}
	return false
}

// unreached reports whether calls to all upstreams that might serve such an item could not be sent, and none ever answered.
func (r *router) unreached(model string, e provider.Endpoint) bool {
	for _, up := range r.upstreams.Open(model, e) {
		if a := r.accounts[up.Name]; a.answered.Load() || a.misses.Load() < mostMisses {
			return false
		}
	}
	return true
}

// upstream finds the first upstream that serves a request's model: prompts are completed as its provider wants them.
func (p *parser) upstream(rq *request) *problem {
	if known, ok := p.lookup[rq.model]; ok {
		rq.provider = known
		return nil
	}
	found, _, ok := p.fill.upstreams.First(rq.model)
	if !ok {
		return &problem{
			Text: fmt.Sprintf("no upstream serves the model %s", clip([]byte(strconv.Quote(rq.model)))),
			Hint: "add the model to an upstream, or set --provider to ignore the upstreams",
		}
	}
	p.lookup[rq.model] = found
	rq.provider = found
	return nil
}

// promptEndpoint is where a bare prompt goes.
func (p *parser) promptEndpoint(rq *request) provider.Endpoint {
	model := rq.model
	if p.fill.upstreams != nil {
		if _, id, ok := p.fill.upstreams.First(model); ok {
			model = id
		}
	}
	return rq.provider.PromptEndpoint(model)
}
