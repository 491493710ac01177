package batch

import (
	"math"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Types of internal/budget.
type (
	Budget      = budget.Budget  // limits of a run
	Limited     = budget.Limited // name of a limit
	Used        = budget.Used    // amount that a run used of a limit
	BudgetError = budget.Error   // error of a run that reached a limit of its Budget
)

// Limits of a Budget.
const (
	LimitedCost     = budget.Cost     // US dollars
	LimitedTokens   = budget.Total    // input and output
	LimitedTime     = budget.Time     // seconds that the run had
	LimitedFailures = budget.Failures // failed items, or their share of the finished ones
)

// modelKey is a model of a route.
type modelKey struct {
	route *route
	model string
}

// estimate returns the estimate of an item's next attempt. An item that a worker sends is not checked between its attempts: if answers
// are checked, and refused ones are paid, it is the estimate of all attempts.
func (l *live) estimate(item *work.Item) budget.Estimate {
	c, n := item.Data.(*call), 1
	if l.cfg.Remote != nil && c.terms.check != nil {
		n = l.cfg.Budget.Attempts
	}
	return l.estimateAt(item, c.cost(item.Cost), n, c.route.price(item.Lane, c.endpoint), sluice.Usage{})
}

// estimateAt is the estimate of n requests at a price (nil: unknown), in the service tier of by.
func (l *live) estimateAt(item *work.Item, cost sluice.Cost, n int, p *provider.Price, by sluice.Usage) budget.Estimate {
	c, declared, unstated := item.Data.(*call), n*cost.MaxOutput, 0
	if declared <= 0 {
		declared, unstated = 0, n
	}
	if c.endpoint.Embeds() {
		declared, unstated = 0, 0
	}
	return l.estimateOf(modelKey{c.route, item.Lane}, p, by, n*cost.Input, declared, unstated)
}

// estimateOf is the estimate of requests to a model with their input tokens, the maximum output tokens that some declare, and the number of
// requests that declare none.
func (l *live) estimateOf(k modelKey, p *provider.Price, by sluice.Usage, input, declared, unstated int) budget.Estimate {
	maxOutput := 0
	if p != nil {
		maxOutput = p.MaxOutput
	}
	amount := func(input, output int) budget.Amount {
		by.Input, by.Output = input, output
		return amountOf(p, by)
	}
	return budget.Estimate{
		Model: l.models.Of(k, maxOutput), Input: amount(input, 0), Declared: amount(0, declared), Unstated: amount(0, unstated),
	}
}

// amountOf returns what a usage comes to at a price; nil is unknown.
func amountOf(p *provider.Price, u sluice.Usage) budget.Amount {
	a := budget.Amount{budget.Tokens: float64(max(0, u.Input)) + float64(max(0, u.Output))}
	if p != nil {
		a[budget.USD] = math.Round(p.Cost(u).USD * budget.Dollar)
	}
	return a
}

// used returns the amount that an item's last attempt used.
func used(item *work.Item, _ *work.Result) budget.Amount { return item.Data.(*call).charged }

// learn corrects the estimates of an item's model.
func (l *live) learn(item *work.Item, cost sluice.Cost, u sluice.Usage) {
	l.models.Of(modelKey{item.Data.(*call).route, item.Lane}, 0).Learn(cost, float64(max(0, u.Input)), float64(max(0, u.Output)))
}

// priced rejects a line if the run has a maximum cost and the price of its model is unknown.
func (in *input) priced(rq *request) *problem {
	if in.cfg.Budget.Cost == 0 || in.costs[rq.model] {
		return nil
	}
	if in.costs == nil {
		in.costs = make(map[string]bool)
	}
	in.costs[rq.model] = true // one line of a model is enough to say so
	if !in.hasPrice(rq) {
		bad := &problem{
			Text: "the price of model " + strconv.Quote(clip([]byte(rq.model))) + " is unknown, so Sluice cannot limit its cost",
			Hint: "pass --price IN/OUT in USD per million tokens, or add this line below providers: in the settings: - {name: " + rq.provider.Name +
				", tiers: [{tier: own, models: [" + strconv.Quote(clip([]byte(rq.model))) + "], price: IN/OUT}]}",
		}
		if u := in.cfg.Upstreams; u != nil {
			bad.Text = "the price of model " + strconv.Quote(clip([]byte(rq.model))) + " at upstream " +
				strings.Join(u.Unpriced(rq.model, rq.endpoint), ", ") + " is unknown, so Sluice cannot limit its cost"
			bad.Hint = "pass --price IN/OUT in USD per million tokens for all upstreams, or add price: IN/OUT to this upstream"
		}
		return bad
	}
	return nil
}

// hasPrice reports whether the price of a request is known at all upstreams that may serve it.
func (in *input) hasPrice(rq *request) bool {
	if u := in.cfg.Upstreams; u != nil {
		return u.Price(rq.model, rq.endpoint) != nil
	}
	return in.cfg.Price(rq.provider, rq.model) != nil
}
