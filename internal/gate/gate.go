// Package gate is the admission state machine: it decides which request is sent next, and when. It is pure: every method takes the
// instant, and nothing here locks, sleeps, starts a goroutine or reads a clock. The Scheduler in the root package does that.
//
// A Gate has lanes, and a lane is made of parts:
//
//   - order: the requests that wait
//   - buckets: rate limits and the evidence for them
//   - slots: concurrency
//   - cooldown: pauses
//   - suspects and failures: items that are rejected or fail
//   - flight: requests in flight
//   - remote: the view of a shared ledger
//
// The file lane.go grants requests; release.go gives each response to the parts that learn from it.
package gate

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/planted"
	"github.com/sluice-llm/sluice/limits"
)

// Defaults of a request, for all that count attempts.
const (
	DefaultAttempts     = 6
	DefaultMaxThrottles = 20
	DefaultPatience     = 10 * time.Minute // with DefaultMaxThrottles: a limit's window may be that long, and state no wait
)

// Config shapes a Gate. Zero fields have no defaults: the Scheduler fills them.
type Config struct {
	Limits       limits.Limits // of each lane
	Account      limits.Limits // of all lanes together
	Start        limits.Limits
	Published    map[string]limits.Limits // by lane: see SetPublished
	Charge       limits.Charge
	CountsCached bool
	Attempts     int
	MaxThrottles int           // rejections after which a request is given up
	Patience     time.Duration // minimum time after its first rejection before a request is given up for rejections
	Weights      map[string]float64
	Remote       bool // budgets are in a ledger that answers later: see Asks
	Observed     bool // somebody wants Events

	// Random returns a number below n. Nil: the process's own source. Set it for repeatable runs.
	Random func(n int64) int64
}

// random is a number below n.
func (c *Config) random(n int64) int64 {
	if c.Random != nil {
		return c.Random(n)
	}
	return rand.Int64N(n)
}

// Gate admits the calls of one account. It is not safe for concurrent use.
type Gate struct {
	cfg       Config
	account   account
	lanes     map[string]*lane
	sorted    []*lane                      // by name
	held      bool                         // nothing is sent
	joints    [limits.NumDimensions]*joint // limits that lanes share
	joined    bool                         // lanes share a limit
	accepted  int                          // requests that were accepted
	recovered time.Time                    // when an item succeeded last that had been rejected
	total     limits.Vector                // total that was charged in the lanes that may share a limit: see buckets.counts
	last      *lane                        // the one that was asked for last
	ids       uint64
	granted   []*Ticket
	events    []limits.Event
	outbox    outbox
}

// outbox is the messages to a remote ledger that are not sent yet.
type outbox struct {
	fixes    []limits.Correction
	settles  []limits.Settlement
	settling limits.Settlement // of the request that is being released
	asks     []limits.Asks
}

// Ticket is a call's way through the gate: queued, perhaps asked for, granted, released.
type Ticket struct {
	Call      limits.Call
	ID        uint64
	Attempt   int       // number of this attempt, from 1
	Throttles int       // earlier attempts that were rejected
	Throttled time.Time // when the first of them was rejected
	Overloads int       // the part of them that met an overloaded provider
	Queued    time.Time // when the call first asked; the gate sets it if it is zero
	Order     uint64    // tells calls that asked at the same instant apart; the gate sets it if it is zero
	Front     bool      // the call comes back, and takes its old place
	Ready     chan struct{}
	Left      bool // somebody said that the call was sent; for the Scheduler

	// How long the last try waited, and for what. Set when it is granted or cancelled.
	Waited, Paused time.Duration

	lane       *lane
	tenant     *tenant
	state      state
	prev, next *Ticket
	asked      time.Time
	pausedAt   time.Duration

	sent       time.Time
	epoch      uint64
	inFlight   int // requests in flight when it was sent, itself included
	open       int // inFlight, and the ended requests that may still count
	moment     *moment
	saturated  bool
	probe      bool
	accepted   bool
	refused    bool          // its response is a rejection
	unread     bool          // no header of its response has come
	tested     delay         // the belief that it tests, which holds all others back for that time; 0 is none
	silent     time.Duration // time without a request before it, while requests waited
	cost, mark limits.Vector
	guarded    limits.Vector                 // amounts that configured limits count for it
	ends       int                           // requests of its lane that had ended when it was sent
	own        limits.Vector                 // total that was charged in its lane, itself included
	total      limits.Vector                 // gate.total, itself included; and own if its lane does not count for that
	room       [limits.NumDimensions]float32 // see buckets.room
	counted    float64                       // to its tenant: see share.go
	openOutput float64
	part       rules // see buckets.count
	tallied    rules // total of tally, itself included

	early limits.Vector // amounts that a remote ledger charged other requests just before; see Ticket.sooner
}

