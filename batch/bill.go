package batch

import (
	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// bill is the cost of an item's attempts.
type bill struct {
	pricing.Cost
	known bool // some attempt had a cost,
	blind bool // and one used something at an unknown price
}

// mayCost reports whether an attempt whose response states no usage may be billed all the same: a rejection is not, and a request that
// timed out may be.
func mayCost(status int, o *sluice.Outcome) bool {
	return !o.Unsent && !o.Kind.Throttle() && status < 300
}

// charge notes what an attempt cost at a price (nil: unknown): its usage, or its estimate if it may be charged and its response states no
// usage. by has the service tier of the estimate.
func (l *live) charge(item *work.Item, cost sluice.Cost, p *provider.Price, by sluice.Usage, status int, o *sluice.Outcome) {
	c := item.Data.(*call)
	c.charged = budget.Amount{}
	switch {
	case o.HasUsage:
		c.charged = amountOf(p, o.Usage)
		c.bill.use(p, o.Usage)
	case mayCost(status, o):
		c.unmetered++
		e := l.estimateAt(item, cost, 1, p, by)
		c.charged = e.Amount()
		if c.bill.estimate(c.charged); p == nil {
			c.bill.blind = true
		}
	}
}

// add adds another bill.
func (l *bill) add(other *bill) {
	l.Cost, l.known, l.blind = l.Cost.Add(other.Cost), l.known || other.known, l.blind || other.blind
}

// use adds a usage at a price; nil is unknown.
func (l *bill) use(p *provider.Price, u sluice.Usage) {
	if p == nil {
		l.blind = true
		return
	}
	l.Cost, l.known = l.Cost.Add(p.Cost(u)), true
}

// estimate adds an estimate.
func (l *bill) estimate(a budget.Amount) {
	usd := a[budget.USD] / budget.Dollar
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
