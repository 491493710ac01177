package gate

import (
	"math"
	"slices"
	"time"
)

// leastHold is how long a lane waits before it asks a remote ledger again that has refused and said nothing.
const leastHold = 5 * time.Millisecond

// One ask of a remote ledger has at most so many calls: twice of what was granted last, within these bounds. What is refused
// costs the ledger as much as what is granted.
const (
	leastAsks = 8
	mostAsks  = 256
)

// said is what a remote ledger was told of a lane's slots and pause, or has told itself.
type said struct {
	slots   SlotLimit
	epoch   uint64
	until   time.Time
	version uint64 // of the slots, as far as is known
}

// ask puts the calls that may go next into one ask of the remote ledger.
func (l *lane) ask(now time.Time) {
	l.wake = now.Add(lookAgain)
	if len(l.outstanding) > 0 {
		return
	}
	if now.Before(l.hold) {
		l.wake = now.Add(min(l.hold.Sub(now), lookAgain))
		return
	}
	room := min(l.slots.n()-l.open, l.most)
	if l.cool.probing {
		room = min(room, l.cool.ramp-l.cool.unproven)
	}
	asks := Asks{Lane: l.name, Waiting: l.order.waiting}
	l.order.asked = math.Inf(1)
	for ; room > 0 && l.order.waiting > 0; room-- {
		t := l.pick(now)
		l.order.remove(t)
		t.cost = l.reserves.cost(t.Call.Cost)
		t.state = asked
		l.outstanding = append(l.outstanding, t)
		asks.Calls = append(asks.Calls, Ask{ID: t.ID, Cost: t.cost})
		q := t.tenant
		q.asked++
		l.order.asked = min(l.order.asked, q.served)
		t.counted = q.served
		q.serve(l.share(&t.cost)) // so that tenants take turns within the ask as well
	}
	for _, t := range slices.Backward(l.outstanding) {
		t.tenant.stand(t.counted)
	}
	l.order.asking = len(l.outstanding) > 0
	l.askedAt = now
	l.block(now, true, Requests) // as good a guess as any, until the ledger says
	l.say(now)
	l.gate.asks = append(l.gate.asks, asks)
}

// replied grants what a remote ledger granted; the rest goes back to the head.
func (l *lane) replied(now time.Time, r Reply) {
	out := l.outstanding
	l.outstanding = nil
	l.learnRoundTrip(now.Sub(l.askedAt))
	l.opens = time.Time{}
	granted := min(r.Granted, len(r.Marks))
	if granted < len(out) || granted == l.most {
		l.most = min(max(leastAsks, 2*granted), mostAsks)
	}
	l.hear(now, &r.News)
	l.others = max(0, r.News.Open-l.open-granted)
	for i, t := range out {
		_, _, shut := l.closed(now) // a pause or a cut may have come since the ask
		wanted := t.state != abandoned
		if i < granted && wanted && !shut {
			t.mark = r.Marks[i]
			for d := range t.early {
				t.early[d] = max(0, t.mark[d]-t.cost[d]-r.Before[d])
			}
			l.grant(now, t)
			t.tenant.asked--
			continue
		}
		if i < granted {
			l.gate.settles = append(l.gate.settles, Settlement{ID: t.ID, Lane: l.name, Refund: t.cost})
		}
		t.state = released
		if wanted {
			l.requeue(t)
		} else {
			t.tenant.calls--
		}
		t.tenant.asked--
	}
	l.order.asking = false
	if granted < len(out) {
		if r.Bound >= NumDimensions {
			r.Bound = AnyDimension
		}
		l.block(now, true, r.Bound)
		l.opens = now.Add(min(r.Wait, longestHint))
		if !l.roused {
			wait := max(0, r.Wait-l.roundTrip) // the next ask is there when the wait is over
			if r.Wait <= 0 {
				wait = leastHold
			}
			l.hold = now.Add(min(wait, lookAgain) + wakeMargin)
		}
	}
	l.roused = false
}

// givenBack has a lane ask soon that was told to wait for what calls give back, as some of its own now do.
func (l *lane) givenBack(now time.Time) {
	if l.blocked && (l.binding == Concurrency || l.binding == AnyDimension) && !l.hold.IsZero() {
		l.hold, l.wake = time.Time{}, now
	}
}

// learnRoundTrip learns how long an ask takes at least. One that took longer was held up on its way there or back: to take it for
// the rule would have the next be there too early, and in vain.
func (l *lane) learnRoundTrip(took time.Duration) {
	if l.roundTrip == 0 || took < l.roundTrip {
		l.roundTrip = took
	}
	l.roundTrip += (took - l.roundTrip) / 64
}

// requeue puts a call that could not be granted back where it was. It asks again under another name: a ledger takes
// nothing twice for the same one.
func (l *lane) requeue(t *Ticket) {
	l.gate.ids++
	t.ID, t.state, t.Front = l.gate.ids, queued, true
	l.order.push(t)
}