type state uint8

const (
	idle state = iota
	queued
	asked
	abandoned // cancelled while its ask is out
	held
	released
)

// Granted reports whether the ticket holds a permit.
func (t *Ticket) Granted() bool { return t.state == held }

// Released reports whether the ticket's permit was given back.
func (t *Ticket) Released() bool { return t.state == released }

// Sent is when the call was sent.
func (t *Ticket) Sent() time.Time { return t.sent }

// New returns a gate.
func New(cfg Config) *Gate {
	return &Gate{cfg: cfg, lanes: make(map[string]*lane)}
}

// lane returns the named lane, opened at its first call.
func (g *Gate) lane(now time.Time, name string) *lane {
	if g.last != nil && g.last.name == name {
		return g.last
	}
	l := g.lanes[name]
	if l == nil {
		if !g.account.on && (len(g.lanes) > 0 || g.cfg.Account != g.cfg.Limits || g.cfg.Remote) { // else the one lane's own limits are these
			g.openAccount(now)
		}
		if g.cfg.Remote && len(g.lanes) == 0 {
			g.publishAccount(now, name, limits.Limits{}, g.cfg.Account)
		}
		g.forget(now)
		l = newLane(now, g, name)
		g.lanes[name] = l
		i, _ := slices.BinarySearchFunc(g.sorted, name, func(l *lane, name string) int { return strings.Compare(l.name, name) })
		g.sorted = slices.Insert(g.sorted, i, l)
	}
	g.last = l
	return l
}

// Exceeded returns the limit into which a request can never fit, or nil.
func (g *Gate) Exceeded(now time.Time, t *Ticket) *limits.Limit {
	return g.lane(now, t.Call.Lane).buckets.exceeded(t)
}

// forget removes the lanes without a request that have not been used for forgetAfter. What they knew is worth no more than a memory of that
// age.
func (g *Gate) forget(now time.Time) {
	g.sorted = slices.DeleteFunc(g.sorted, func(l *lane) bool {
		if now.Sub(l.used) < forgetAfter || l.waiting() > 0 || l.flight.open > 0 || l.cool.until.After(now) {
			return false
		}
		delete(g.lanes, l.name)
		return true
	})
	g.last = nil
}

// Acquire queues a ticket and grants what can be granted. It reports false where the call can never fit.
func (g *Gate) Acquire(now time.Time, t *Ticket) bool {
	l := g.lane(now, t.Call.Lane)
	if l.buckets.exceeded(t) != nil {
		return false
	}
	g.ids++
	l.used = now
	t.ID, t.lane, t.state, t.asked = g.ids, l, queued, now
	if t.Queued.IsZero() {
		t.Queued = now
	}
	if t.Order == 0 {
		t.Order = t.ID
	}
	if t.Attempt == 0 {
		t.Attempt = 1
	}
	t.tenant = l.order.tenant(t.Call.Tenant, t.ID)
	t.tenant.calls++
	t.pausedAt = l.holdup.paused(now)
	if t.Throttles >= manyStrays && l.rejected.own(t) && !l.buckets.shown() { // it would hold back all others
		t.Front = false
	}
	l.order.push(t)
	g.pump(now, l)
	if g.cfg.Observed && t.state != held {
		g.note(l.heldBack(limits.EventSlotWaiting, now, t))
	}
	return true
}

// Cancel takes a waiting ticket out of the queue. One that was granted meanwhile is given back.
func (g *Gate) Cancel(now time.Time, t *Ticket) {
	switch t.state {
	case queued:
		if planted.Every("cancelled waiter kept", 60) {
			return
		}
		t.lane.order.remove(t)
		t.lane.rejected.over(t)
		t.lane.failures.over(t)
		t.tenant.calls--
		t.state = released
		g.cancelled(now, t)
		since := t.lane.silence.since
		g.pump(now, t.lane)
		if t.lane.silence.since.IsZero() { // callers that give up early are silence, too
			t.lane.silence.since = since
		}
	case asked:
		t.state = abandoned
		g.cancelled(now, t)
	case held:
		g.Release(now, t, &limits.Outcome{Unsent: true})
	}
}

