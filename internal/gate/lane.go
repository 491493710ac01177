package gate

import (
	"time"
)

// lookAgain is how often a lane with waiting calls is looked at when nothing is due earlier.
const lookAgain = time.Minute

// lane is what a provider limits together.
type lane struct {
	name     string
	gate     *Gate
	book     *Book // nil: the ledger is remote
	mirrors  [NumDimensions]mirror
	slots    slots
	cool     cooldown
	breaker  breaker
	retries  retries
	order    order
	reserves reserves

	open       int     // calls in flight
	openOutput float64 // reserved for their output
	sums       Vector  // all that was ever charged by this gate
	recent     recent
	flight     flight

	refusal      time.Duration // how long a refusal usually takes
	margin       time.Duration // how much later than it was sent a call may have been counted
	latency      float64       // seconds, of late
	meanCost     Vector
	explainedRow int
	surprised    bool // a refusal came that explained nothing
	overloadRow  int
	emptyAt      time.Time // when a refusal last showed an empty bucket,
	passed       int       // and how many calls were sent since and not refused

	dripping    bool          // see mirror.dripEnd
	stuck       bool          // see Gate.pump
	outstanding []*Ticket     // asked for at a remote ledger
	most        int           // calls of the next of those asks
	askedAt     time.Time     // when the last of them was made
	roundTrip   time.Duration // how long they take at least
	hold        time.Time     // a remote ledger is not asked before then,
	opens       time.Time     // and said that it grants nothing before then
	roused      bool          // it was told to ask while an answer of before was on its way
	others      int           // calls that its other members have open
	said        said          // what it was told
	wake        time.Time

	bound     [NumDimensions]time.Duration
	blocked   bool
	binding   Dimension
	blockedAt time.Time

	throttles, grants int
}

func newLane(now time.Time, g *Gate, name string) *lane {
	l := &lane{name: name, gate: g, refusal: priorRefusal, margin: lateMargin, most: mostAsks}
	if !g.cfg.Remote {
		l.book = g.local.Book(name)
	}
	l.order.weights = g.cfg.Weights
	l.reserves.charge, l.reserves.cached = g.cfg.Charge, g.cfg.CountsCached
	l.slots = newSlots(now, g.cfg.Limits.Concurrent, g.cfg.Start.Concurrent)
	l.openBudgets(now, g.cfg.Limits, g.cfg.Start)
	l.tellOfLimits(now)
	return l
}

// tooLarge reports whether a call can never fit, by a lower bound of what it will be charged: never by an estimate.
func (l *lane) tooLarge(c *Call) bool {
	if l.reserves.charge != ChargeDeclared {
		return false
	}
	for _, d := range [...]Dimension{Tokens, OutputTokens, TokensPerDay} {
		m := &l.mirrors[d]
		sure := m.source == SourceTold || m.source == SourceHeader || m.source == SourceRefusal
		if m.limit > 0 && sure && float64(c.Cost.MaxOutput) > m.limit {
			return true
		}
	}
	return false
}

// pump grants until something holds the next call back.
func (l *lane) pump(now time.Time) {
	l.renew(now)
	if l.book == nil {
		defer l.say(now)
	}
	for l.order.waiting > 0 {
		if !l.step(now) {
			return
		}
	}
	l.rest(now)
}

// renew does what the passing of time calls for.
func (l *lane) renew(now time.Time) {
	l.prove(now)
	l.drip(now)
	l.grow(now)
}

// rest notes that nothing waits.
func (l *lane) rest(now time.Time) {
	l.block(now, false, AnyDimension)
	l.wake = time.Time{}
}

// step grants the next of the calls that wait, of which there is one, and reports whether it could.
func (l *lane) step(now time.Time) bool {
	if cause, until, closed := l.closed(now); closed {
		l.block(now, true, cause)
		l.wake = until
		return false
	}
	t := l.pick(now)
	t.cost = l.reserves.cost(t.Call.Cost)
	if l.book == nil {
		l.ask(now)
		return false
	}
	if wait, d := l.waitFor(now, &t.cost); wait > 0 {
		l.block(now, true, d)
		l.wake = now.Add(min(wait+wakeMargin, lookAgain))
		return false
	}
	t.mark = l.charge(&t.cost)
	l.order.remove(t)
	l.grant(now, t)
	return true
}

