package gate

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// lookAgain is how often a lane with waiting requests is looked at when nothing is due earlier.
const lookAgain = time.Minute

// lane is requests that share the same limits. Its parts own their evidence; the lane asks each of them whether a request may be sent, and
// gives each of them the responses to learn from.
type lane struct {
	name     string
	gate     *Gate
	used     time.Time // when a request last asked or ended
	order    order     // requests that wait
	buckets  buckets   // rate limits
	slots    slots     // concurrency
	cool     cooldown  // pauses
	rejected suspects  // items that are rejected
	failures failures  // items that fail
	flight   flight    // requests in flight
	remote   remote    // the view of a ledger that other processes share
	holdup   holdup    // the reason why requests wait

	overloads int  // overloaded responses in a row
	surprised bool // a rejection came that no limit explained
	stuck     bool // see Gate.pump
	turning   bool // the pause is for the end of a window
	silence   silence
	wake      time.Time
	lastOther time.Time // arrival of the last response that was no rejection

	throttles, grants int
}

func newLane(now time.Time, g *Gate, name string) *lane {
	l := &lane{name: name, gate: g, used: now, remote: remote{most: mostAsks}}
	l.flight.rejection = firstRejection
	l.buckets.lane, l.buckets.opened = l, now
	l.buckets.reserves.charge, l.buckets.reserves.cached = g.cfg.Charge, g.cfg.CountsCached
	l.buckets.book = newBook(false)
	l.order.weights = g.cfg.Weights
	l.slots = newSlots(now, g.cfg.Limits.Concurrency, g.cfg.Start.Concurrency)
	l.buckets.open(now, g.cfg.Limits, g.cfg.Start)
	l.buckets.publish(now)
	for d := range g.joints {
		l.buckets.partake(now, limits.Dimension(d), nil)
	}
	if l.buckets.limit(limits.Requests) > 0 && l.slots.ceiling == 0 && l.slots.bad == 0 {
		l.slots.limit = l.useful(now)
	}
	l.buckets.report(now)
	if l.slots.ceiling > 0 {
		l.changed(now, limits.Concurrency, float64(l.slots.ceiling), limits.SourceConfigured)
	}
	return l
}

// silence has one request test a belief that holds all others back.
type silence struct {
	since time.Time     // since when requests wait and none is sent
	wait  time.Duration // the time after which one is sent
	kept  time.Time     // the end of a usage window, or of the time that a rejection stated, at most longestSilence after it
}

const (
	firstSilence   = 10 * time.Second // doubled with each test that is rejected
	longestSilence = 10 * time.Minute
)

// test returns when a belief about a limit is tested by one request. firm is the time for which no belief, but a configured limit holds
// requests back.
func (s *silence) test(now time.Time, h *headerView, firm time.Duration) time.Time {
	if s.since.IsZero() {
		s.since = now
	}
	at := s.since.Add(max(s.wait, firstSilence))
	if s.wait <= firstSilence && s.since.Before(h.wholeAt) && h.wholeAt.Before(at) {
		at = h.wholeAt
	}
	if at.Before(s.kept) {
		at = s.kept
	}
	if until := now.Add(firm); firm > 0 && at.Before(until) {
		at = until
	}
	return at
}

// keep notes the time that a rejection states. An instant is exact.
func (s *silence) keep(now time.Time, o *limits.Outcome) {
	wait := o.Wait
	for i := range o.Readings {
		if r := &o.Readings[i]; r.Remaining == 0 {
			wait = max(wait, r.Reset)
		}
	}
	for _, until := range [...]time.Time{now.Add(min(wait+wait/25, longestSilence)), o.Until} { // after the end of the pause
		if until.After(s.kept) {
			s.kept = until
		}
	}
}

// failed notes that a test was rejected or failed.
func (s *silence) failed() { s.wait = min(2*max(s.wait, firstSilence), longestSilence) }

// pump grants until something holds the next request back.
func (l *lane) pump(now time.Time) {
	for l.order.waiting > 0 && l.step(now) {
	}
	l.settled(now)
}

// renew accepts requests that have been in flight for long enough, and raises the pace of the bucket that holds requests back.
func (l *lane) renew(now time.Time) {
	if l.failures.pauses == 0 { // silence is no sign of health while the provider is down: requests may fail slowly
		for t := l.flight.proven(now); t != nil; t = l.flight.proven(now) {
			if !l.gate.cfg.Remote || t.tested.time == 0 { // only a response disproves what members share
				l.accept(now, t)
			}
		}
	}
	if l.holdup.blocked {
		l.buckets.exceed(now, l.holdup.binding)
	}
}

