package batch

import (
	"context"
	"fmt"
	"strconv"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/work"
)

// router is how items go by Config.Upstreams.
type router struct {
	batch     *Batch
	upstreams *provider.Upstreams
	handler   work.Handler
	accounts  map[string]*account // by upstream
}

// trip is how an item's call went. Its nil is that of a call without upstreams.
type trip struct {
	via   provider.Via // of the last attempt
	usd   float64      // of all attempts,
	known bool         // whose usage and prices are
	blind bool         // one was used that has no price
}

// price is that of the last attempt; nil where it is not known.
func (t *trip) price() *price {
	if t == nil || !t.via.HasPrice {
		return nil
	}
	return &price{in: t.via.PriceIn, out: t.via.PriceOut, known: true}
}

// newRouter returns the router of a batch; nil if it has no upstreams.
func newRouter(b *Batch) *router {
	u := b.cfg.Upstreams
	if u == nil {
		return nil
	}
	r := &router{batch: b, upstreams: u, accounts: make(map[string]*account)}
	for _, up := range u.All() {
		r.accounts[up.Name] = &account{batch: b, provider: up.Provider, router: r, upstream: "upstream " + up.Name,
			target: provider.Target{BaseURL: up.BaseURL, Header: b.cfg.ExtraHeader}}
	}
	calls := work.Routed(r.send, r.attempt)
	if b.ration != nil {
		calls = work.Rationed(calls, rationed{ration: b.ration, price: r.price, most: b.cfg.Budget.Attempts})
	}
	r.handler = b.layers(calls, u.Identity)
	return r
}

// price is the highest that an item's call may have.
func (r *router) price(item *work.Item) price {
	in, out, ok := r.upstreams.Price(item.Lane, item.Data.(*call).endpoint)
	return price{in: in, out: out, known: ok}
}

// send has the upstreams choose the ways of an item's attempts.
func (r *router) send(ctx context.Context, item work.Item, one sluice.Call, try func(context.Context, *sluice.Permit) sluice.Outcome) (sluice.Tally, error) {
	c := item.Data.(*call)
	return r.upstreams.Do(ctx, one, c.endpoint, func(ctx context.Context, permit *sluice.Permit, via provider.Via) sluice.Outcome {
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
	result, o := a.exchange(ctx, permit, &item, c, body, to)
	result.Data = t
	t.bill(&o)
	return result, o
}

// bill adds what an attempt cost. One cost is not known if one attempt's is not.
func (t *trip) bill(o *sluice.Outcome) {
	switch {
	case !o.HasUsage:
	case t.via.HasPrice:
		const million = 1e6
		t.usd += (float64(o.Usage.Input)*t.via.PriceIn + float64(o.Usage.Output)*t.via.PriceOut) / million
		t.known = true
	default:
		t.blind = true
	}
}

// accept completes a result by its upstream and its cost. It refuses what only says that no upstream is there.
func (r *router) accept(result *work.Result) error {
	t, _ := result.Data.(*trip)
	result.Data = nil
	if result.Twin != "" || result.Cached {
		result.HasCost = true // whatever the price is, nothing was paid
	}
	if t == nil {
		return nil
	}
	result.Data = t.via.Upstream
	if t.known && !t.blind {
		result.Cost, result.HasCost = prose.RoundDollars(t.usd), true
	}
	if result.Kind != sluice.Network {
		return nil
	}
	if a := r.accounts[t.via.Upstream.Name]; outOfFiles(result.Err) || !r.answered() && r.batch.runner.Progress().Done == 0 {
		return a.unreachable(result.Err)
	}
	return nil
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
			Text: fmt.Sprintf("model %s is served by no upstream", clip([]byte(strconv.Quote(rq.model)))),
			Hint: "name it in the models of one, or say --provider to use none of them",
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