// sayProven tells the remote ledger that the provider took a call.
func (l *lane) sayProven(now time.Time, t *Ticket) {
	if t.state == released { // Release says so
		t.proven = true
		return
	}
	l.gate.settles = append(l.gate.settles, Settlement{ID: t.ID, Lane: l.name, Proven: true, Open: true})
	l.givenBack(now)
}

// say tells the remote ledger of slots and a pause that are others than it was told.
func (l *lane) say(now time.Time) {
	if slots := l.slots.shared(now); !slots.same(&l.said.slots) {
		was := l.said.slots.Limit
		l.said.slots = slots
		slots.Version = l.said.version
		if slots.Limit > was {
			l.givenBack(now)
		}
		l.said.version++ // unless another member was faster: then the next reply says so
		l.gate.correct(now, l, Correction{Lane: l.name, Dimension: Concurrency, Slots: slots})
	}
	if c := &l.cool; c.epoch != l.said.epoch || !c.until.Equal(l.said.until) {
		l.said.epoch, l.said.until = c.epoch, c.until
		l.gate.correct(now, l, Correction{Lane: l.name, Dimension: AnyDimension,
			Pause: Pause{Epoch: c.epoch, Left: c.until.Sub(now), Probing: c.probing, Ramp: c.ramp, Cause: c.cause}})
	}
}

// hear takes in what the members share.
func (l *lane) hear(now time.Time, n *News) {
	if n.Slots.Version > 0 && n.Slots.Version >= l.said.version {
		l.slots.adopt(now, &n.Slots)
		l.said.slots, l.said.version = l.slots.shared(now), n.Slots.Version
	}
	c := &l.cool
	if n.Pause.Epoch < c.epoch || n.Pause.Epoch == 0 && n.Pause.Left <= 0 {
		return // the ledger is still to hear of ours
	}
	was := c.probing
	began := n.Pause.Epoch > c.epoch
	c.adopt(now, &n.Pause)
	l.said.epoch, l.said.until = c.epoch, c.until
	switch {
	case began && now.Before(c.until):
		l.gate.note(Event{Type: EventCooldownStarted, At: now, Lane: l.name, Until: c.until, Outcome: Outcome{Kind: c.cause}})
	case was && !c.probing:
		l.gate.note(Event{Type: EventCooldownEnded, At: now, Lane: l.name})
	}
}

// adopt takes over what the members of a lane share of a pause that is not older than this one.
func (c *cooldown) adopt(now time.Time, p *Pause) {
	if p.Epoch > c.epoch {
		*c = cooldown{epoch: p.Epoch, until: c.until, probing: p.Probing, ramp: p.Ramp, since: now.Add(-p.Age), cause: p.Cause}
	}
	c.probing = c.probing && p.Probing
	c.ramp = max(c.ramp, p.Ramp)
	if p.Left > 0 {
		c.pause(now, now.Add(p.Left))
	}
}

// shared is what members share of a limit.
func (s *slots) shared(now time.Time) SlotLimit {
	limit := SlotLimit{Limit: s.limit, Bad: s.bad, Refused: s.refused, Hold: s.hold}
	if s.bad > 0 {
		limit.Left = max(0, s.until.Sub(now))
	}
	return limit
}

// same compares what does not change by itself.
func (s *SlotLimit) same(other *SlotLimit) bool {
	return s.Limit == other.Limit && s.Bad == other.Bad && s.Refused == other.Refused && s.Hold == other.Hold
}

// adopt takes over what the members share. Calls that were sent before a cut of others say nothing new.
func (s *slots) adopt(now time.Time, n *SlotLimit) {
	limit := n.Limit
	if s.ceiling > 0 {
		limit = min(limit, float64(s.ceiling))
	}
	if limit < s.limit {
		s.cutAt, s.cutLen = now, s.limit
	}
	s.limit, s.bad, s.refused, s.hold, s.until = max(1, limit), n.Bad, n.Refused, n.Hold, now.Add(n.Left)
}

// tellAccount tells the remote ledger of what is told for all lanes together.
func (g *Gate) tellAccount(now time.Time, lane string, before, told Limits) {
	fresh := newAccount(now, told)
	for d := Requests; d < NumDimensions; d++ {
		if limitOf(before, d) == limitOf(told, d) && before.Burst == told.Burst {
			continue
		}
		b := &fresh.book.budgets[d]
		g.ids++
		g.fixes = append(g.fixes, Correction{ID: g.ids, Lane: lane, Account: true, Dimension: d, Lo: math.Inf(-1), Hi: math.Inf(1), Rate: b.rate, Cap: b.cap, Start: b.level})
	}
	if before.Concurrent != told.Concurrent {
		g.ids++
		g.fixes = append(g.fixes, Correction{ID: g.ids, Lane: lane, Account: true, Dimension: Concurrency, Slots: SlotLimit{Limit: float64(told.Concurrent)}})
	}
}
