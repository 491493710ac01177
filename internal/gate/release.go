package gate

import "time"

const (
	backoffUnit     = 200 * time.Millisecond
	longestBackoff  = 30 * time.Second
	mostExplained   = 3                // throttles in a row that explain themselves, before the explanation is doubted
	windowPause     = 15 * time.Minute // for a usage window of which nobody says when it ends
	overloadsInARow = 3                // before a whole lane pauses for them
)

// Action is what to do with a call after one try.
type Action uint8

// Actions.
const (
	Done  Action = iota
	Again        // queue it again, at its old place, after Decision.Wait
	GiveUp
)

// Decision is what to do with a call after one try. Throttled tries spend no attempt.
type Decision struct {
	Action   Action
	Wait     time.Duration
	Throttle bool
}

// released takes in what became of a call.
func (l *lane) released(now time.Time, t *Ticket, o *Outcome) Decision {
	l.flight.remove(t)
	l.open--
	l.gate.account.open--
	l.owe(-t.cost[OutputTokens])
	if o.Unsent {
		l.leaveProbe(t)
		l.undo(now, t)
		if o.Kind == Network && !o.Abandoned {
			l.failed(now, t)
		}
	} else {
		l.learn(now, t, o)
	}
	l.recent.leave(t)
	t.tenant.calls--
	d := l.decide(t, o)
	if l.gate.cfg.Observed {
		l.announce(now, t, o, d)
	}
	return d
}

// learn corrects what is believed of the provider by a call that reached it.
func (l *lane) learn(now time.Time, t *Ticket, o *Outcome) {
	l.observe(now, t, o.Readings)
	if o.Kind.Throttle() {
		l.undo(now, t)
		l.heard(now)
		if o.TooLarge {
			l.leaveProbe(t)
			return
		}
		l.throttled(now, t, o)
		return
	}
	if o.Kind == CommandFailed { // whether it reached the provider, nobody knows
		l.leaveProbe(t)
		l.settle(now, t, o)
		return
	}
	l.explainedRow = 0
	l.settle(now, t, o)
	switch o.Kind {
	case Timeout, Network, ServerError:
		l.leaveProbe(t)
		if !o.Abandoned {
			l.failed(now, t)
		}
		return
	case OK, InvalidOutput:
		lat := now.Sub(t.sent)
		if l.latency == 0 {
			l.latency = lat.Seconds()
		}
		l.latency += 0.2 * (lat.Seconds() - l.latency)
		l.slots.answered(now, lat, t.open)
		l.overloadRow = 0
		l.retries.succeeded()
	}
	l.heard(now)
	l.accept(now, t)
}

// heard closes the breaker.
func (l *lane) heard(now time.Time) {
	if l.breaker.answered() {
		l.gate.note(Event{Type: EventBreaker, At: now, Lane: l.name})
	}
}

// undo gives back what a call that counts for nothing was charged, and its tenant's turn.
func (l *lane) undo(now time.Time, t *Ticket) {
	l.gate.settle(now, l, t, t.cost)
	t.tenant.serve(-t.counted)
}

// settle exchanges what was reserved for what was used.
func (l *lane) settle(now time.Time, t *Ticket, o *Outcome) {
	if o.HasUsage {
		l.reserves.learn(t.Call.Cost, o.Usage)
	}
	refund := l.refund(t, o)
	l.recount(t, &refund, o)
	if l.reserves.charge == ChargeActual {
		l.gate.settle(now, l, t, refund)
	}
}

// refund is what a call was charged beyond what it used, which may be less than nothing.
func (l *lane) refund(t *Ticket, o *Outcome) (refund Vector) {
	switch {
	case l.reserves.charge != ChargeActual:
	case o.HasUsage:
		used := l.reserves.actual(o.Usage)
		for d := Tokens; d < NumDimensions; d++ {
			if d != RequestsPerDay {
				refund[d] = t.cost[d] - used[d]
			}
		}
	case o.Kind != OK: // nothing was produced
		out := t.cost[OutputTokens]
		refund[OutputTokens], refund[Tokens], refund[TokensPerDay] = out, out, out
	}
	return refund
}

// failed counts a failure of the infrastructure.
func (l *lane) failed(now time.Time, t *Ticket) {
	l.retries.failed()
	if !l.breaker.failed() {
		return
	}
	if t.epoch == l.cool.epoch {
		l.cool.begin(now, ServerError, breakerPause, 0)
		l.cool.pause(now, now.Add(breakerPause))
		l.gate.note(Event{Type: EventBreaker, At: now, Lane: l.name, Until: l.cool.until})
	}
}

// throttled takes in a refusal: it finds out which of the provider's limits was met, and corrects that one.
func (l *lane) throttled(now time.Time, t *Ticket, o *Outcome) {
	l.throttles++
	if !t.sent.Before(l.emptyAt) {
		l.passed--
	}
	l.refusal += (now.Sub(t.sent) - l.refusal) / 4
	l.leaveProbe(t)
	stale := t.epoch != l.cool.epoch
	switch {
	case o.Kind == UsageWindow:
		l.window(now, o, stale)
	case o.Kind == Overloaded:
		l.overloadRow++
		if o.Wait > 0 || l.overloadRow >= overloadsInARow {
			l.coolDown(now, t, o, stale)
		}
	case o.Dimension == Concurrency && t.open > 1:
		l.slots.refuse(now, t, int(o.Limit))
		l.changed(now, Concurrency, float64(l.slots.n()), SourceRefusal)
	case l.explainedRow < mostExplained && l.explained(now, t, o):
		l.explainedRow++
		if o.Dimension != Requests || o.Wait > l.refill(o.Dimension)+time.Second {
			l.cool.extend(now, o.Wait, l.gate.cfg.random)
		}
	default:
		l.unexplained(now, t, o, stale)
	}
}

