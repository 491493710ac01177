package gate

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// Hold stops and resumes sending in all lanes. Requests in flight continue, and requests that wait keep their places.
func (g *Gate) Hold(now time.Time, hold bool) {
	if g.held == hold {
		return
	}
	g.held = hold
	typ := limits.EventResumed
	if hold {
		typ = limits.EventPaused
	}
	g.note(limits.Event{Type: typ, At: now})
	g.Tick(now)
}

// SetLimits sets the configured limits of every lane, and those of all lanes together. A limit that is no longer configured stays as a
// start value, which responses correct.
func (g *Gate) SetLimits(now time.Time, each, together limits.Limits) {
	before := g.cfg.Account
	g.cfg.Limits, g.cfg.Account = each, together
	on := g.account.on || len(g.lanes) > 1 || together != each // else the one lane's own limits are these
	if g.cfg.Remote && len(g.sorted) > 0 {
		g.publishAccount(now, g.sorted[0].name, before, together)
	}
	for _, l := range g.sorted {
		l.configure(now, each)
	}
	if on {
		g.openAccount(now)
	}
	g.Tick(now)
}

// SetPublished sets the limits that the provider publishes, by lane. They replace start values, but no configured limit, and none that a
// response has shown since the lane was opened.
func (g *Gate) SetPublished(now time.Time, byLane map[string]limits.Limits) {
	g.cfg.Published = byLane
	for _, l := range g.sorted {
		l.buckets.publish(now)
	}
	g.Tick(now)
}

// configure sets the configured limits of a lane.
func (l *lane) configure(now time.Time, configured limits.Limits) {
	for d := range rates {
		if l.buckets.configure(now, d, configured) {
			l.buckets.changed(now, d)
		}
	}
	l.buckets.publish(now)
	if configured.Concurrency == l.slots.ceiling {
		return
	}
	l.slots.configure(configured.Concurrency)
	if configured.Concurrency > 0 {
		l.changed(now, limits.Concurrency, float64(l.slots.n()), limits.SourceConfigured)
	}
}

// configure sets the configured concurrency; 0 is none. A higher one replaces the evidence of earlier rejections.
func (s *slots) configure(ceiling int) {
	raised := ceiling > s.ceiling && s.ceiling > 0
	s.ceiling = ceiling
	if ceiling == 0 {
		return
	}
	if raised || s.limit > float64(ceiling) || !s.refused {
		s.limit, s.bad, s.hold = float64(ceiling), 0, firstHold
	}
}

// SetWeights sets the tenants' weights. The counters of the tenants stay.
func (g *Gate) SetWeights(weights map[string]float64) {
	g.cfg.Weights = weights
	for _, l := range g.sorted {
		l.order.weights = weights
		for name, q := range l.order.tenants {
			q.weight = l.order.weight(name)
		}
	}
}

// Earliest returns the minimum time that a request which asked now would wait, even if it were the next: until the end of the pause of its
// lane, and until the buckets have room for its cost.
func (g *Gate) Earliest(now time.Time, c *limits.Call) time.Duration {
	l := g.lanes[c.Lane]
	if l == nil {
		return 0
	}
	wait := max(0, l.cool.until.Sub(now), l.remote.opens.Sub(now))
	if g.cfg.Remote {
		return wait
	}
	var cost, guarded limits.Vector
	l.buckets.cost(c.Cost, &cost, &guarded)
	room, _ := g.waitFor(now, l, &cost, &guarded)
	spaced, _ := l.buckets.draining(now)
	return max(wait, room.time, spaced.time)
}

// Delay returns the estimated time that a request which asked now would wait. The requests before it in its lane go first, with the usual
// costs and latencies of the lane.
func (g *Gate) Delay(now time.Time, c *limits.Call) time.Duration {
	l := g.lanes[c.Lane]
	if g.held {
		return math.MaxInt64
	}
	if l == nil {
		return 0
	}
	wait := max(0, l.cool.until.Sub(now), l.remote.opens.Sub(now))
	if wait > 0 && l.failures.pauses > 0 { // the provider may be down for as long again
		wait = max(wait, now.Sub(l.failures.first))
	}
	before := max(0, l.waiting()+c.Ahead)
	if l.cool.probing && l.cool.unproven >= l.cool.ramp {
		wait = max(wait, l.flight.proof())
	}
	if over := l.flight.open + before + 1 - l.slots.n(); over > 0 {
		wait = max(wait, seconds(float64(over)/float64(l.slots.n())*l.flight.usual(now, l.slots.queue.mean)))
	}
	cost := l.buckets.reserves.cost(c.Cost)
	if !g.cfg.Remote {
		known := 1 - math.Pow(0.9, float64(l.grants)) // the mean of the costs began at zero
		for d := range cost {
			if l.grants > 0 {
				cost[d] += float64(before) * l.buckets.mean[d] / known
			}
		}
		wait = max(wait, l.buckets.book.drain(now, &cost), l.buckets.emptying(now, &cost))
		if l.gate.account.on {
			wait = max(wait, l.gate.account.book.drain(now, &cost))
		}
	}
	return wait
}
