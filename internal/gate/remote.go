package gate

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// leastHold is the wait before the next ask if the ledger granted nothing and stated no wait.
const leastHold = 5 * time.Millisecond

// returnedHold is the maximum wait before the next ask after a request that configured limits count less for from then on.
const returnedHold = 250 * time.Millisecond

// An ask has at most twice as many requests as were granted last, within these bounds. A rejected request costs the ledger as much as a
// granted one.
const (
	leastAsks = 8
	mostAsks  = 256
)

// remote is a lane's view of a ledger that other processes share.
type remote struct {
	outstanding []*Ticket        // requests of the ask that has no reply yet
	most        int              // maximum of requests in the next ask
	askedAt     time.Time        // when the last ask was made
	roundTrip   time.Duration    // estimated minimum duration of an ask
	hold        time.Time        // when the lane may ask again
	opens       time.Time        // when the ledger grants again, by its last reply
	bound       limits.Dimension // the limit that it waits for
	test        time.Duration    // of the last ask: see Asks
	roused      bool             // a wake-up arrived while a reply was on its way
	others      int              // requests that other members have in flight
	published   published
}

// published is the concurrency and the pause of a lane as the remote ledger has them.
type published struct {
	slots   limits.SlotLimit
	epoch   uint64
	until   time.Time
	version uint64 // newest known version of slots
}

// ask puts the requests that may be sent next into one ask of the remote ledger.
func (l *lane) ask(now time.Time) {
	l.wake = now.Add(lookAgain)
	if len(l.remote.outstanding) > 0 {
		return
	}
	if now.Before(l.remote.hold) {
		hold := min(l.remote.hold.Sub(now), lookAgain)
		if l.remote.test == 0 {
			hold = min(hold, l.testable(now).Sub(now))
		}
		if hold > 0 {
			l.wake = now.Add(hold)
			return
		}
	}
	room := min(l.slots.n()-l.flight.open, l.remote.most, l.untested(l.buckets.guessed()))
	asks := limits.Asks{Lane: l.name, Waiting: l.order.waiting}
	l.order.asked = math.Inf(1)
	for ; room > 0 && l.order.waiting > 0; room-- {
		if wait, _ := l.buckets.draining(now); wait.time > 0 && len(asks.Calls) > 0 {
			break
		}
		t := l.pick(now)
		l.order.remove(t)
		l.buckets.cost(t.Call.Cost, &t.cost, &t.guarded)
		if test := l.testable(now); len(asks.Calls) == 0 && !test.After(now) {
			asks.Test, room = max(1, test.Sub(l.silence.since)), 1
		}
		l.buckets.weigh(&t.cost, math.Inf(1))
		l.buckets.drained(now, &t.cost, 1)
		t.state = asked
		l.remote.outstanding = append(l.remote.outstanding, t)
		asks.Calls = append(asks.Calls, limits.Ask{ID: t.ID, Cost: t.cost, Guarded: t.guarded})
		q := t.tenant
		q.asked++
		l.order.asked = min(l.order.asked, q.served)
		t.counted = q.served
		q.serve(l.share(&t.cost)) // so that tenants take turns within the ask as well
	}
	for _, t := range slices.Backward(l.remote.outstanding) {
		t.tenant.stand(t.counted)
	}
	l.order.asking = len(l.remote.outstanding) > 0
	l.remote.askedAt, l.remote.test = now, asks.Test
	l.block(now, limits.Requests, l.wake) // a guess until the reply
	l.publish(now)
	l.gate.outbox.asks = append(l.gate.outbox.asks, asks)
}

// testable returns when the lane may ask for a test of the belief by which the ledger holds it back. The ledger keeps configured limits.
func (l *lane) testable(now time.Time) time.Time {
	return l.silence.test(now, &l.buckets.each[l.remote.bound].header, 0)
}

