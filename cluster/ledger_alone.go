package cluster

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// self names the only member of a ledger that a member has alone.
const self = "self"

// alone is a member's own ledger while the engine is gone: its share of a part of what the members knew to be the limits.
type alone struct {
	part    float64 // of each limit
	members float64
	rank    float64
	shared  gate.Shared
	lanes   map[string]*island
	account debts
	until   time.Time // nothing is granted before: see island
}

// island is a lane of it.
type island struct {
	applied int           // of the lane's corrections
	base    limits.Vector // what was spent before
	own     map[uint64]bool
	sent    map[int64]limits.Vector // what configured limits count, by multiples of partLength
	span    time.Duration           // the longest period of these limits, a minute at least
	until   time.Time               // nothing is granted before, so that these limits have room beside what members sent together
	debts
}

// count notes an amount that configured limits count for what was sent at an instant. What was sent before their periods is forgotten.
func (is *island) count(now, sent time.Time, amount limits.Vector) {
	part, oldest := sent.UnixNano()/int64(partLength), now.Add(-is.span-partLength).UnixNano()/int64(partLength)
	if len(is.sent) > 2*int(is.span/partLength) {
		maps.DeleteFunc(is.sent, func(part int64, _ limits.Vector) bool { return part < oldest })
	}
	if part >= oldest {
		is.sent[part] = sum(is.sent[part], amount, 1)
	}
}

// counted takes those amounts out, the oldest first. For a long period, several parts are put together.
func (is *island) counted(now time.Time) (out []sentAlone) {
	group, last := max(1, int64(is.span/partLength)/300), int64(-1)
	for _, part := range slices.Sorted(maps.Keys(is.sent)) {
		at := time.Unix(0, (part+1)*int64(partLength)).Add(-time.Microsecond)
		if now.Sub(at) > is.span {
			continue
		}
		if n := len(out) - 1; part/group == last {
			out[n] = sentAlone{at, sum(out[n].guarded, is.sent[part], 1)}
			continue
		}
		last, out = part/group, append(out, sentAlone{at, is.sent[part]})
	}
	clear(is.sent)
	return out
}

// debts are what was granted, and how much of that has not flowed in again.
type debts struct {
	spent, owed, rate limits.Vector
	at                time.Time
}

// aloneLocked is the member's own ledger; nil where it has none, because it is to wait or has never heard of the others.
func (l *Ledger) aloneLocked() *alone {
	if l.cfg.Fallback <= 0 || l.seen.members == 0 {
		return nil
	}
	a := &alone{part: min(l.cfg.Fallback, 1), members: float64(l.seen.members), rank: float64(l.seen.rank),
		lanes: make(map[string]*island)}
	for _, ln := range l.lanes {
		a.open(ln, &l.memory)
	}
	return a
}

// open sets up a lane as the member last knew it.
func (a *alone) open(ln *lane, account *memory) *island {
	now := time.Now()
	is := &island{base: readVector(ln.memory.record[fieldSpent]), own: make(map[uint64]bool), sent: make(map[int64]limits.Vector), span: time.Minute}
	if len(a.lanes) == 0 {
		a.until = account.room(now, a.part)
		a.correct(a.until, ln.name, account.corrections(true), &a.account)
	}
	a.lanes[ln.name] = is
	for _, g := range append(ln.memory.guards(), account.guards()...) {
		is.span = max(is.span, g.period)
	}
	is.until = ln.memory.room(now, a.part)
	a.correct(is.until, ln.name, ln.memory.corrections(false), &is.debts)
	return is
}

// correct applies a share of what was said of limits. Levels are the provider's, and say nothing of a share.
func (a *alone) correct(now time.Time, lane string, said []limits.Correction, d *debts) {
	for _, c := range said {
		c.Lane, c.Slots.Version = lane, a.shared.State(now, lane).Slots.Version
		switch c.Dimension {
		case limits.AnyDimension:
		case limits.Concurrency:
			c.Slots.Limit = a.slots(c.Slots.Limit)
		default:
			share := a.part / a.members
			c.Period, c.Left = 0, 0 // members alone use windows evenly
			c.Rate, c.Cap, c.Start, c.Lo, c.Hi = c.Rate*share, c.Cap*share, max(0, c.Start*share), math.Inf(-1), math.Inf(1)
			if c.Dimension < limits.RequestsPerDay {
				c.Start = 0 // others may have emptied it
			}
			if c.Limit *= share; c.Limit > 0 { // room counts on it
				c.Rate = min(c.Rate, c.Limit/cmp.Or(c.LimitPeriod, c.Dimension.Window()).Seconds())
			}
			d.rate[c.Dimension] = c.Rate
		}
		a.shared.Exchange(now, self, &gate.Batch{Lane: lane, Corrections: []limits.Correction{c}})
	}
}

// slots is the member's share of a number of slots: what does not go evenly goes to the first. Less than one is none.
func (a *alone) slots(limit float64) float64 {
	if limit == 0 {
		return 0
	}
	all := math.Floor(a.part * limit)
	each := math.Floor(all / a.members)
	if a.rank < all-each*a.members {
		each++
	}
	return max(each, 0.5)
}

