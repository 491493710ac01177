package batch

import (
	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/work"
)

// batchPrice is what a model's calls cost through the account's Batch API.
func (a *account) batchPrice(model string) price {
	p := a.price(model)
	p.in, p.out = p.in*a.batchFactor(), p.out*a.batchFactor()
	return p
}

// batchFactor is what a call costs there, where a live one costs 1.
func (a *account) batchFactor() float64 {
	if f := a.provider.Batches.Price; f > 0 {
		return f
	}
	return 1
}

// claim returns what a request that goes into a part asks of the budget; nil without one.
func (v *via) claim(a *account, item *work.Item, c *call, cost sluice.Cost) *claim {
	r := v.batch.ration
	if r == nil {
		return nil
	}
	asks := *item
	asks.Cost = cost
	of := rationed{ration: r, owner: a, price: func(item *work.Item) price { return a.batchPrice(item.Lane) }}
	r.mu.Lock()
	defer r.mu.Unlock()
	return of.claimLocked(&asks, c)
}

// reserve holds a part of the budget for a request until settle. It says false where there is no room now, and fails with a
// *BudgetError where there will be none, since nothing is open that could give any back.
func (k *claim) reserve() (held amount, ok bool, err error) {
	if k == nil {
		return amount{}, true, nil
	}
	r := k.ration
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.fitsLocked(k, r.held):
		r.holdLocked(k)
		r.open++
		return k.held, true, nil
	case r.open > 0:
		return amount{}, false, nil
	}
	r.stopped = true
	return amount{}, false, r.spentLocked(k)
}

// hold is reserve for a request that an earlier process sent: whether there is room or not, it will cost what it costs.
func (k *claim) hold() amount {
	if k == nil {
		return amount{}
	}
	r := k.ration
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holdLocked(k)
	r.open++
	return k.held
}

// settle gives back what was held for a request, and counts what it used: o is nil of one that was not run.
func (k *claim) settle(held amount, status int, o *sluice.Outcome) {
	if k == nil {
		return
	}
	r := k.ration
	r.mu.Lock()
	defer r.mu.Unlock()
	k.held = held
	if o != nil {
		r.used = r.used.plus(k.used(status, o, nil))
	}
	r.held = r.held.minus(held)
	r.open--
	r.pumpLocked()
}