// replied grants the requests that a remote ledger granted, and queues the remaining ones again.
func (l *lane) replied(now time.Time, r limits.Reply) {
	out := l.remote.outstanding
	l.remote.outstanding = nil
	if r.Bound >= limits.NumDimensions {
		r.Bound = limits.AnyDimension
	}
	l.learnRoundTrip(now.Sub(l.remote.askedAt))
	l.remote.opens = time.Time{}
	granted := max(0, min(r.Granted, len(r.Marks), len(out)))
	if granted < len(out) || granted == l.remote.most {
		l.remote.most = min(max(leastAsks, 2*granted), mostAsks)
	}
	l.buckets.mirror(now, &r)
	l.adopt(now, &r.State)
	l.remote.others = max(0, r.State.Open-l.flight.open-granted)
	for i, t := range out {
		_, _, shut := l.closed(now)
		pause := l.cool.until.Sub(now)
		shut = shut || pause > 0 && l.remote.test == 0 // a pause or a cut may have come since the ask
		wanted := t.state != abandoned
		if fits := i < granted; fits && wanted && !shut {
			if t.mark = r.Marks[i]; l.remote.test > 0 {
				t.tested = delay{max(r.Wait, pause), r.Bound}
			}
			for d := range t.early {
				t.early[d] = max(0, t.mark[d]-t.cost[d]-r.Before[d])
			}
			l.grant(now, t)
		} else {
			l.takeBack(now, t, fits)
		}
		t.tenant.asked--
	}
	l.order.asking = false
	if granted < len(out) {
		l.remote.bound = r.Bound
		l.block(now, r.Bound, l.wake)
		l.remote.opens = now.Add(min(r.Wait, longestHint))
		if !l.remote.roused {
			wait := max(0, r.Wait-l.remote.roundTrip) // the next ask is there when the wait is over
			if r.Wait <= 0 {
				wait = leastHold
			}
			l.remote.hold = now.Add(min(wait, lookAgain) + wakeMargin)
		}
	}
	l.remote.roused = false
}

// takeBack gives back the charge of a request that was asked for and may not be sent, and queues it again unless it was cancelled.
func (l *lane) takeBack(now time.Time, t *Ticket, granted bool) {
	if granted {
		l.gate.outbox.settles = append(l.gate.outbox.settles, limits.Settlement{ID: t.ID, Lane: l.name, Refund: t.cost, Guarded: limits.Vector{}.Minus(&t.guarded)})
	}
	l.buckets.drained(now, &t.cost, -1)
	if t.state == abandoned {
		t.state = released
		t.tenant.calls--
		return
	}
	l.requeue(t)
}

// givenBack has the lane ask at once if it waits for slots, as one of its own requests has ended, and soon if it waits for a configured
// limit that counts less for that request from now on.
func (l *lane) givenBack(now time.Time, returned *limits.Vector) {
	for _, each := range l.buckets.perMinute() {
		if soon := now.Add(returnedHold); returned[each.Dimension] < 0 && each.ceiling > 0 && l.remote.hold.After(soon) {
			l.remote.hold, l.wake = soon, soon
		}
	}
	if l.holdup.blocked && (l.holdup.binding == limits.Concurrency || l.holdup.binding == limits.AnyDimension) && !l.remote.hold.IsZero() {
		l.remote.hold, l.wake = time.Time{}, now
	}
}

// learnRoundTrip learns the minimum duration of an ask. A longer ask was delayed on its way. If it counted, later asks would arrive too
// early.
func (l *lane) learnRoundTrip(took time.Duration) {
	if l.remote.roundTrip == 0 || took < l.remote.roundTrip {
		l.remote.roundTrip = took
	}
	l.remote.roundTrip += (took - l.remote.roundTrip) / 64
}

// requeue puts a request that could not be granted back to its place. It gets a new ID, because a ledger charges each ID once.
func (l *lane) requeue(t *Ticket) {
	l.gate.ids++
	t.ID, t.state, t.Front = l.gate.ids, queued, true
	l.order.push(t)
}

// publishProven tells the remote ledger that the provider accepted a request.
func (l *lane) publishProven(now time.Time, t *Ticket) {
	if t.state == released { // Release sends it
		l.gate.outbox.settling.Proven = true
		return
	}
	l.gate.outbox.settles = append(l.gate.outbox.settles, limits.Settlement{ID: t.ID, Lane: l.name, Proven: true, Open: true})
	l.givenBack(now, new(limits.Vector))
}

// publish sends a changed concurrency and a changed pause to the remote ledger.
func (l *lane) publish(now time.Time) {
	if slots := l.slots.shared(now); !sameSlots(&slots, &l.remote.published.slots) {
		was := l.remote.published.slots.Limit
		l.remote.published.slots = slots
		slots.Version = l.remote.published.version
		if slots.Limit > was {
			l.givenBack(now, new(limits.Vector))
		}
		l.remote.published.version++ // if another member was faster, the next reply has its version
		l.gate.correct(now, l, limits.Correction{Lane: l.name, Dimension: limits.Concurrency, Slots: slots})
	}
	if c := &l.cool; c.epoch != l.remote.published.epoch || !c.until.Equal(l.remote.published.until) {
		l.remote.published.epoch, l.remote.published.until = c.epoch, c.until
		l.gate.correct(now, l, limits.Correction{Lane: l.name, Dimension: limits.AnyDimension,
			Pause: limits.Pause{Epoch: c.epoch, Left: c.until.Sub(now), Probing: c.probing, Ramp: c.ramp, Cause: c.cause}})
	}
}

