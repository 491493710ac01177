package batch

import (
	"math"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/spend"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// newSpending returns what holds the items of a run to its spending caps; nil without any.
func (b *Batch) newSpending() *spend.Queue {
	limit := spend.Amount{math.Round(b.cfg.Budget.Cost * spend.Dollar), float64(b.cfg.Budget.Tokens)}
	if b.cfg.Budget.Cost > 0 {
		limit[spend.USD] = max(1, limit[spend.USD]) // zero is no limit
	}
	return spend.NewQueue(spend.Config{
		Limit: limit, Attempts: b.cfg.Budget.Attempts, Estimate: b.estimate, Used: b.used,
		Stop: func(id string, next spend.Amount) { b.Stop(spentError(b.spending, id, next)) },
	})
}

// bounded holds the items of a Handler to the spending caps.
func (b *Batch) bounded(calls work.Handler) work.Handler {
	if b.spending == nil {
		return calls
	}
	return work.Rationed(calls, b.spending)
}

// modelKey is a model of an account. The account is nil with upstreams.
type modelKey struct {
	account *account
	model   string
}

// estimate returns the estimate of an item's next attempt. An item that a worker sends is not checked between its attempts: if answers
// are checked, and refused ones are paid, it is the estimate of all attempts.
func (b *Batch) estimate(item *work.Item) spend.Estimate {
	c, n := item.Data.(*call), 1
	if c.terms.check != nil {
		n = max(1, c.terms.attempts)
	}
	return b.estimateAt(item, c.cost(item.Cost), n, b.priceOf(item), sluice.Usage{})
}

// estimateAt is the estimate of n requests at a price (nil: unknown), in the service tier of by.
func (b *Batch) estimateAt(item *work.Item, cost sluice.Cost, n int, p *provider.Price, by sluice.Usage) spend.Estimate {
	c, most := item.Data.(*call), 0
	if p != nil {
		most = p.MaxOutput
	}
	e := spend.Estimate{Model: b.models.Of(modelKey{c.account, item.Lane}, most)}
	by.Input = n * cost.Input
	e.Input = amountOf(p, by)
	by.Input = 0
	switch {
	case c.endpoint.Embeds():
	case cost.MaxOutput > 0:
		by.Output = n * cost.MaxOutput
		e.Declared = amountOf(p, by)
	default:
		by.Output = n
		e.Unstated = amountOf(p, by)
	}
	return e
}

// priceOf returns the highest price that an item's request may have; nil is unknown.
func (b *Batch) priceOf(item *work.Item) *provider.Price {
	c := item.Data.(*call)
	if c.account == nil {
		return b.router.upstreams.Price(item.Lane, c.endpoint)
	}
	return c.account.price(item.Lane)
}

// amountOf returns what a usage comes to at a price; nil is unknown.
func amountOf(p *provider.Price, u sluice.Usage) spend.Amount {
	a := spend.Amount{spend.Tokens: float64(max(0, u.Input)) + float64(max(0, u.Output))}
	if p != nil {
		a[spend.USD] = math.Round(p.Cost(u).USD * spend.Dollar)
	}
	return a
}

// used returns the amount that an attempt used; false if nothing states it, and it may be charged.
func (b *Batch) used(item *work.Item, r *work.Result, o *sluice.Outcome) (spend.Amount, bool) {
	c := item.Data.(*call)
	if c.far != nil {
		return b.usedFar(item, c.far.answer), true
	}
	p := b.priceOf(item)
	if c.trip.via.Price != nil {
		p = c.trip.via.Price
	}
	return usedAt(p, r.Status, o)
}

func usedAt(p *provider.Price, status int, o *sluice.Outcome) (spend.Amount, bool) {
	if !o.HasUsage {
		return spend.Amount{}, !mayCost(status, o)
	}
	return amountOf(p, o.Usage), true
}

// learn corrects the estimates of an item's model.
func (b *Batch) learn(item *work.Item, cost sluice.Cost, u sluice.Usage) {
	b.models.Of(modelKey{item.Data.(*call).account, item.Lane}, 0).Learn(cost, float64(max(0, u.Input)), float64(max(0, u.Output)))
}

// usedFar returns the amount that all attempts used which were made elsewhere.
func (b *Batch) usedFar(item *work.Item, a *Answer) spend.Amount {
	if a == nil {
		return spend.Amount{}
	}
	p := b.priceOf(item)
	e := b.estimateAt(item, item.Cost, a.Unmetered, p, sluice.Usage{})
	return amountOf(p, a.Tally.Usage).Plus(1, e.Amount())
}

// spentError says which cap an item does not fit into.
func spentError(q *spend.Queue, id string, next spend.Amount) *BudgetError {
	now := q.Status()
	unit := max(0, now.Exceeded(next))
	return &BudgetError{Used: usedOf(&now.Cap, unit), Next: next[unit] / unitSize[unit], ID: id}
}

var unitSize = spend.Amount{spend.USD: spend.Dollar, spend.Tokens: 1}

func usedOf(c *spend.Cap, unit int) Used {
	what, name := LimitedCost, "usd"
	if unit == spend.Tokens {
		what, name = LimitedTokens, "tokens"
	}
	return Used{what, name, c.Limit[unit] / unitSize[unit], c.Used[unit] / unitSize[unit]}
}

// uses returns the limits of the spending caps, and the amounts that were used so far.
func (b *Batch) uses() (all []Used) {
	now := b.spending.Status()
	for unit, limit := range now.Limit {
		if limit > 0 {
			all = append(all, usedOf(&now.Cap, unit))
		}
	}
	return all
}

// together is the usage of requests that go through a Batch API.
var together = sluice.Usage{Service: limits.ServiceBatch}

// hold holds the estimate of a request that goes into a part of a batch, or that an earlier process sent in one (sent). It returns nil if
// there is no room now, or a *BudgetError if there never will be. Without a cap it returns an empty estimate.
func (v *via) hold(item *work.Item, cost sluice.Cost, sent bool) (*spend.Estimate, error) {
	b := v.batch
	if b.spending == nil {
		return &noEstimate, nil
	}
	e := b.estimateAt(item, cost, 1, b.priceOf(item), together)
	switch ok, ends := b.spending.Open(&e, sent); {
	case ok:
		return &e, nil
	case ends:
		return nil, spentError(b.spending, item.ID, e.Amount())
	}
	return nil, nil
}

var noEstimate spend.Estimate

// settle releases the estimate of a request, and counts what it used: o is nil if it was not run.
func (v *via) settle(e *spend.Estimate, item *work.Item, status int, o *sluice.Outcome) {
	b := v.batch
	if b.spending == nil || e == nil {
		return
	}
	used := spend.Amount{}
	if o != nil {
		stated := false
		if used, stated = usedAt(b.priceOf(item), status, o); !stated {
			used = e.Amount()
		}
	}
	b.spending.Close(e, used)
}
