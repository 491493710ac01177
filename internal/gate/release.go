package gate

import (
	"cmp"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

const (
	backoffUnit         = 200 * time.Millisecond
	longestBackoff      = 30 * time.Second
	longestAloneBackoff = time.Second             // maximum of the backoff of an item that fails alone
	windowPause         = 15 * time.Minute        // for a usage window of unknown end
	leastAlone          = 3                       // throttles after which the only item that is left may be given up
	manyAccepted        = 20                      // requests that must have been accepted before
	longestAlone        = 4500 * time.Millisecond // time since the last other item after which it is
	overloadsInARow     = 3                       // overloaded responses in a row that pause a lane
)

// Action is what to do with a call after an attempt.
type Action uint8

// Actions.
const (
	Done  Action = iota
	Again        // queue it again, at its old place, after Decision.Wait
	GiveUp
)

// Decision is what to do with a call after an attempt. Throttled attempts are not counted.
type Decision struct {
	Action   Action
	Wait     time.Duration
	Throttle bool
}

// released takes in the outcome of an attempt.
func (l *lane) released(now time.Time, t *Ticket, o *limits.Outcome) Decision {
	if o.Proxy {
		proxied := *o
		lone := t.open == 1 && now.Sub(l.lastOther) > longestPause
		if proxied.Kind = limits.RateLimit; lone || !l.early(now, t) { // no server is up, or the item is at fault
			proxied.Kind, proxied.Dimension = limits.ServerError, limits.AnyDimension
		}
		o = &proxied
	}
	l.flight.remove(t)
	l.flight.open--
	l.flight.read(t)
	if !o.Kind.Throttle() {
		l.flight.ends++
	}
	l.slots.linger.end(now, l.slots.ceiling)
	if !t.accepted {
		l.flight.unproven--
	}
	l.gate.account.open--
	l.buckets.reserveOutput(-t.cost[limits.OutputTokens])
	if o.Unsent {
		l.leaveProbe(t)
		l.undo(now, t)
		t.tenant.serve(-t.counted)
		if o.Kind == limits.Network && !o.Abandoned {
			l.failed(now, t)
		}
	} else {
		l.learn(now, t, o)
	}
	l.gate.settleGuards(now, l, t, o)
	t.tenant.calls--
	d := l.decide(now, t, o)
	if d.Action != Again {
		l.rejected.over(t)
		l.failures.over(t)
	}
	if l.gate.cfg.Observed {
		l.announce(now, t, o, d)
	}
	return d
}

// reject gives the parts of the lane the evidence of a rejection.
func (l *lane) reject(now time.Time, t *Ticket, o *limits.Outcome) {
	l.silence.keep(now, o)
	if o.Kind != limits.Overloaded && !l.buckets.charged {
		l.undo(now, t)
	}
	if !l.rejected.own(t) { // the tenant of an item at fault would always be next
		t.tenant.serve(-t.counted)
	}
	l.responded(now, t, true)
	l.leaveProbe(t)
	if !o.TooLarge {
		l.throttled(now, t, o)
	}
}

// learn gives each part of the lane the evidence of a response.
func (l *lane) learn(now time.Time, t *Ticket, o *limits.Outcome) {
	t.refused = o.Kind.Throttle()
	if o = l.buckets.law(now, o); t.refused {
		o = l.about(t, o)
	}
	l.buckets.observe(now, t, o.Readings)
	if t.tested.time > 0 && o.Kind != limits.OK {
		l.silence.failed()
	}
	switch {
	case o.Kind.Throttle():
		l.reject(now, t, o)
		return
	case o.Kind == limits.CommandFailed: // it may not have reached the provider
		l.leaveProbe(t)
		l.settle(now, t, o)
		return
	}
	l.buckets.endRow(t)
	l.settle(now, t, o)
	switch o.Kind {
	case limits.Timeout, limits.Network, limits.ServerError:
		l.leaveProbe(t)
		if !o.Abandoned {
			l.failed(now, t)
		}
		return
	case limits.OK, limits.InvalidOutput:
		l.buckets.disprove(now, t)
		if t.Throttles > 0 {
			l.gate.recovered = now
		}
		l.rejected.cleared(t)
		l.failures.cleared(t)
		l.slots.answered(now, now.Sub(t.sent).Seconds(), t.open)
		l.overloads = 0
	}
	if t.epoch == l.cool.epoch {
		l.silence.kept = time.Time{}
	}
	if t.tested.time > 0 && !o.Abandoned {
		l.disproved(now, t)
	}
	l.lastOther = now
	l.responded(now, t, false)
	l.accept(now, t)
}

// disproved notes that a request was accepted although a belief held all others back.
func (l *lane) disproved(now time.Time, t *Ticket) {
	if l.cool.until.After(now) {
		l.cool.until = now
	}
	if t.tested.time <= t.silent/2 { // the belief was right to within its error, and is tested as late again
		l.silence.wait = min(l.silence.wait, max(firstSilence, t.silent))
		return
	}
	l.silence.wait = firstSilence
	each := l.buckets.each[t.tested.bound]
	debt := each.Dimension != limits.Requests && t.tested.time <= longWait // output is charged after it was sent
	if each.header.seen && !debt && l.buckets.book.level(now, t.tested.bound) < t.cost[t.tested.bound] {
		if each.header.wrong++; each.header.wrong >= 2 {
			l.buckets.replace(now, each, each.configured(), each.header.stated)
		}
	}
}

// crowded reports whether a rejection came at once while other requests were in flight.
func (l *lane) crowded(now time.Time, t *Ticket) bool { return t.open > 1 && l.early(now, t) }

// early reports whether a rejection came long before a response would, of an item that is not at fault.
func (l *lane) early(now time.Time, t *Ticket) bool {
	usual := seconds(l.slots.queue.mean)
	return now.Sub(t.sent) < usual/2 && !(t.Throttles >= leastAlone && l.rejected.own(t))
}

// responded notes that the provider responded. If it was down, the pause for that ends.
func (l *lane) responded(now time.Time, t *Ticket, throttled bool) {
	if !l.failures.answered(now, t, throttled) {
		return
	}
	if l.cool.cause == limits.ServerError {
		l.cool.until, l.cool.probing = now, false
	}
	l.gate.note(limits.Event{Type: limits.EventBreaker, At: now, Lane: l.name})
}

// undo gives back the charge of a request that was rejected or not sent.
func (l *lane) undo(now time.Time, t *Ticket) {
	l.buckets.drained(now, &t.cost, -1)
	if l.gate.cfg.Remote {
		l.gate.settle(now, l, t, &t.cost)
		return
	}
	l.buckets.void(now, t)
	if a := &l.gate.account; a.on {
		a.book.refund(now, &t.cost)
	}
}

// settle exchanges the reserved amounts for the used ones.
func (l *lane) settle(now time.Time, t *Ticket, o *limits.Outcome) {
	if o.HasUsage {
		l.buckets.reserves.learn(t.Call.Cost, o.Usage)
		l.buckets.count(t, l.buckets.reserves.ended(t.Call.Cost, o.Usage))
	}
	refund := l.buckets.unused(t, o)
	l.recount(t, &refund, o)
	if refund != (limits.Vector{}) {
		l.buckets.drained(now, &refund, -1)
		l.gate.settle(now, l, t, &refund)
	}
}

// failed takes in a failure of the infrastructure. While the provider is down, a request of the current epoch is a probe.
func (l *lane) failed(now time.Time, t *Ticket) {
	if !l.failures.add(now, t, l.flight.sentBefore) || t.epoch != l.cool.epoch {
		return
	}
	pause := l.failures.pause()
	l.cool.begin(now, limits.ServerError, pause, 0)
	l.cool.pause(now, now.Add(pause))
	l.gate.note(limits.Event{Type: limits.EventBreaker, At: now, Lane: l.name, Until: l.cool.until})
}

// throttled finds the limit that a rejection is about, and corrects it or pauses the lane.
func (l *lane) throttled(now time.Time, t *Ticket, o *limits.Outcome) {
	l.throttles++
	l.flight.rejection += (now.Sub(t.sent) - l.flight.rejection) / 4
	l.buckets.countRejected(t)
	if l.slots.ceiling == 0 { // requests that have ended since then may have ended before it arrived
		t.open = max(1, t.open-(l.flight.ends-t.ends), min(t.open, l.slots.passed+1))
	}
	t.open = max(t.open, min(t.open+l.flight.sentWith(t), l.slots.bad)) // requests of one instant arrive in any order
	t.saturated = t.saturated || l.slots.saturated(t.open)
	unnamed := o.Dimension == limits.AnyDimension && exhausted(o.Readings) == limits.AnyDimension
	own := l.rejected.add(t, l.order.waiting > 0) || unnamed && l.rejected.strays()
	switch {
	case o.Kind == limits.UsageWindow:
		l.window(now, o, t.epoch != l.cool.epoch)
		return
	case o.Dimension == limits.Concurrency && o.Limit == 0 && l.slots.lingered(now, t, true, l.rejected.taken):
		return
	case own:
		l.buckets.acquit(now, t)
		if s := &l.slots; s.refused && s.cutBy == t.item() && !t.sent.Before(s.cutAt) && t.open < s.bad { // it was not about the concurrency
			l.slots.restore()
		}
		return
	case o.Kind == limits.Overloaded && !l.buckets.limited() && l.crowded(now, t):
		if l.slots.crowded(now, t) {
			l.coolDown(now, t, o)
		}
		return
	case o.Kind == limits.Overloaded:
		l.overloads++
		if o.Wait > 0 || l.overloads >= overloadsInARow {
			l.coolDown(now, t, o)
		}
		return
	case o.Dimension == limits.Concurrency && (t.open > 1 || o.Limit > 0):
		l.slots.refuse(now, t, l.flight.open, true, int(o.Limit))
		l.changed(now, limits.Concurrency, float64(l.slots.n()), limits.SourceRejection)
		return
	}
	d, ok := l.buckets.explain(now, t, o)
	switch s := &l.slots; {
	case ok && l.buckets.each[d].Value == 0: // its rate is measured from now on
		l.coolDown(now, t, o)
	case ok:
		if d == o.Dimension && t.Throttles < manyStrays { // not the item's fault, unless it goes on
			delete(l.rejected.pending, t.item())
		}
	case t.saturated && o.Wait == 0 && l.slots.lingered(now, t, false, l.rejected.taken):
	case s.cuts >= maxCuts: // it is about something else
		l.unexplained(now, t, o)
	case t.saturated && t.open > 1 && !(l.cool.probing && l.cool.ramp == 1) && (s.refused || s.ceiling > 0 && l.surprised && t.epoch == l.cool.epoch):
		s.refuse(now, t, l.flight.open, false, 0)
	case l.rejected.passes(t): // a later request had room: this item is at fault
	default:
		l.unexplained(now, t, o)
	}
}

// unexplained applies a rejection by an unknown limit: it lowers the concurrency or pauses the lane.
func (l *lane) unexplained(now time.Time, t *Ticket, o *limits.Outcome) {
	fresh := !l.cool.probing
	if l.slots.ceiling == 0 {
		fresh = fresh || t.epoch != l.cool.epoch // it was sent before the pause, like the one that began it
	} else { // a configured concurrency is believed over the first rejection, not over a second one outside a pause
		fresh = fresh || l.cool.ramp > 1 // some were accepted since the pause
	}
	known := l.slots.ceiling > 0 && !l.surprised
	l.surprised = l.surprised || fresh
	switch {
	case t.sent.Before(l.slots.cutAt): // sent before the cut
		return
	case l.slots.disproved(t):
		l.slots.restore()
	case t.open > 1 && !known && fresh && o.Wait <= longWait: // requests in flight end sooner
		l.slots.refuse(now, t, l.flight.open, false, 0)
	}
	l.coolDown(now, t, o)
}

// coolDown pauses the lane, by a new epoch if the request was sent in the current one.
func (l *lane) coolDown(now time.Time, t *Ticket, o *limits.Outcome) {
	if t.epoch != l.cool.epoch {
		l.cool.extend(now, l.cool.trusted(now, o.Wait), l.gate.cfg.random)
		return
	}
	l.flight.accepted /= 2
	if o.Kind == limits.RateLimit {
		l.cool.burst.rejected(now, t.sent, l.cool.probing)
	}
	if o.Kind == limits.RateLimit && l.buckets.each[limits.Requests].Value == 0 && l.buckets.met(t, o) == limits.AnyDimension {
		l.buckets.emptied(now, t, o, limits.Requests)
	}
	wait := o.Wait
	if o.Until.IsZero() { // an instant is exact
		wait = l.cool.trusted(now, o.Wait)
	}
	l.pause(now, o, wait)
	l.cool.states(now, o.Wait)
}

// pause starts a pause.
func (l *lane) pause(now time.Time, o *limits.Outcome, wait time.Duration) {
	l.cool.extend(now, wait, l.gate.cfg.random)
	l.begin(now, o, wait)
	l.paused(now, o)
}

// begin starts an epoch: with no longer pause where the instant of a reset is stated.
func (l *lane) begin(now time.Time, o *limits.Outcome, wait time.Duration) {
	if o.Until.After(now) {
		l.cool.open(now, o.Kind)
		return
	}
	l.cool.begin(now, o.Kind, wait, l.buckets.refill(limits.Requests))
}

func (l *lane) paused(now time.Time, o *limits.Outcome) {
	l.gate.note(limits.Event{Type: limits.EventCooldownStarted, At: now, Lane: l.name, Until: l.cool.until, Outcome: *o})
}

// window pauses the lane until a day's or a plan's allowance is there again.
func (l *lane) window(now time.Time, o *limits.Outcome, stale bool) {
	if !stale {
		l.begin(now, o, o.Wait)
	}
	l.cool.extend(now, o.Wait, l.gate.cfg.random)
	switch {
	case !o.Until.IsZero():
		l.cool.pause(now, o.Until)
	case o.Wait <= 0:
		l.cool.pause(now, now.Add(windowPause))
	}
	l.silence.kept = l.cool.until
	if !stale {
		l.paused(now, o)
	}
}

// Pause pauses a lane for a limit that was met outside of its calls.
func (g *Gate) Pause(now time.Time, lane string, o *limits.Outcome) {
	l := g.lane(now, lane)
	if o.Kind == limits.UsageWindow {
		l.window(now, o, false)
		return
	}
	l.pause(now, o, o.Wait)
	l.silence.keep(now, o)
}

// decide returns what to do with the call.
func (l *lane) decide(now time.Time, t *Ticket, o *limits.Outcome) Decision {
	if o.Kind == limits.OK {
		return Decision{Action: Done}
	}
	cfg := &l.gate.cfg
	throttle := o.Kind.Throttle() && !o.TooLarge
	if throttle {
		o.Others = l.rejected.others(t)
	} else if o.Kind.Transient() {
		o.Others = l.failures.others(t)
	}
	switch {
	case o.Final:
		return Decision{Action: GiveUp, Throttle: throttle}
	case o.Amended:
		return Decision{Action: Again}
	case throttle:
		d := Decision{Action: Again, Throttle: true, Wait: l.rejected.wait(t)}
		if throttles, patience := cfg.throttles(t); t.Throttles >= throttles && now.Sub(t.Throttled) >= patience {
			d.Action = GiveUp
		}
		if o.Kind == limits.Overloaded && l.overloads < overloadsInARow {
			d.Wait = max(d.Wait, Backoff(t.Overloads+1, cfg.random)) // the lane waits for the stated time
		}
		if left, alone := l.alone(now, t, o); alone && max(0, l.cool.until.Sub(now)) >= left {
			d.Action, o.Others = GiveUp, cmp.Or(o.Others, l.rejected.passed)
			l.cool.until = now // each of the others, which are at fault as well, is tried once more
		} else if left > 0 {
			d.Wait = min(d.Wait, left)
		}
		return d
	case o.Kind.Transient() && t.Attempt < cmp.Or(t.Call.Attempts, cfg.Attempts):
		wait := Backoff(t.Attempt, cfg.random)
		ofProvider := o.Kind == limits.ServerError || o.Kind == limits.Timeout || o.Kind == limits.Network
		if ofProvider && (l.failures.own(t) || l.gate.accepted >= manyAccepted && len(l.failures.pending) <= 1) { // no other item fails
			wait = min(wait, longestAloneBackoff)
		}
		return Decision{Action: Again, Wait: max(o.Wait, wait)}
	}
	return Decision{Action: GiveUp}
}

// alone reports whether a rejected item is the only one that is left and is at fault: others that were sent after its first rejection were
// accepted, and no rejected item succeeded later. left is the time until it is given up, which grows with the number of such items. An item
// much larger than all accepted ones is innocent. A stated wait is kept once. If the rejection states a wait or names a limit, several items
// may have to wait for it, or a large one. If all requests are rejected for DefaultPatience, no item is waited for.
func (l *lane) alone(now time.Time, t *Ticket, o *limits.Outcome) (left time.Duration, alone bool) {
	if due := l.rejected.due(now, t, o.Wait); t.sent.Before(due) {
		return due.Sub(now), false
	}
	if r := l.gate.recovered; !r.IsZero() && now.Sub(r) < maxSpan { // rejected items succeed later
		return 0, false
	}
	last, suspects, busy := time.Time{}, 0, false // lanes may share a limit
	for _, each := range l.gate.sorted {
		if each.lastOther.After(last) {
			last = each.lastOther
		}
	}
	quiet := now.Sub(last) >= DefaultPatience && now.Sub(t.Throttled) >= DefaultPatience
	if _, patience := l.gate.cfg.throttles(t); patience == 0 || o.Kind == limits.UsageWindow || t.Throttles < leastAlone || last.IsZero() ||
		!quiet && (l.gate.accepted < manyAccepted || !l.rejected.own(t) || !l.rejected.taken.After(t.Throttled)) {
		return 0, false
	}
	for _, each := range l.gate.sorted {
		n := len(each.rejected.alone)
		if quiet {
			n += len(each.rejected.pending)
		}
		busy = busy || each.waiting()+each.flight.open > n // others may be at fault, too
		suspects += n
	}
	named := o.Dimension != limits.AnyDimension || o.Limit > 0 || exhausted(o.Readings) != limits.AnyDimension
	reason := (named || o.Wait > 0) && o.Wait <= longWait && !quiet
	if busy || !quiet && l.buckets.larger(t) || reason && (l.waiting()+l.flight.open > 0 || l.buckets.slow(now, t)) {
		return 0, false
	}
	return last.Add(min(longestAlone*time.Duration(max(1, suspects*suspects)), maxSpan)).Sub(now), true
}

// throttles returns the rejections after which a request is given up, and the minimum time after its first rejection.
func (c *Config) throttles(t *Ticket) (most int, patience time.Duration) {
	if n := t.Call.MaxThrottles; n != 0 {
		return max(0, n), 0
	}
	return c.MaxThrottles, c.Patience
}

// Backoff returns a random part of 0.2 s, doubled with each further attempt, at most 30 s (full jitter). random returns a number
// below n.
func Backoff(attempt int, random func(n int64) int64) time.Duration {
	return time.Duration(random(int64(min(backoffUnit<<min(attempt-1, 20), longestBackoff))))
}

// announce reports an attempt that ended, and the decision about the call.
func (l *lane) announce(now time.Time, t *Ticket, o *limits.Outcome, d Decision) {
	e := l.event(limits.EventSlotReleased, now, t)
	e.Latency, e.Outcome = now.Sub(t.sent), *o
	l.gate.note(e)
	switch {
	case o.Kind == limits.OK || o.Abandoned:
		return
	case o.Kind.Throttle():
		e.Type = limits.EventThrottled
	default:
		e.Type = limits.EventAttemptFailed
	}
	e.Wait = 0
	if d.Action == Again {
		e.Wait = d.Wait
	}
	l.gate.note(e)
	if d.Action == GiveUp && !o.Elsewhere {
		e.Type = limits.EventGaveUp
		l.gate.note(e)
	}
}