// adopt takes over the concurrency and the pause that the members share.
func (l *lane) adopt(now time.Time, n *limits.LaneState) {
	if n.Slots.Version > 0 && n.Slots.Version >= l.remote.published.version {
		l.slots.adopt(now, &n.Slots)
		l.remote.published.slots, l.remote.published.version = l.slots.shared(now), n.Slots.Version
	}
	c := &l.cool
	if n.Pause.Epoch < c.epoch || n.Pause.Epoch == 0 && n.Pause.Left <= 0 {
		return // the ledger does not have ours yet
	}
	was := c.probing
	began := n.Pause.Epoch > c.epoch
	c.adopt(now, &n.Pause)
	l.remote.published.epoch, l.remote.published.until = c.epoch, c.until
	switch {
	case began && now.Before(c.until):
		l.gate.note(limits.Event{Type: limits.EventCooldownStarted, At: now, Lane: l.name, Until: c.until, Outcome: limits.Outcome{Kind: c.cause}})
	case was && !c.probing:
		l.gate.note(limits.Event{Type: limits.EventCooldownEnded, At: now, Lane: l.name})
	}
}

// adopt takes over a pause that the members share, and that is not older than this one.
func (c *cooldown) adopt(now time.Time, p *limits.Pause) {
	if p.Epoch > c.epoch {
		*c = cooldown{waits: c.waits, epoch: p.Epoch, until: c.until, probing: p.Probing, ramp: p.Ramp, since: now.Add(-p.Age), cause: p.Cause}
	}
	c.probing = c.probing && p.Probing
	proven := p.Ramp > c.ramp
	c.ramp = max(c.ramp, p.Ramp)
	if p.Left > 0 {
		c.pause(now, now.Add(p.Left))
	} else if proven && c.until.After(now) { // by a test
		c.until = now
	}
}

// shared returns the concurrency as members share it.
func (s *slots) shared(now time.Time) limits.SlotLimit {
	limit := limits.SlotLimit{Limit: s.limit, Bad: s.bad, Refused: s.refused, Hold: s.hold}
	if s.bad > 0 {
		limit.Left = max(0, s.until.Sub(now))
	}
	return limit
}

// sameSlots compares the fields that do not change by themselves.
func sameSlots(s, other *limits.SlotLimit) bool {
	return s.Limit == other.Limit && s.Bad == other.Bad && s.Refused == other.Refused && s.Hold == other.Hold
}

// adopt takes over the concurrency that the members share. Requests that were sent before a cut by others are no new evidence.
func (s *slots) adopt(now time.Time, n *limits.SlotLimit) {
	limit := n.Limit
	if s.ceiling > 0 {
		limit = min(limit, float64(s.ceiling))
	}
	if limit < s.limit {
		s.cutAt, s.cutLen = now, s.limit
	}
	s.limit, s.bad, s.refused, s.hold, s.until = max(1, limit), n.Bad, n.Refused, n.Hold, now.Add(n.Left)
}

// publishAccount sends the changed limits that are configured for all lanes together to the remote ledger.
func (g *Gate) publishAccount(now time.Time, lane string, before, configured limits.Limits) {
	fresh := newAccount(now, configured)
	for d := range rates {
		if before.In(d) == configured.In(d) && before.Burst == configured.Burst {
			continue
		}
		b, k := fresh.book.budgets[d], promiseOf(configured, d)
		g.fix(limits.Correction{Lane: lane, Account: true, Dimension: d, Lo: math.Inf(-1), Hi: math.Inf(1),
			Rate: b.rate, Cap: b.cap, Start: b.level, Limit: k.n, LimitPeriod: k.period, Burst: k.burst.Seconds()})
	}
	if before.Concurrency != configured.Concurrency {
		g.fix(limits.Correction{Lane: lane, Account: true, Dimension: limits.Concurrency, Slots: limits.SlotLimit{Limit: float64(configured.Concurrency)}})
	}
}
