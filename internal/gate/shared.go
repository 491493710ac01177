package gate

import (
	"cmp"
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// The times of a shared ledger.
const (
	Lease     = 6 * time.Second // a slot expires if it is not renewed within it
	Heartbeat = 2 * time.Second // interval of renewals

	slotWait        = time.Second            // maximum time until a member that waits for a slot asks again, if it is not woken
	slotTurn        = 10 * time.Millisecond  // added for each request that goes before it
	longestSlotWait = 10 * time.Second       // maximum of both
	probeWait       = 200 * time.Millisecond // time until a member that waits for the proof of others asks again
	longestTurn     = 4 * time.Second        // maximum time that a member waits for the turns of others: they may be gone
	lateness        = 250 * time.Millisecond // time for which a member that does not ask keeps its turn
	leastWait       = 10 * time.Millisecond  // minimum time between asks, so that one reply grants several requests
	leastTested     = time.Second            // shorter waits are not tested
	grainOf         = 50 * time.Millisecond  // of Reply.Before
)

// Batch is all that a member has to say of a lane at one time. Corrections come first and asks last.
type Batch struct {
	Lane        string
	Corrections []limits.Correction
	Renewed     []uint64 // calls that are open
	Settlements []limits.Settlement
	Waiting     int // see Asks
	Asks        []limits.Ask
	Test        time.Duration // see Asks
}

// Shared is the ledger of several members: the budgets, slots and pauses of lanes, and turns between members that wait. It is
// the model that a shared engine's script is measured by, and as pure as the Gate. The zero value is ready.
type Shared struct {
	lanes map[string]*sharedLane
	all   *sharedLane // of which only budgets, slots and leases count
}

type sharedLane struct {
	book    *Book
	mean    limits.Vector       // cost of a call, of late,
	costs   bool                // which is known
	slots   limits.SlotLimit    // but for Left:
	slotsAt time.Time           // Hold ends then
	leases  map[lease]time.Time // until when
	probes  map[lease]bool      // those that were granted while probing and are not proven
	pause   limits.Pause        // but for Left and Age:
	until   time.Time
	since   time.Time
	silence silence // since the last grant
	test    lease   // of the last test
	turns   map[string]*turn
	virtual float64 // the turn that was served last
	first   first   // of those that wait
	grain   spentAt // the beginning of this grain
	last    spentAt // and of the one before
}

// lease is a call that is open.
type lease struct {
	member string
	id     uint64
}

// turn is a member's place: the member that was served least, by weight, goes first.
type turn struct {
	served  float64
	waiting int       // how many calls of the member do: its weight
	until   time.Time // it waits, and keeps its place until then: others leave it what it needs
	idle    bool      // for what others give back, and not for what flows in: it is to be woken
}

// first is the member that goes first of those that wait, and what its next call costs. If no more than a usual call's cost were
// left to it, small calls of others would keep a large one waiting for ever.
type first struct {
	member string
	cost   limits.Vector
}

// spentAt is what had been spent at an instant.
type spentAt struct {
	at    time.Time
	spent limits.Vector
}

// Exchange takes in what a member says and answers what it asks. wake names a member that waits and should ask now; it may
// be "".
func (s *Shared) Exchange(now time.Time, member string, b *Batch) (r limits.Reply, wake string) {
	l, all := s.lane(b.Lane), s.account()
	l.expire(now)
	all.expire(now)
	for i := range b.Corrections {
		if c := &b.Corrections[i]; c.Account {
			all.correct(now, c)
		} else {
			l.correct(now, c)
		}
	}
	for _, id := range b.Renewed {
		l.leases[lease{member, id}], all.leases[lease{member, id}] = now.Add(Lease), now.Add(Lease)
	}
	for i := range b.Settlements {
		l.settle(now, all, member, &b.Settlements[i])
	}
	if len(b.Asks) > 0 {
		r = l.take(now, all, member, b)
		r.Levels = l.book.levels(now)
	}
	r.State = l.news(now)
	if len(b.Asks) == 0 {
		member = "" // it may have to be told, too
	}
	return r, l.wake(now, all, member)
}

// State returns what is known of a lane.
func (s *Shared) State(now time.Time, lane string) limits.LaneState { return s.lane(lane).news(now) }

func (s *Shared) lane(name string) *sharedLane {
	l := s.lanes[name]
	if l == nil {
		if s.lanes == nil {
			s.lanes = make(map[string]*sharedLane)
		}
		l = newSharedLane()
		s.lanes[name] = l
	}
	return l
}

func (s *Shared) account() *sharedLane {
	if s.all == nil {
		s.all = newSharedLane()
	}
	return s.all
}

func newSharedLane() *sharedLane {
	return &sharedLane{book: newBook(true), leases: make(map[lease]time.Time), probes: make(map[lease]bool), turns: make(map[string]*turn)}
}

// expire removes expired leases.
func (l *sharedLane) expire(now time.Time) {
	for id, until := range l.leases {
		if !until.After(now) {
			delete(l.leases, id)
			delete(l.probes, id)
		}
	}
}

func (l *sharedLane) correct(now time.Time, c *limits.Correction) {
	switch c.Dimension {
	case limits.AnyDimension:
		l.rest(now, &c.Pause)
	case limits.Concurrency:
		if !c.Account && c.Slots.Version != l.slots.Version { // limits of the account replace earlier ones
			return
		}
		l.slots, l.slotsAt = c.Slots, now.Add(c.Slots.Left)
		l.slots.Version++
	default:
		if b := l.book.budgets[c.Dimension]; b.rate == 0 {
			b.level, b.cap, b.at, b.period, b.ends = c.Start, c.Cap, now, 0, time.Time{}
		}
		l.book.correct(now, c)
		l.book.configure(now, c.Dimension, promise{c.Limit, cmp.Or(c.LimitPeriod, c.Dimension.Window()), seconds(c.Burst)})
	}
}

// rest takes in a pause. Only the first of an epoch begins it.
func (l *sharedLane) rest(now time.Time, p *limits.Pause) {
	if p.Epoch > l.pause.Epoch {
		if !l.pause.Probing {
			l.since = now
		}
		l.pause = limits.Pause{Epoch: p.Epoch, Probing: true, Ramp: 1, Cause: p.Cause}
		clear(l.probes)
	}
	if until := now.Add(p.Left); until.After(l.until) {
		l.until = until
	}
}

// settle ends a lease. A request without a lease was settled, or its lease has expired.
func (l *sharedLane) settle(now time.Time, all *sharedLane, member string, s *limits.Settlement) {
	id := lease{member, s.ID}
	if _, ok := l.leases[id]; !ok {
		return
	}
	l.book.refund(now, &s.Refund)
	all.book.refund(now, &s.Refund)
	l.book.guard(now, now.Add(-s.Age), &s.Guarded)
	all.book.guard(now, now.Add(-s.Age), &s.Guarded)
	if s.Proven {
		l.silence.wait = firstSilence
	}
	if s.Proven && l.test == id { // the pause is disproved
		l.test, l.until = lease{}, now
	}
	if s.Proven && l.probes[id] {
		l.pause.Ramp *= 4
		if float64(l.pause.Ramp) >= l.slots.Limit {
			l.pause.Probing = false
			clear(l.probes)
		}
	}
	if s.Proven || !s.Open {
		delete(l.probes, id)
	}
	if !s.Open {
		delete(l.leases, id)
		delete(all.leases, id)
	}
}

// take grants the longest prefix of asks that fits.
func (l *sharedLane) take(now time.Time, all *sharedLane, member string, b *Batch) (r limits.Reply) {
	step := 1 / float64(max(1, b.Waiting))
	t := l.turn(now, member, step)
	t.waiting = max(1, b.Waiting)
	r.Before = l.before(now)
	for ; r.Granted < len(b.Asks); r.Granted++ {
		ask := &b.Asks[r.Granted]
		if !l.costs { // before the first grant
			l.mean, l.costs = ask.Cost, true
		}
		if _, again := l.leases[lease{member, ask.ID}]; again { // the reply was lost
			r.Marks = append(r.Marks, l.book.spent())
			continue
		}
		wait, tested := l.hold(now, all, member, t, ask, b.Test)
		r.Wait, r.Bound = wait.time, wait.bound
		if wait.time > 0 && !tested {
			t.until, t.idle = now.Add(r.Wait+lateness), r.Bound == limits.Concurrency || r.Wait == probeWait && r.Bound == limits.AnyDimension
			if before := l.ahead(now, member, t); before.calls == 0 { // it goes first
				l.first = first{member, ask.Cost}
			}
			return r
		}
		r.Marks = append(r.Marks, l.grant(now, all, lease{member, ask.ID}, ask))
		if l.silence.since = now; tested {
			l.test = lease{member, ask.ID}
			l.silence.failed() // unless it is proven
		}
		l.virtual = max(l.virtual, t.served)
		t.served += step
	}
	t.until, t.idle = time.Time{}, false
	if b.Waiting > len(b.Asks) { // it asks again at once
		t.until = now.Add(lateness)
	}
	return r
}

func (l *sharedLane) grant(now time.Time, all *sharedLane, id lease, ask *limits.Ask) limits.Vector {
	cost := &ask.Cost
	l.book.guard(now, now, &ask.Guarded)
	all.book.guard(now, now, &ask.Guarded)
	for d := range l.mean {
		l.mean[d] += 0.1 * (cost[d] - l.mean[d])
	}
	l.leases[id], all.leases[id] = now.Add(Lease), now.Add(Lease)
	if l.pause.Probing {
		l.probes[id] = true
	}
	all.book.charge(cost)
	return l.book.charge(cost)
}

// turn returns a member's turn. Who comes back does not begin before those that stayed, and the call that it was served last
// counts for what a call counts for now: when a batch begins, its first call is all that waits.
func (l *sharedLane) turn(now time.Time, member string, step float64) *turn {
	t := l.turns[member]
	if t == nil {
		t = new(turn)
		l.turns[member] = t
	}
	if !t.until.After(now) {
		t.served = max(t.served, l.virtual)
	}
	t.served = min(t.served, l.virtual+step)
	return t
}

// before reports whether a member's turn is before that of another. Among equals the name decides.
func (t *turn) before(name string, other *turn, others string) bool {
	return t.served < other.served || t.served == other.served && name < others
}

// ahead is the requests and the cost reserved for members that go first: a request for each, and for the first of them those that it
// takes to catch up.
type ahead struct {
	calls float64
	mean  limits.Vector  // cost of a call
	first *limits.Vector // of the first of them; nil is not known
}

// cost returns the reserved amount in one dimension.
func (a *ahead) cost(d limits.Dimension, cap float64) float64 {
	if a.first == nil {
		return a.calls * a.mean[d]
	}
	return (a.calls-1)*a.mean[d] + min(a.first[d], cap)
}

// ahead returns what a member leaves to those before it.
func (l *sharedLane) ahead(now time.Time, member string, t *turn) ahead {
	members, first, least := 0, "", (*turn)(nil)
	for name, other := range l.turns {
		if name == member || !other.until.After(now) || !other.before(name, t, member) {
			continue
		}
		if members++; least == nil || other.before(name, least, first) {
			first, least = name, other
		}
	}
	if least == nil {
		return ahead{}
	}
	missed := math.Floor((t.served - least.served) * float64(least.waiting))
	a := ahead{calls: float64(members-1) + max(1, min(missed, float64(least.waiting))), mean: l.mean}
	if l.first.member == first {
		a.first = &l.first.cost
	}
	return a
}

// hold returns how long a request has to wait. It reserves room for the members before it. tested reports that it is
// granted all the same, to test the belief that it would wait for.
func (l *sharedLane) hold(now time.Time, all *sharedLane, member string, t *turn, ask *limits.Ask, test time.Duration) (wait delay, tested bool) {
	before := l.ahead(now, member, t)
	pause := delay{max(0, l.until.Sub(now)), limits.AnyDimension}
	if pause.time == 0 && l.pause.Probing && len(l.probes) >= l.pause.Ramp {
		return delay{probeWait, limits.AnyDimension}, false
	}
	belief := pause.or(l.book.waitInTurn(now, &ask.Cost, &before))
	wait = belief
	if test > 0 && belief.time > leastTested {
		if l.silence.wait > firstSilence {
			test = l.silence.wait
		}
		wait.time = max(0, min(l.silence.since.Add(test).Sub(now), belief.time))
		wait = wait.or(l.book.daily(now, &ask.Cost))
	}
	wait = wait.or(all.book.waitInTurn(now, &ask.Cost, &before))
	wait = wait.or(l.book.guarded(now, &ask.Guarded))
	wait = wait.or(all.book.guarded(now, &ask.Guarded))
	turns := time.Duration(before.calls) * slotTurn
	switch free := min(l.room(), all.room()); {
	case wait.time > 0: // it looks for a slot when its level is there
		return wait, false
	case free < 1:
		return delay{min(slotWait+turns, longestSlotWait), limits.Concurrency}, false
	case free < 1+before.calls: // unless they do not come
		return delay{min(lateness+turns, longestSlotWait), limits.Concurrency}, false
	}
	return belief, belief.time > 0
}

// room is how many slots are free.
func (l *sharedLane) room() float64 {
	if l.slots.Limit == 0 {
		return math.Inf(1)
	}
	return math.Floor(l.slots.Limit) - float64(len(l.leases))
}

// waitInTurn returns the time until cost fits beside the amounts that are left to other members, which may be gone.
func (b *Book) waitInTurn(now time.Time, cost *limits.Vector, before *ahead) delay {
	wait := b.waitBehind(now, cost, before)
	if wait.time > longestTurn {
		wait.time = min(wait.time, b.waitBehind(now, cost, &ahead{}).time+longestTurn)
	}
	return wait
}

// waitBehind returns the time until cost fits beside the amounts that are left to other members. It is at least leastWait, so that requests
// that come meanwhile are in the same ask, unless the bucket would be full before.
func (b *Book) waitBehind(now time.Time, cost *limits.Vector, before *ahead) (longest delay) {
	for d, bud := range &b.budgets {
		if bud.rate == 0 || cost[d] == 0 {
			continue
		}
		bud.refill(now)
		short := min(cost[d], bud.cap) + before.cost(limits.Dimension(d), bud.cap) - bud.level - 1e-9
		if short > 0 {
			wait := max(bud.lasts(now, short), min(leastWait, seconds(bud.cap/bud.rate/2)))
			longest = longest.or(delay{wait, limits.Dimension(d)})
		}
	}
	return longest
}

// wake is the member that goes first of those that wait for what others give back, if there is some. It keeps its place for a
// moment. The member that asks is told by its reply.
func (l *sharedLane) wake(now time.Time, all *sharedLane, asks string) string {
	free := min(l.room(), all.room())
	if l.until.After(now) || free < 1 || l.pause.Probing && len(l.probes) >= l.pause.Ramp {
		return ""
	}
	first := ""
	for name, t := range l.turns {
		if !t.idle || name == asks || !t.until.After(now) {
			continue
		}
		if f := l.turns[first]; f == nil || t.before(name, f, first) {
			first = name
		}
	}
	if t := l.turns[first]; t != nil {
		if before := l.ahead(now, first, t); free < 1+before.calls {
			return "" // those that were woken before have it
		}
		t.idle = false
		if late := now.Add(lateness); late.Before(t.until) {
			t.until = late
		}
	}
	return first
}

// before returns what had been spent 50 to 100 ms ago.
func (l *sharedLane) before(now time.Time) limits.Vector {
	switch age := now.Sub(l.grain.at); {
	case age >= 2*grainOf:
		l.grain = spentAt{now, l.book.spent()}
		l.last = l.grain
	case age >= grainOf:
		l.last, l.grain = l.grain, spentAt{now, l.book.spent()}
	}
	return l.last.spent
}

func (l *sharedLane) news(now time.Time) limits.LaneState {
	n := limits.LaneState{Open: len(l.leases), Pause: l.pause, Slots: l.slots}
	n.Slots.Left = max(0, l.slotsAt.Sub(now))
	if l.until.After(now) {
		n.Pause.Left = l.until.Sub(now)
	}
	if l.pause.Probing {
		n.Pause.Age = now.Sub(l.since)
	}
	return n
}