// waitFor is how long until cost fits both the lane and the account, and which budget says so.
func (l *lane) waitFor(now time.Time, cost *Vector) (time.Duration, Dimension) {
	wait, d := l.book.wait(now, cost)
	if a := &l.gate.account; a.on {
		if w, bound := a.book.wait(now, cost); w > wait {
			return w, bound
		}
	}
	return wait, d
}

// charge takes cost from the lane and the account.
func (l *lane) charge(cost *Vector) Vector {
	if a := &l.gate.account; a.on {
		a.book.charge(cost)
	}
	return l.book.charge(cost)
}

// closed reports whether the lane may send nothing now, why, and when to look again.
func (l *lane) closed(now time.Time) (cause Dimension, until time.Time, closed bool) {
	look := now.Add(lookAgain)
	if l.gate.held {
		return AnyDimension, look, true
	}
	if now.Before(l.cool.until) {
		if l.cool.until.Before(look) {
			look = l.cool.until
		}
		return AnyDimension, look, true
	}
	ramp := l.cool.probing && l.cool.unproven >= l.cool.ramp
	full := l.open+len(l.outstanding) >= l.slots.n() || l.gate.account.full()
	if !ramp && !full {
		return 0, time.Time{}, false
	}
	if t := l.flight.unproven; t != nil && !l.breaker.open {
		look = t.sent.Add(l.proof())
	}
	if full {
		return Concurrency, look, true
	}
	return AnyDimension, look, true
}

// pick is the call that goes next.
func (l *lane) pick(now time.Time) *Ticket {
	if l.cool.probing && l.cool.ramp == 1 {
		return l.order.leastThrottled(now)
	}
	return l.order.next(now)
}

// grant hands a charged ticket its permit.
func (l *lane) grant(now time.Time, t *Ticket) {
	t.state = held
	l.open++
	l.gate.account.open++
	l.grants++
	l.passed++
	l.waited(now, t)
	output := t.cost[OutputTokens]
	t.tenant.turn = t.ID
	l.count(t)
	l.owe(output)
	t.openOutput = l.openOutput
	l.recent.enter(now, &l.sums, t)
	for d := range l.sums {
		l.sums[d] += t.cost[d]
		l.meanCost[d] += 0.1 * (t.cost[d] - l.meanCost[d])
	}
	t.epoch = l.cool.epoch - 1 // stamped below
	l.depart(now, t)
	l.flight.add(t)
	l.gate.granted = append(l.gate.granted, t)
	if l.gate.cfg.Observed {
		l.gate.note(l.heldBack(EventSlotAcquired, now, t))
	}
}

// waited notes how long a ticket waited, now that this is over.
func (l *lane) waited(now time.Time, t *Ticket) {
	t.Paused = l.pausedFor(now) - t.pausedAt
	t.Waited = now.Sub(t.asked) - t.Paused
}

// owe notes that the output of open calls became so much more.
func (l *lane) owe(output float64) {
	l.openOutput += output
	if l.open == 0 {
		l.openOutput = 0 // no residue of rounding
	}
	if l.book != nil && l.reserves.charge == ChargeActual {
		l.book.owe(l.openOutput)
	}
}

// depart stamps what a call is judged by: the instant it leaves, and the epoch and load at that instant.
func (l *lane) depart(now time.Time, t *Ticket) {
	t.sent = now
	if open := l.open + l.others; t.open == 0 || open < t.open { // of calls granted together, each counts those before it
		t.open = open
		t.saturated = l.slots.saturated(open)
	}
	if t.epoch == l.cool.epoch {
		return
	}
	if t.accepted { // it was taken for sent, and so for proven, too early
		t.accepted = false
		l.flight.remove(t)
		l.flight.add(t)
	}
	t.epoch = l.cool.epoch
	t.probe = l.cool.probing
	if t.probe {
		l.cool.unproven++
	}
}

// proof is how long a call has to be alive to count as taken: refusals come fast.
func (l *lane) proof() time.Duration { return max(50*time.Millisecond, 2*l.refusal) }