// Place is where a waiting call stands among those of its lane, from 1: by priority, age counted, and then by when they
// asked. Tenants' turns may change it. It is 0 for a call that does not wait.
func (g *Gate) Place(now time.Time, t *Ticket) int {
	if t.state != queued {
		return 0
	}
	return t.lane.order.place(now, t)
}

// cancelled notes that a request waits no longer.
func (g *Gate) cancelled(now time.Time, t *Ticket) {
	t.lane.waited(now, t)
	if g.cfg.Observed {
		e := t.lane.event(limits.EventSlotCancelled, now, t)
		e.Wait = now.Sub(t.asked)
		g.note(e)
	}
}

// Sent stamps the instant at which a granted call leaves.
func (g *Gate) Sent(now time.Time, t *Ticket) {
	if t.state == held {
		g.moveGuards(now, t)
		t.lane.depart(now, t)
	}
}

// Answered applies the headers of a response before its body arrives.
func (g *Gate) Answered(now time.Time, t *Ticket, readings []limits.Reading) {
	if t.state != held {
		return
	}
	t.lane.buckets.observe(now, t, readings)
	t.lane.accept(now, t)
	g.pump(now, t.lane)
}

// Release takes a permit back with the outcome of its request, and returns what to do next.
func (g *Gate) Release(now time.Time, t *Ticket, o *limits.Outcome) Decision {
	l := t.lane
	l.used = now
	t.state = released
	d := l.released(now, t, o)
	if g.cfg.Remote {
		s := &g.outbox.settling
		s.ID, s.Lane, s.Age = t.ID, l.name, now.Sub(t.sent)
		l.givenBack(now, &s.Guarded)
		g.outbox.settles, *s = append(g.outbox.settles, *s), limits.Settlement{}
	}
	g.pump(now, l)
	return d
}

// Tick grants requests whose wait has ended.
func (g *Gate) Tick(now time.Time) {
	for _, l := range g.sorted {
		if l.order.waiting > 0 {
			g.pump(now, l)
			if g.account.on || g.joined { // that was for all lanes
				return
			}
		}
	}
}

// pump grants what can be granted after something happened to a lane. What lanes share is given to the call that asked
// first.
func (g *Gate) pump(now time.Time, l *lane) {
	if planted.Every("wake-up late", 61) { // a prime hits all causes of a pump
		return
	}
	for _, each := range g.sorted { // a lane without a known limit waits for the requests of others to be proven
		each.renew(now)
		each.stuck = false
	}
	if !g.account.on && !g.joined {
		l.pump(now)
		return
	}
	for {
		var first *lane
		var head *Ticket
		for _, each := range g.sorted {
			if each.stuck || each.order.waiting == 0 {
				continue
			}
			if t := each.order.next(now); head == nil || t.before(head) {
				first, head = each, t
			}
		}
		if first == nil {
			break
		}
		first.stuck = !first.step(now)
	}
	for _, each := range g.sorted {
		each.settled(now)
	}
}

// Next is the instant of the next Tick; zero when nothing waits.
func (g *Gate) Next() time.Time {
	var next time.Time
	for _, l := range g.sorted {
		if l.order.waiting > 0 && !l.wake.IsZero() && (next.IsZero() || l.wake.Before(next)) {
			next = l.wake
		}
	}
	return next
}

// Granted drains the tickets that were granted since the last call. The slice is good until the next call of a method.
func (g *Gate) Granted() []*Ticket {
	out := g.granted
	g.granted = g.granted[:0]
	return out
}

// Events appends to buf what happened since the last call.
func (g *Gate) Events(buf []limits.Event) []limits.Event {
	buf = append(buf, g.events...)
	clear(g.events)
	g.events = g.events[:0]
	return buf
}

func (g *Gate) note(e limits.Event) {
	if g.cfg.Observed {
		g.events = append(g.events, e)
	}
}

// Outbox drains what is to be sent to a remote ledger, in this order: corrections and settlements, then asks.
func (g *Gate) Outbox() (fixes []limits.Correction, settles []limits.Settlement, asks []limits.Asks) {
	out := g.outbox
	g.outbox = outbox{}
	return out.fixes, out.settles, out.asks
}

// Reply takes in a remote ledger's answer to the outstanding ask of a lane.
func (g *Gate) Reply(now time.Time, lane string, r limits.Reply) {
	l := g.lanes[lane]
	l.replied(now, r)
	g.pump(now, l)
}