// settled ends a round of grants.
func (l *lane) settled(now time.Time) {
	if l.waiting() == 0 {
		l.silence.since = time.Time{}
		l.holdup.set(now, false, limits.AnyDimension)
		l.wake = time.Time{}
	}
	if l.gate.cfg.Remote {
		l.publish(now)
	}
}

// block notes that requests wait for a limit until an instant.
func (l *lane) block(now time.Time, cause limits.Dimension, until time.Time) {
	l.holdup.set(now, true, cause)
	l.wake = until
}

// step grants the next of the requests that wait, and reports whether it could.
func (l *lane) step(now time.Time) bool {
	pause := delay{time: max(0, l.cool.until.Sub(now))}
	if !l.gate.held && l.holds(now, pause, 0) {
		return false
	}
	if cause, until, closed := l.closed(now); closed {
		l.block(now, cause, until)
		return false
	}
	wait, firm := l.buckets.draining(now)
	if l.gate.cfg.Remote {
		if !l.holds(now, wait, firm) {
			l.ask(now)
		}
		return false
	}
	t := l.pick(now)
	l.buckets.cost(t.Call.Cost, &t.cost, &t.guarded)
	need := t.cost
	l.buckets.weigh(&need, maxSpare)
	room, configured := l.gate.waitFor(now, l, &need, &t.guarded)
	if l.holds(now, wait.or(room), max(firm, configured)) {
		return false
	}
	if l.buckets.turned(now) {
		l.cool.open(now, limits.RateLimit)
		l.turning = true
		return true
	}
	if t.tested = wait.or(room); t.tested.time == 0 {
		t.tested = pause
	}
	l.buckets.weigh(&t.cost, math.Inf(1))
	l.gate.charge(now, l, t)
	l.buckets.drained(now, &t.cost, 1)
	l.order.remove(t)
	l.grant(now, t)
	return true
}

// holds reports whether a belief holds requests back for that time, of which the firm part is by configured limits, and blocks the lane then. It
// does not if one request is to test the belief.
func (l *lane) holds(now time.Time, wait delay, firm time.Duration) bool {
	if wait.time > 0 {
		h := &l.buckets.each[wait.bound].header
		test := l.silence.test(now, h, firm)
		if f := &h.fixed; f.untested && l.flight.unproven == 0 && firm == 0 {
			f.untested, test = false, now
		}
		wait.time = min(wait.time, test.Sub(now))
	}
	if wait.time <= 0 {
		return false
	}
	until := now.Add(min(wait.time, lookAgain))
	if wait.bound != limits.AnyDimension { // a level
		until = until.Add(wakeMargin)
	}
	l.block(now, wait.bound, until)
	return true
}

// closed reports whether the lane may send nothing now, the reason, and when to look again.
func (l *lane) closed(now time.Time) (cause limits.Dimension, until time.Time, closed bool) {
	if l.gate.held {
		return limits.AnyDimension, now.Add(lookAgain), true
	}
	lingering, ends := l.slots.linger.count(now)
	full := l.flight.open+lingering+len(l.remote.outstanding) >= l.slots.n() || l.gate.account.full()
	if rate, guessed := l.buckets.guessed(); !full && l.untested(rate, guessed) > 0 {
		if guessed || l.buckets.book.guards[limits.Requests] != nil {
			until = l.spaced()
		}
		if gap, last := l.slots.testGap(), l.flight.tail; gap > 0 && last != nil && last.sent.Add(gap).After(until) {
			until = last.sent.Add(gap)
		}
		return limits.Concurrency, until, until.After(now)
	}
	look := now.Add(lookAgain)
	for _, each := range l.gate.sorted {
		if t := each.flight.oldest; t != nil && each.failures.pauses == 0 && (each == l || !full) {
			if proof := t.sent.Add(each.flight.proof()); proof.Before(look) {
				look = proof
			}
		}
	}
	if lingering > 0 && ends.Before(look) {
		look = ends
	}
	if full || !l.cool.probing {
		return limits.Concurrency, look, true
	}
	return limits.AnyDimension, look, true
}