// unexplained is a refusal that leaves open whether slots or a rate were exceeded.
func (l *lane) unexplained(now time.Time, t *Ticket, o *Outcome, stale bool) {
	// A told number of slots is believed over the first refusal, not over a second one outside a pause.
	known := l.slots.ceiling > 0 && !l.surprised
	if !l.cool.probing && !stale {
		l.surprised = true
	}
	switch {
	case o.Wait > 0:
		if t.saturated && !known && !stale {
			l.slots.refuse(now, t, 0)
		}
	case t.sent.Before(l.slots.cutAt):
		return // sent before the cut: it says nothing new
	case l.slots.disproved(t):
		l.slots.restore()
	case t.open > 1 && !known && !l.cool.probing:
		l.slots.refuse(now, t, 0)
		return
	}
	l.coolDown(now, t, o, stale)
}

// coolDown pauses the lane, by a new epoch where the call was sent in the current one.
func (l *lane) coolDown(now time.Time, t *Ticket, o *Outcome, stale bool) {
	l.cool.extend(now, o.Wait, l.gate.cfg.random)
	if stale {
		return
	}
	if o.Kind == RateLimit {
		l.measure(now, t)
	}
	l.cool.begin(now, o.Kind, o.Wait, l.refill(Requests))
	l.gate.note(Event{Type: EventCooldownStarted, At: now, Lane: l.name, Until: l.cool.until, Outcome: *o})
}

// window pauses the lane until a day's or a plan's allowance is there again.
func (l *lane) window(now time.Time, o *Outcome, stale bool) {
	if !stale {
		l.cool.begin(now, UsageWindow, 0, 0)
	}
	l.cool.extend(now, o.Wait, l.gate.cfg.random)
	switch {
	case !o.Until.IsZero():
		l.cool.pause(now, o.Until)
	case o.Wait <= 0:
		l.cool.pause(now, now.Add(windowPause))
	}
	if stale {
		return
	}
	l.gate.note(Event{Type: EventCooldownStarted, At: now, Lane: l.name, Until: l.cool.until, Outcome: *o})
}

// Pause pauses a lane for a limit that was met outside of its calls.
func (g *Gate) Pause(now time.Time, lane string, o *Outcome) {
	l := g.lane(now, lane)
	if o.Kind == UsageWindow {
		l.window(now, o, false)
		return
	}
	l.cool.extend(now, o.Wait, g.cfg.random)
	l.cool.begin(now, o.Kind, o.Wait, l.refill(Requests))
	g.note(Event{Type: EventCooldownStarted, At: now, Lane: l.name, Until: l.cool.until, Outcome: *o})
}

// decide says what becomes of the call.
func (l *lane) decide(t *Ticket, o *Outcome) Decision {
	switch {
	case o.Kind == OK:
		return Decision{Action: Done}
	case o.Final:
		return Decision{Action: GiveUp, Throttle: o.Kind.Throttle() && !o.TooLarge}
	case o.Kind.Throttle() && !o.TooLarge:
		d := Decision{Action: Again, Throttle: true}
		if t.Throttles >= l.gate.cfg.MaxThrottles {
			d.Action = GiveUp
		}
		if o.Kind == Overloaded && l.overloadRow < overloadsInARow {
			d.Wait = max(o.Wait, l.gate.cfg.backoff(t.Overloads+1))
		}
		return d
	case o.Kind.Transient() && t.Attempt < l.gate.cfg.Attempts:
		return Decision{Action: Again, Wait: max(o.Wait, l.gate.cfg.backoff(t.Attempt)+l.retries.delay())}
	}
	return Decision{Action: GiveUp}
}

// backoff is a random part of 0.2 s, doubled with each further attempt (full jitter).
func (c *Config) backoff(attempt int) time.Duration {
	most := min(backoffUnit<<min(attempt-1, 20), longestBackoff)
	return time.Duration(c.random(int64(most)))
}

// announce tells of a try that ended, and of what that means for the call.
func (l *lane) announce(now time.Time, t *Ticket, o *Outcome, d Decision) {
	e := l.event(EventSlotReleased, now, t)
	e.Latency, e.Outcome = now.Sub(t.sent), *o
	l.gate.note(e)
	switch {
	case o.Kind == OK || o.Abandoned:
		return
	case o.Kind.Throttle():
		e.Type = EventThrottled
	default:
		e.Type = EventAttemptFailed
	}
	e.Wait = 0
	if d.Action == Again {
		e.Wait = d.Wait
	}
	l.gate.note(e)
	if d.Action == GiveUp && !o.Elsewhere {
		e.Type = EventGaveUp
		l.gate.note(e)
	}
}