// Told takes in what a remote ledger says of a lane unasked. Awake says that the lane's turn has come.
func (g *Gate) Told(now time.Time, lane string, n *limits.LaneState, awake bool) {
	l := g.lanes[lane]
	if l == nil {
		return
	}
	l.adopt(now, n)
	if awake {
		l.remote.hold, l.remote.roused = time.Time{}, len(l.remote.outstanding) > 0
	}
	g.pump(now, l)
}

func (g *Gate) correct(now time.Time, l *lane, c limits.Correction) {
	l.buckets.book.correct(now, &c)
	if g.cfg.Remote {
		g.fix(c)
	}
}

// fix puts a correction into the outbox.
func (g *Gate) fix(c limits.Correction) {
	g.ids++
	c.ID = g.ids
	g.outbox.fixes = append(g.outbox.fixes, c)
}

// settle gives back the unused part of a charge: at once, or with the slot if a remote ledger has both.
func (g *Gate) settle(now time.Time, l *lane, t *Ticket, refund *limits.Vector) {
	if g.cfg.Remote {
		g.outbox.settling.Refund = *refund
		l.buckets.book.refund(now, refund)
		return
	}
	for _, book := range g.books(l) {
		book.refund(now, refund)
	}
}

// books returns the account's, if it has limits, and the lane's.
func (g *Gate) books(l *lane) []*Book {
	if g.account.on {
		return []*Book{g.account.book, l.buckets.book}
	}
	return []*Book{l.buckets.book}
}

// waitFor returns the time until a request fits the buckets and the configured limits of the lane and the account, and the time for which
// configured limits hold it back.
func (g *Gate) waitFor(now time.Time, l *lane, cost, guarded *limits.Vector) (longest delay, firm time.Duration) {
	configured := l.buckets.book.guarded(now, guarded)
	if g.account.on {
		configured = configured.or(g.account.book.wait(now, cost)).or(g.account.book.guarded(now, guarded))
	}
	for d := range l.buckets.book.budgets {
		if wait := l.buckets.book.lacks(now, limits.Dimension(d), cost[d]); wait > 0 {
			longest = longest.or(delay{wait, limits.Dimension(d)})
			if l.buckets.each[d].Source == limits.SourceConfigured {
				configured = configured.or(delay{wait, limits.Dimension(d)})
			}
		}
	}
	return longest.or(configured), configured.time
}

// charge takes the cost of a request from these books, and marks it with the total that was charged to the lane.
func (g *Gate) charge(now time.Time, l *lane, t *Ticket) {
	for _, book := range g.books(l) {
		book.guard(now, now, &t.guarded)
		t.mark = book.charge(&t.cost)
	}
}

// settleGuards replaces the amounts that configured limits counted for a request by the final ones.
func (g *Gate) settleGuards(now time.Time, l *lane, t *Ticket, o *limits.Outcome) {
	final := l.buckets.reserves.counted(t, o, g.cfg.Charge)
	for d := range final {
		final[d] -= t.guarded[d]
	}
	if g.cfg.Remote {
		g.outbox.settling.Guarded = final
		return
	}
	for _, book := range g.books(l) {
		book.guard(now, t.sent, &final)
	}
}

// moveGuards has configured limits count a request from now on, and no longer from when it was granted.
func (g *Gate) moveGuards(now time.Time, t *Ticket) {
	if g.cfg.Remote || now.Sub(t.sent) < leastPart {
		return
	}
	back := limits.Vector{}.Minus(&t.guarded)
	for _, book := range g.books(t.lane) {
		book.guard(now, t.sent, &back)
		book.guard(now, now, &t.guarded)
	}
}

// unproven returns the number of unproven requests of lanes without a known limit. These lanes may share a limit. Requests of a lane whose
// provider is down may hang, and are left out.
func (g *Gate) unproven() (n int) {
	for _, l := range g.sorted {
		if !l.buckets.limited() && l.failures.pauses == 0 {
			n += l.flight.unproven
		}
	}
	return n
}

// Open returns the number of requests in flight in all lanes.
func (g *Gate) Open() int { return g.account.open }

// Limits returns the configured limits of each lane and of the account.
func (g *Gate) Limits() (each, account limits.Limits) { return g.cfg.Limits, g.cfg.Account }

// Snapshot returns the state of every lane, by name.
func (g *Gate) Snapshot(now time.Time) []limits.LaneSnapshot {
	out := make([]limits.LaneSnapshot, 0, len(g.sorted))
	for _, l := range g.sorted {
		out = append(out, l.snapshot(now))
	}
	return out
}