// untested returns how many requests may be sent before requests in flight are accepted. It is bounded after a pause, and while no
// rate limit is known. See buckets.guessed for the arguments.
func (l *lane) untested(rate float64, guessed bool) int {
	left := math.MaxInt
	if l.cool.probing {
		left = l.cool.ramp - l.cool.unproven
	}
	accepted, c := l.flight.accepted, l.slots.ceiling
	switch limited := !guessed || rate > 0; {
	case l.failures.pauses > 0, limited && c > 0: // what was sent to a provider that is down may hang
		return left
	case limited && guessed: // so may the levels be
		return min(left, trial(accepted)+int(2*rate*l.flight.proof().Seconds())-l.flight.unproven)
	case limited: // the concurrency may be lower than the levels
		return min(left, firstTrial+3*l.gate.accepted-l.flight.unproven)
	case c == 0:
		return min(left, 2*trial(l.gate.accepted)-l.gate.unproven(), trial(accepted)-l.flight.unproven)
	case c/2+accepted >= c:
		return left
	case accepted > 1: // half of a configured concurrency is tried next, and then all
		return min(left, c/2+accepted-l.flight.unproven)
	}
	return min(left, trial(accepted)-l.flight.unproven)
}

// spaced returns when the next request may be sent where a limit may be met by surprise, as a configured one that the provider counts in another
// way: only few are sent within the time that its first rejection takes.
func (l *lane) spaced() time.Time {
	if l.slots.ceiling > 0 || l.gate.cfg.Start.Concurrency > 0 {
		return time.Time{}
	}
	t := l.flight.tail
	for n := max(leastVolley, trial(l.flight.accepted)/4); t != nil && n > 1; n-- {
		t = t.prev
	}
	if t == nil {
		return time.Time{}
	}
	return t.sent.Add(volleyTime)
}

// pick returns the request that goes next. After a pause it is one with the fewest attempts.
func (l *lane) pick(now time.Time) *Ticket {
	switch probe := l.cool.probing && l.cool.ramp == 1; {
	case probe && l.failures.pauses > 0:
		return l.order.untried(l.gate.cfg.random)
	case probe || l.buckets.explained > 0: // the oldest may be at fault
		return l.order.leastTried(now)
	}
	return l.order.next(now)
}

// grant gives a charged request its permit.
func (l *lane) grant(now time.Time, t *Ticket) {
	l.buckets.room(t)
	t.state = held
	if !l.silence.since.IsZero() {
		t.silent = now.Sub(l.silence.since)
	}
	l.silence.since = now
	l.flight.open++
	l.flight.unread++
	l.flight.unproven++
	t.unread = true
	l.gate.account.open++
	l.grants++
	l.waited(now, t)
	t.tenant.turn = t.ID
	l.count(t)
	l.buckets.spend(now, t)
	t.epoch = l.cool.epoch - 1 // stamped below
	l.depart(now, t)
	if !t.probe {
		l.cool.burst.sent(now, t.own[limits.Requests]-t.cost[limits.Requests])
	}
	l.flight.add(t)
	l.gate.granted = append(l.gate.granted, t)
	if l.gate.cfg.Observed {
		l.gate.note(l.heldBack(limits.EventSlotAcquired, now, t))
	}
}

// waited notes how long a request waited, now that this is over.
func (l *lane) waited(now time.Time, t *Ticket) {
	t.Paused = l.holdup.paused(now) - t.pausedAt
	t.Waited = now.Sub(t.asked) - t.Paused
}

// depart stamps a request with the instant at which it is sent, the epoch and the requests in flight.
func (l *lane) depart(now time.Time, t *Ticket) {
	t.sent, t.ends = now, l.flight.ends
	t.inFlight = l.flight.open + l.remote.others
	lingering, _ := l.slots.linger.count(now)
	if open := t.inFlight + lingering; t.open == 0 || open < t.open { // of requests granted together, each counts those before it
		t.open = open
		t.saturated = l.slots.saturated(open)
	}
	if t.epoch == l.cool.epoch {
		return
	}
	if t.accepted { // it was sent later than assumed
		t.accepted = false
		l.flight.unproven++
		l.flight.remove(t)
		l.flight.add(t)
	}
	t.epoch = l.cool.epoch
	t.probe = l.cool.probing
	if t.probe {
		l.cool.unproven++
	}
}

