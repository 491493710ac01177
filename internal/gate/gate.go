// Package gate is the admission state machine: who is next, and does it fit. It is pure: every method takes the
// instant, and nothing here locks, sleeps, starts a goroutine or reads a clock. The Scheduler in the root package is
// the shell that does.
//
// A Gate has lanes, and a lane is made of parts that know nothing of lanes: order (whose turn it is), Book (budgets),
// slots (how many at once), cooldown, breaker and retries (when not), reserves (what a call will be charged), flight and
// recent (what is open, and what was sent around it). The file lane.go grants by them; release.go judges what became of
// a call; mirror.go turns what the provider says into corrections of budgets.
package gate

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/planted"
)

// Config shapes a Gate. Zero fields have no defaults: the Scheduler fills them.
type Config struct {
	Limits       Limits // of each lane
	Account      Limits // of all lanes together
	Start        Limits
	Charge       Charge
	CountsCached bool
	Attempts     int
	MaxThrottles int
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
	cfg     Config
	local   Local
	account account
	lanes   map[string]*lane
	sorted  []*lane // by name
	held    bool    // nothing is sent
	last    *lane   // the one that was asked for last
	ids     uint64
	granted []*Ticket
	events  []Event
	asks    []Asks
	settles []Settlement
	fixes   []Correction
}

// Ticket is a call's way through the gate: queued, perhaps asked for, granted, released.
type Ticket struct {
	Call      Call
	ID        uint64
	Attempt   int       // which attempt this try is, from 1
	Throttles int       // tries before this one that were throttled
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
	open       int // calls in flight when it was sent, itself included
	moment     *moment
	saturated  bool
	probe      bool
	accepted   bool
	cost, mark Vector
	counted    float64 // to its tenant: see share.go
	openOutput float64

	early  Vector // what others were charged just before, by a remote ledger; see Ticket.sooner
	refund Vector // to be settled with a remote ledger
	proven bool   // to be said with that
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
			open := g.account.open
			g.account = newAccount(now, g.cfg.Account)
			g.account.open = open
		}
		if g.cfg.Remote && len(g.lanes) == 0 {
			g.tellAccount(now, name, Limits{}, g.cfg.Account)
		}
		l = newLane(now, g, name)
		g.lanes[name] = l
		i, _ := slices.BinarySearchFunc(g.sorted, name, func(l *lane, name string) int { return strings.Compare(l.name, name) })
		g.sorted = slices.Insert(g.sorted, i, l)
	}
	g.last = l
	return l
}