// corrections is what a record says of limits.
func (r *record) corrections(account bool) (out []limits.Correction) {
	configured := [limits.NumDimensions]guard{}
	for _, g := range r.guards() {
		configured[g.dimension] = g
	}
	for d := limits.Requests; d < limits.NumDimensions; d++ {
		b := readBudget(r[fieldBudget+int(d-limits.Requests)], 0) // as it was last
		if b.rate > 0 {
			out = append(out, limits.Correction{Account: account, Dimension: d, Start: b.level, Rate: b.rate, Cap: b.cap,
				Limit: configured[d].limit, LimitPeriod: configured[d].period, Burst: configured[d].burst})
		}
	}
	if limit := readNumbers(r[fieldSlots])[1]; limit > 0 {
		out = append(out, limits.Correction{Account: account, Dimension: limits.Concurrency, Slots: limits.SlotLimit{Limit: limit}})
	}
	return out
}

// takeAlone answers asks from the member's own ledger. It reports false where there is none.
func (l *Ledger) takeAlone(ln *lane, asks *limits.Asks) (limits.Reply, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.alone
	if a == nil || l.returning {
		return limits.Reply{}, false
	}
	now := time.Now()
	is := a.lanes[ln.name]
	if is == nil {
		is = a.open(ln, &l.memory)
	}
	if wait := max(is.until.Sub(now), a.until.Sub(now)); wait > 0 { // budgets are empty then, and refill from there
		return limits.Reply{Wait: wait, Bound: limits.Requests}, true
	}
	for _, f := range ln.corrections[is.applied:] {
		c, d := f.asOf(now), &is.debts
		if c.Account {
			d = &a.account
		}
		a.correct(now, ln.name, []limits.Correction{c}, d)
		is.span = max(is.span, c.LimitPeriod)
	}
	is.applied = len(ln.corrections)
	b := &gate.Batch{Lane: ln.name, Waiting: asks.Waiting, Asks: asks.Calls}
	for id := range ln.open {
		b.Renewed = append(b.Renewed, id)
	}
	r, _ := a.shared.Exchange(now, self, b)
	r.State = limits.LaneState{Open: r.State.Open} // what is known of slots and pauses stays so
	r.Before = sum(r.Before, is.base, 1)
	for i := range r.Granted {
		ask := &asks.Calls[i]
		r.Marks[i] = sum(r.Marks[i], is.base, 1)
		ln.open[ask.ID], is.own[ask.ID] = true, true
		is.owe(now, ask.Cost)
		is.count(now, now, ask.Guarded)
		a.account.owe(now, ask.Cost)
	}
	return r, true
}

// settleAloneLocked ends a call while the engine is gone. It reports whether there is nothing to tell the engine of it, because the
// member granted it by itself, and whether one that waits should ask now.
func (l *Ledger) settleAloneLocked(ln *lane, s limits.Settlement) (done, awake bool) {
	a := l.alone
	if a == nil || a.lanes[ln.name] == nil {
		return false, false
	}
	is := a.lanes[ln.name]
	own := is.own[s.ID]
	if !own {
		s.Refund, s.Guarded = limits.Vector{}, limits.Vector{} // they were not taken from here
	}
	now := time.Now()
	_, woken := a.shared.Exchange(now, self, &gate.Batch{Lane: ln.name, Renewed: []uint64{s.ID}, Settlements: []limits.Settlement{s}})
	if !own || s.Open {
		return own, woken == self
	}
	delete(is.own, s.ID)
	is.owe(now, sum(limits.Vector{}, s.Refund, -1))
	is.count(now, now.Add(-s.Age), s.Guarded)
	a.account.owe(now, sum(limits.Vector{}, s.Refund, -1))
	return true, woken == self
}

// owe notes what was granted.
func (d *debts) owe(now time.Time, cost limits.Vector) {
	passed := 0.0
	if !d.at.IsZero() {
		passed = now.Sub(d.at).Seconds()
	}
	d.at = now
	for i := range cost {
		d.spent[i] += cost[i]
		d.owed[i] = max(0, d.owed[i]-d.rate[i]*passed)
		if d.rate[i] > 0 {
			d.owed[i] += cost[i]
		}
	}
}

// settled takes the debts out, to be told to the engine.
func (d *debts) settled(now time.Time) (owed, spent limits.Vector) {
	d.owe(now, limits.Vector{})
	owed, spent = d.owed, d.spent
	d.owed, d.spent = limits.Vector{}, limits.Vector{}
	return owed, spent
}

// confessLocked is what the engine is to be told of calls of the lane that it did not grant: what it has not heard yet, once
// more, or what came since. From then on those that are open are as any others.
func (l *Ledger) confessLocked(ln *lane) *outage {
	if ln.outage != nil || l.alone == nil || l.alone.lanes[ln.name] == nil {
		return ln.outage
	}
	is, now := l.alone.lanes[ln.name], time.Now()
	owed, spent := is.settled(now)
	if spent == (limits.Vector{}) {
		return nil
	}
	l.outages++
	ln.outage = &outage{number: l.outages, owed: owed, spent: spent, sent: is.counted(now)}
	ln.outage.owedAll, _ = l.alone.account.settled(now)
	clear(is.own)
	return ln.outage
}

func sum(a, b limits.Vector, sign float64) limits.Vector {
	for d := range a {
		a[d] += sign * b[d]
	}
	return a
}