// prove accepts calls that have been out for longer than refusals take. Silence is no sign of health while the breaker
// is open: what fails may fail slowly.
func (l *lane) prove(now time.Time) {
	if l.breaker.open {
		return
	}
	for {
		t := l.flight.unproven
		if t == nil || now.Sub(t.sent) < l.proof() {
			return
		}
		l.flight.unproven = t.next
		l.accept(now, t)
	}
}

// accept counts a call that the provider has taken.
func (l *lane) accept(now time.Time, t *Ticket) {
	if t.accepted {
		return
	}
	t.accepted = true
	if l.slots.tested(t) {
		l.slots.grow(now, t, l.refusal, l.useful(now))
	}
	if !l.leaveProbe(t) {
		return
	}
	if l.book == nil {
		l.sayProven(now, t)
	}
	if l.cool.proven(l.slots.n()) {
		l.gate.note(Event{Type: EventCooldownEnded, At: now, Lane: l.name})
	}
}

// leaveProbe takes a call out of the count of unproven ones and reports whether it was in it.
func (l *lane) leaveProbe(t *Ticket) bool {
	was := t.probe && t.epoch == l.cool.epoch
	t.probe = false
	if was {
		l.cool.unproven--
	}
	return was
}

// useful is the most slots that the budgets can feed, by Little's law and twice that.
func (l *lane) useful(now time.Time) float64 {
	latency, bound := l.usual(now), 1e9
	for d := Requests; d < NumDimensions; d++ {
		m := &l.mirrors[d]
		if m.limit == 0 || l.meanCost[d] == 0 {
			continue
		}
		level := m.cap
		if l.book != nil {
			l.book.budgets[d].refill(now)
			level = max(0, l.book.budgets[d].level)
		}
		bound = min(bound, 2*latency*(m.rate(d)+level)/l.meanCost[d])
	}
	return max(startSlots, bound)
}

// block accounts for what holds calls back.
func (l *lane) block(now time.Time, blocked bool, cause Dimension) {
	if l.blocked {
		l.bound[l.binding] += now.Sub(l.blockedAt)
	}
	l.blocked, l.binding, l.blockedAt = blocked, cause, now
}

// pausedFor is for how long calls have ever waited for pauses.
func (l *lane) pausedFor(now time.Time) time.Duration {
	d := l.bound[AnyDimension]
	if l.blocked && l.binding == AnyDimension {
		d += now.Sub(l.blockedAt)
	}
	return d
}

func (l *lane) event(typ EventType, now time.Time, t *Ticket) Event {
	return Event{Type: typ, At: now, Lane: l.name, Member: t.Call.Member, Tenant: t.Call.Tenant, Call: t.Call.ID, Attempt: t.Attempt,
		Wait: t.Waited + t.Paused, InFlight: l.open, Slots: l.slots.n(), Waiting: l.order.waiting + len(l.outstanding)}
}

// heldBack is an event of a call that waits, or did until now, with what holds it back.
func (l *lane) heldBack(typ EventType, now time.Time, t *Ticket) Event {
	e := l.event(typ, now, t)
	if l.blocked {
		e.Dimension = l.binding
	}
	return e
}

func (l *lane) snapshot(now time.Time) Snapshot {
	s := Snapshot{Lane: l.name, InFlight: l.open, Waiting: l.order.waiting + len(l.outstanding), Slots: l.slots.n(),
		Until: l.cool.until, Held: l.gate.held, Probing: l.cool.probing, Pause: l.cool.cause, Blocked: l.blocked, Binding: l.binding,
		Bound: l.bound, Throttles: l.throttles, Granted: l.grants}
	if l.blocked {
		s.Bound[l.binding] += now.Sub(l.blockedAt)
	}
	if t := l.flight.head; t != nil {
		s.Oldest = t.sent
	}
	for d := Requests; d < NumDimensions; d++ {
		m := &l.mirrors[d]
		if m.limit == 0 {
			continue
		}
		b := Budget{Dimension: d, Limit: int64(m.limit), Source: m.source, Shared: l.book == nil, Cap: m.cap, Spent: l.sums[d]}
		if l.book != nil {
			l.book.budgets[d].refill(now)
			b.Level = l.book.budgets[d].level
		}
		s.Budgets = append(s.Budgets, b)
	}
	return s
}