// accept takes in that the provider has accepted a request.
func (l *lane) accept(now time.Time, t *Ticket) {
	if t.accepted {
		return
	}
	t.accepted = true
	l.flight.accepted++
	l.gate.accepted++
	if t.state == held {
		l.flight.unproven--
	}
	if l.rejected.take(t); l.rejected.began() {
		l.buckets.retest(now)
	}
	if each := l.buckets.each[t.tested.bound]; l.buckets.bare(each) && t.tested.time > 0 { // it was not used up
		l.buckets.replace(now, each, each.configured(), each.header.ignored)
	}
	l.cool.took(t.sent)
	if each := l.buckets.each[limits.Requests]; l.slots.accepted(t, l.flight.ends-t.ends) && each.Value == 0 {
		each.empty = emptied{}
	}
	l.buckets.enlarge(t)
	if l.slots.tested(t) {
		l.slots.grow(now, t, l.flight.rejection, l.useful(now))
	}
	probe := l.leaveProbe(t)
	if probe && l.cool.ramp == 1 {
		l.silenceOver(now, t)
	}
	if l.gate.cfg.Remote && (probe || t.tested.time > 0) {
		l.publishProven(now, t)
	}
	if probe && l.cool.proven(l.slots.n()) {
		l.gate.note(limits.Event{Type: limits.EventCooldownEnded, At: now, Lane: l.name})
	}
}

// leaveProbe takes a request out of the unproven ones after a pause and reports whether it was one of them.
func (l *lane) leaveProbe(t *Ticket) bool {
	was := t.probe && t.epoch == l.cool.epoch
	t.probe = false
	if was {
		l.cool.unproven--
	}
	return was
}

// useful returns the maximum of requests in flight that can be of use.
func (l *lane) useful(now time.Time) float64 {
	latency := l.flight.usual(now, l.slots.queue.mean)
	if latency == 0 {
		latency = slowResponse
	}
	return max(startSlots, l.buckets.feeds(now, latency))
}

// changed reports a limit that has changed.
func (l *lane) changed(now time.Time, d limits.Dimension, limit float64, source limits.Source) {
	l.gate.note(limits.Event{Type: limits.EventLimitsChanged, At: now, Lane: l.name, Dimension: d, Limit: int64(limit), Source: source})
}

func (l *lane) event(typ limits.EventType, now time.Time, t *Ticket) limits.Event {
	return limits.Event{Type: typ, At: now, Lane: l.name, Member: t.Call.Member, Tenant: t.Call.Tenant, Call: t.Call.ID, Attempt: t.Attempt,
		Wait: t.Waited + t.Paused, InFlight: l.flight.open, Slots: l.slots.n(), Waiting: l.waiting()}
}

// waiting is the number of requests that wait.
func (l *lane) waiting() int { return l.order.waiting + len(l.remote.outstanding) }

// heldBack is an event of a request that waits, or did until now, with the limit that holds it back.
func (l *lane) heldBack(typ limits.EventType, now time.Time, t *Ticket) limits.Event {
	e := l.event(typ, now, t)
	if l.holdup.blocked {
		e.Dimension = l.holdup.binding
	}
	return e
}

func (l *lane) snapshot(now time.Time) limits.LaneSnapshot {
	s := limits.LaneSnapshot{Lane: l.name, InFlight: l.flight.open, Waiting: l.waiting(), Slots: l.slots.n(),
		Until: l.cool.until, Held: l.gate.held, Probing: l.cool.probing, Pause: l.cool.cause,
		Blocked: l.holdup.blocked, Binding: l.holdup.binding, Bound: l.holdup.total(now),
		Budgets: l.buckets.snapshot(now), Throttles: l.throttles, Granted: l.grants}
	if t := l.flight.head; t != nil {
		s.Oldest = t.sent
	}
	return s
}

// holdup is the reason why requests wait, and for how long each reason has held.
type holdup struct {
	blocked bool
	binding limits.Dimension // AnyDimension: a pause
	since   time.Time
	times   [limits.NumDimensions]time.Duration
}

func (h *holdup) set(now time.Time, blocked bool, cause limits.Dimension) {
	if h.blocked {
		h.times[h.binding] += now.Sub(h.since)
	}
	h.blocked, h.binding, h.since = blocked, cause, now
}

// total is how long requests have waited for each reason.
func (h *holdup) total(now time.Time) [limits.NumDimensions]time.Duration {
	times := h.times
	if h.blocked {
		times[h.binding] += now.Sub(h.since)
	}
	return times
}

// paused is how long requests have waited for pauses.
func (h *holdup) paused(now time.Time) time.Duration {
	if h.blocked && h.binding == limits.AnyDimension {
		return h.times[limits.AnyDimension] + now.Sub(h.since)
	}
	return h.times[limits.AnyDimension]
}
