package batch

import (
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// prices are those of one provider's models that were asked for. The zero value is ready.
type prices struct {
	mu      sync.RWMutex
	byModel map[string]*provider.Price
}

// price returns what a model costs; nil is unknown.
func (a *account) price(model string) *provider.Price {
	if a.batch.cfg.Price == nil {
		return nil
	}
	a.prices.mu.RLock()
	p, asked := a.prices.byModel[model]
	a.prices.mu.RUnlock()
	if !asked {
		p = a.batch.cfg.Price(a.provider, model).WithBatch(a.provider.Batches.Price)
		a.prices.keep(model, p)
	}
	return p
}

func (p *prices) keep(model string, of *provider.Price) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byModel == nil {
		p.byModel = make(map[string]*provider.Price)
	}
	p.byModel[model] = of
}

// cost completes a result by what a model's usage cost, if its price is known.
func (a *account) cost(r *work.Result, used sluice.Usage) {
	if p := a.price(r.Lane); p != nil {
		bill := bill{known: true}
		bill.Cost = p.Cost(used)
		bill.complete(r)
	}
}

// bill is the cost of an item's attempts.
type bill struct {
	pricing.Cost
	known bool // some attempt had a cost,
	blind bool // and one used something at an unknown price
}

// add adds an attempt of an item at a price. If it may be charged, and its response does not state its usage, it costs its estimate.
func (l *bill) add(b *Batch, item *work.Item, p *provider.Price, status int, o *sluice.Outcome) {
	c := item.Data.(*call)
	switch {
	case p == nil:
		l.blind = l.blind || o.HasUsage
	case o.HasUsage:
		l.Cost, l.known = l.Cost.Add(p.Cost(o.Usage)), true
	case mayCost(status, o):
		l.estimate(b.estimateAt(item, c.sent, 1, p, sluice.Usage{}))
	}
}

// estimate adds the estimate of requests.
func (l *bill) estimate(e budget.Estimate) {
	usd := e.Amount()[budget.USD] / budget.Dollar
	l.Cost, l.known = l.Cost.Add(pricing.Cost{USD: usd, Estimated: usd}), true
}

// complete adds the cost to a result, if all of it is known.
func (l *bill) complete(r *work.Result) {
	if !l.known || l.blind {
		return
	}
	r.Cost, r.HasCost = prose.RoundDollars(r.Cost+l.USD), true
	r.Estimated, r.Unpriced = prose.RoundDollars(r.Estimated+l.Estimated), r.Unpriced+l.Unpriced
}
