package gate

import (
	"math"
	"time"
)

// Hold stops and resumes the sending of calls in all lanes. Those that are open go on, and those that wait keep their
// places.
func (g *Gate) Hold(now time.Time, hold bool) {
	if g.held == hold {
		return
	}
	g.held = hold
	typ := EventResumed
	if hold {
		typ = EventPaused
	}
	g.note(Event{Type: typ, At: now})
	g.Tick(now)
}

// SetLimits exchanges the ceilings of every lane, and those of all lanes together. A ceiling that is no longer told leaves
// the limit as a belief, which headers and refusals correct.
func (g *Gate) SetLimits(now time.Time, limits, together Limits) {
	before := g.cfg.Account
	g.cfg.Limits, g.cfg.Account = limits, together
	on := g.account.on || len(g.lanes) > 1 || together != limits // else the one lane's own limits are these
	if g.cfg.Remote && len(g.sorted) > 0 {
		g.tellAccount(now, g.sorted[0].name, before, together)
	}
	for _, l := range g.sorted {
		l.tell(now, limits)
	}
	if on {
		g.account = g.account.retold(now, together)
	}
	g.Tick(now)
}

// retold returns the account under other limits. What its buckets lack they go on lacking.
func (a *account) retold(now time.Time, told Limits) account {
	next := newAccount(now, told)
	next.open = a.open
	if !a.on {
		return next
	}
	for d := Requests; d < NumDimensions; d++ {
		before, after := &a.book.budgets[d], &next.book.budgets[d]
		if before.rate == 0 || after.rate == 0 {
			continue
		}
		before.refill(now)
		if d.window() > 60 { // what was used of a day stays used
			before.level += after.cap - before.cap
		}
		after.level = min(after.level, before.level)
	}
	return next
}

// tell exchanges the ceilings of a lane.
func (l *lane) tell(now time.Time, told Limits) {
	for d := Requests; d < NumDimensions; d++ {
		l.tellBudget(now, d, limitOf(told, d))
	}
	if told.Concurrent == l.slots.ceiling {
		return
	}
	l.slots.tell(told.Concurrent)
	if told.Concurrent > 0 {
		l.changed(now, Concurrency, float64(l.slots.n()), SourceTold)
	}
}

// tellBudget exchanges the ceiling of one budget; 0 is none.
func (l *lane) tellBudget(now time.Time, d Dimension, ceiling float64) {
	m := &l.mirrors[d]
	if ceiling == m.ceiling {
		return
	}
	m.ceiling = ceiling
	switch {
	case ceiling == 0:
		if m.source == SourceTold {
			m.source = SourceStart
		}
		return
	case m.limit == 0:
		m.limit, m.source = ceiling, SourceTold
		l.fill(now, d)
	case ceiling < m.limit || m.source == SourceTold || m.source == SourceMeasured || m.source == SourceStart:
		if m.limit > 0 && !m.capRead { // it was so many seconds of refill
			m.cap = max(1, m.cap*ceiling/m.limit)
		}
		m.limit, m.source, m.cap = ceiling, SourceTold, min(m.cap, max(1, ceiling))
		c := Correction{Mark: l.sums[d], Lo: math.Inf(-1), Hi: math.Inf(+1)}
		if l.book != nil && d.window() > 60 { // what was used of a day stays used
			b := &l.book.budgets[d]
			b.refill(now)
			c.Lo = m.cap - min(b.cap-b.level, 2*m.cap) // a day more of debt at most
			c.Hi = c.Lo
		}
		l.correct(now, d, c)
	default: // what the provider itself says is below it
		return
	}
	l.changed(now, d, ceiling, SourceTold)
}

// tell exchanges the told cap; 0 is none. Whoever raises it knows better than the refusals of before.
func (s *slots) tell(ceiling int) {
	raised := ceiling > s.ceiling && s.ceiling > 0
	s.ceiling = ceiling
	if ceiling == 0 {
		return
	}
	if raised || s.limit > float64(ceiling) || !s.refused {
		s.limit, s.bad, s.hold = float64(ceiling), 0, firstHold
	}
}

// SetWeights exchanges the tenants' shares. What they were served so far counts as it did.
func (g *Gate) SetWeights(weights map[string]float64) {
	g.cfg.Weights = weights
	for _, l := range g.sorted {
		l.order.weights = weights
		for name, q := range l.order.tenants {
			q.weight = l.order.weight(name)
		}
	}
}

// Earliest is how long a call that asked now would wait at least, even if it were the next: for the end of its lane's pause,
// and until its cost has flowed into the budgets.
func (g *Gate) Earliest(now time.Time, c *Call) time.Duration {
	l := g.lanes[c.Lane]
	if l == nil {
		return 0
	}
	wait := max(0, l.cool.until.Sub(now), l.opens.Sub(now))
	if l.book == nil {
		return wait
	}
	cost := l.reserves.cost(c.Cost)
	short, _ := l.waitFor(now, &cost)
	return max(wait, short)
}

// Delay is how long a call that asked now would wait, as far as is known: the calls before it in its lane, with the costs
// and times that are usual there, have to go first.
func (g *Gate) Delay(now time.Time, c *Call) time.Duration {
	l := g.lanes[c.Lane]
	if g.held {
		return math.MaxInt64
	}
	if l == nil {
		return 0
	}
	wait := max(0, l.cool.until.Sub(now), l.opens.Sub(now))
	before := l.order.waiting + len(l.outstanding) + c.Ahead
	if l.cool.probing && l.cool.unproven >= l.cool.ramp {
		wait = max(wait, l.proof())
	}
	if over := l.open + before + 1 - l.slots.n(); over > 0 {
		wait = max(wait, seconds(float64(over)/float64(l.slots.n())*l.usual(now)))
	}
	cost := l.reserves.cost(c.Cost)
	if l.book != nil {
		known := 1 - math.Pow(0.9, float64(l.grants)) // the mean of the costs began at zero
		for d := range cost {
			if l.grants > 0 {
				cost[d] += float64(before) * l.meanCost[d] / known
			}
		}
		wait = max(wait, l.book.drain(now, &cost))
		if l.gate.account.on {
			wait = max(wait, l.gate.account.book.drain(now, &cost))
		}
	}
	return wait
}

// usual is how long a call of the lane takes, in seconds.
func (l *lane) usual(now time.Time) float64 {
	latency := l.latency
	if t := l.flight.head; t != nil {
		latency = max(latency, now.Sub(t.sent).Seconds())
	}
	return latency
}