// Acquire queues a ticket and grants what can be granted. It reports false where the call can never fit.
func (g *Gate) Acquire(now time.Time, t *Ticket) bool {
	l := g.lane(now, t.Call.Lane)
	if l.tooLarge(&t.Call) {
		return false
	}
	g.ids++
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
	t.pausedAt = l.pausedFor(now)
	l.order.push(t)
	g.pump(now, l)
	if g.cfg.Observed && t.state != held {
		g.note(l.heldBack(EventSlotWaiting, now, t))
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
		t.tenant.calls--
		t.state = released
		t.lane.waited(now, t)
		g.cancelled(now, t)
		g.pump(now, t.lane)
	case asked:
		t.state = abandoned
		t.lane.waited(now, t)
		g.cancelled(now, t)
	case held:
		g.Release(now, t, &Outcome{Unsent: true})
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

func (g *Gate) cancelled(now time.Time, t *Ticket) {
	if g.cfg.Observed {
		e := t.lane.event(EventSlotCancelled, now, t)
		e.Wait = now.Sub(t.asked)
		g.note(e)
	}
}

// Sent stamps the instant at which a granted call leaves.
func (g *Gate) Sent(now time.Time, t *Ticket) {
	if t.state == held {
		t.lane.depart(now, t)
	}
}

// Answered takes in what the head of a call's answer says while its body is still to come.
func (g *Gate) Answered(now time.Time, t *Ticket, readings []Reading) {
	if t.state != held {
		return
	}
	t.lane.observe(now, t, readings)
	t.lane.accept(now, t)
	g.pump(now, t.lane)
}

// Release takes a permit back with what became of the call, and says what to do next.
func (g *Gate) Release(now time.Time, t *Ticket, o *Outcome) Decision {
	l := t.lane
	t.state = released
	d := l.released(now, t, o)
	if l.book == nil {
		g.settles = append(g.settles, Settlement{ID: t.ID, Lane: l.name, Refund: t.refund, Proven: t.proven})
		l.givenBack(now)
	}
	g.pump(now, l)
	return d
}

// Tick does what is due.
func (g *Gate) Tick(now time.Time) {
	for _, l := range g.sorted {
		if l.order.waiting > 0 {
			g.pump(now, l)
			if g.account.on { // that was for all lanes
				return
			}
		}
	}
}

// pump grants what can be granted after something happened to a lane. What lanes share is given to the call that asked
// first.
func (g *Gate) pump(now time.Time, l *lane) {
	if planted.Every("wake-up late", 60) {
		return
	}
	if !g.account.on {
		l.pump(now)
		return
	}
	for _, each := range g.sorted {
		each.renew(now)
		each.stuck = false
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
		if each.order.waiting == 0 {
			each.rest(now)
		}
		if each.book == nil {
			each.say(now)
		}
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
func (g *Gate) Events(buf []Event) []Event {
	buf = append(buf, g.events...)
	clear(g.events)
	g.events = g.events[:0]
	return buf
}

func (g *Gate) note(e Event) {
	if g.cfg.Observed {
		g.events = append(g.events, e)
	}
}

// Outbox drains what is to be sent to a remote ledger, in this order: corrections and settlements, then asks.
func (g *Gate) Outbox() (fixes []Correction, settles []Settlement, asks []Asks) {
	fixes, settles, asks = g.fixes, g.settles, g.asks
	g.fixes, g.settles, g.asks = nil, nil, nil
	return fixes, settles, asks
}

// Reply takes in a remote ledger's answer to the outstanding ask of a lane.
func (g *Gate) Reply(now time.Time, lane string, r Reply) {
	l := g.lanes[lane]
	l.replied(now, r)
	g.pump(now, l)
}

// Told takes in what a remote ledger says of a lane unasked. Awake says that the lane's turn has come.
func (g *Gate) Told(now time.Time, lane string, n *News, awake bool) {
	l := g.lanes[lane]
	if l == nil {
		return
	}
	l.hear(now, n)
	if awake {
		l.hold, l.roused = time.Time{}, len(l.outstanding) > 0
	}
	g.pump(now, l)
}

func (g *Gate) correct(now time.Time, l *lane, c Correction) {
	if l.book != nil {
		l.book.correct(now, &c)
		return
	}
	g.ids++
	c.ID = g.ids
	g.fixes = append(g.fixes, c)
}

// settle gives back what t was charged too much: at once, or with its slot where a remote ledger has both.
func (g *Gate) settle(now time.Time, l *lane, t *Ticket, refund Vector) {
	switch {
	case refund == (Vector{}):
	case l.book == nil:
		t.refund = refund
	default:
		l.book.refund(now, &refund)
		if g.account.on {
			g.account.book.refund(now, &refund)
		}
	}
}

// Open is how many calls are open in all lanes.
func (g *Gate) Open() int {
	n := 0
	for _, l := range g.sorted {
		n += l.open
	}
	return n
}

// Limits are the ceilings that were told last.
func (g *Gate) Limits() (limits, account Limits) { return g.cfg.Limits, g.cfg.Account }

// Snapshot returns the state of every lane, by name.
func (g *Gate) Snapshot(now time.Time) []Snapshot {
	out := make([]Snapshot, 0, len(g.sorted))
	for _, l := range g.sorted {
		out = append(out, l.snapshot(now))
	}
	return out
}
