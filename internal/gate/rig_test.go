package gate_test

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// epoch0 is where virtual time begins.
var epoch0 = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// fataler is what rapid.T and testing.T have in common.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// rig drives a gate in virtual time: it ticks at every instant that the gate names, and keeps what the gate says.
type rig struct {
	t       fataler
	g       *gate.Gate
	now     time.Time
	events  []limits.Event
	granted []*gate.Ticket // in order, all that ever were
	fresh   []*gate.Ticket // since take
	ticks   int

	// A remote ledger's double, where the gate has one.
	ledger *ledgerDouble

	check func() // after every step
}

func newRig(t fataler, cfg gate.Config) *rig {
	cfg.Attempts = cmp.Or(cfg.Attempts, 6)
	cfg.MaxThrottles = cmp.Or(cfg.MaxThrottles, 20)
	cfg.Observed = true
	r := &rig{t: t, g: gate.New(cfg), now: epoch0}
	if cfg.Remote {
		r.ledger = &ledgerDouble{}
	}
	return r
}

// drain takes in what the last method of the gate brought about.
func (r *rig) drain() {
	for _, t := range r.g.Granted() {
		r.granted = append(r.granted, t)
		r.fresh = append(r.fresh, t)
	}
	r.events = append(r.events, r.g.Events(nil)...)
	if r.ledger != nil {
		r.ledger.post(r.now, r.g)
	}
	if r.check != nil {
		r.check()
	}
}

func (r *rig) take() []*gate.Ticket {
	out := r.fresh
	r.fresh = nil
	return out
}

// queue asks for a call, whether or not it is granted.
func (r *rig) queue(c limits.Call) *gate.Ticket {
	r.t.Helper()
	return r.queueTicket(&gate.Ticket{Call: c})
}

func (r *rig) queueTicket(t *gate.Ticket) *gate.Ticket {
	r.t.Helper()
	if !r.g.Acquire(r.now, t) {
		r.t.Fatalf("call %+v was refused as too large", t.Call)
	}
	r.drain()
	return t
}

// ask asks for a call, and waits for the milliseconds by which calls are spaced where no limit is known.
func (r *rig) ask(c limits.Call) *gate.Ticket {
	r.t.Helper()
	t := r.queue(c)
	if next := r.next(); !t.Granted() && !next.IsZero() && next.Sub(r.now) <= 10*time.Millisecond {
		r.until(next)
	}
	return t
}

// acquire asks for a call that has to be granted at once.
func (r *rig) acquire(c limits.Call) *gate.Ticket {
	r.t.Helper()
	t := r.ask(c)
	if !t.Granted() {
		r.t.Fatalf("at %v: call %+v was not granted at once; lane: %+v", r.since(), c, r.lane())
	}
	return t
}

// fill asks for calls until one is not granted, which it cancels.
func (r *rig) fill(c limits.Call) []*gate.Ticket {
	r.t.Helper()
	var out []*gate.Ticket
	for range 100_000 {
		t := r.ask(c)
		if !t.Granted() {
			r.cancel(t)
			return out
		}
		out = append(out, t)
	}
	r.t.Fatalf("nothing holds calls back")
	return nil
}

// warm has the provider accept n requests, so that more are tried at once.
func (r *rig) warm(n int) *rig {
	r.t.Helper()
	for range n {
		r.release(r.acquire(limits.Call{}), limits.Outcome{Kind: limits.BadRequest})
	}
	r.take()
	return r
}

// show has a header show a bucket's limit and size, and waits until it is full.
func (r *rig) show(d limits.Dimension, limit, size int64) *rig {
	r.t.Helper()
	reset := time.Duration(60e9 / float64(limit))
	r.answer(r.acquire(limits.Call{}), limits.Reading{Dimension: d, Limit: limit, Remaining: size - 1, Reset: reset})
	r.take()
	r.sleep(time.Hour)
	return r
}

// answer releases t with one reading.
func (r *rig) answer(t *gate.Ticket, rd limits.Reading) {
	r.t.Helper()
	if rd.Dimension == limits.AnyDimension {
		rd.Dimension = limits.Requests
	}
	r.release(t, limits.Outcome{Readings: []limits.Reading{rd}})
}

func (r *rig) cancel(t *gate.Ticket) {
	r.g.Cancel(r.now, t)
	r.drain()
}

func (r *rig) release(t *gate.Ticket, o limits.Outcome) gate.Decision {
	r.t.Helper()
	if !t.Granted() {
		r.t.Fatalf("at %v: call %q is released and holds no permit", r.since(), t.Call.ID)
	}
	d := r.g.Release(r.now, t, &o)
	r.drain()
	return d
}

// again queues a call as the Scheduler does after a throttled or failed try.
func (r *rig) again(t *gate.Ticket, d gate.Decision) *gate.Ticket {
	n := &gate.Ticket{Call: t.Call, Attempt: t.Attempt + 1, Throttles: t.Throttles, Overloads: t.Overloads, Queued: t.Queued, Order: t.Order, Front: true}
	if d.Throttle {
		n.Attempt, n.Throttles = t.Attempt, t.Throttles+1
	}
	return r.queueTicket(n)
}

func (r *rig) sent(t *gate.Ticket) {
	r.g.Sent(r.now, t)
	r.drain()
}

// next is the next instant at which something is due, the ledger's answers included.
func (r *rig) next() time.Time {
	n := r.g.Next()
	if r.ledger != nil {
		if d := r.ledger.due(); !d.IsZero() && (n.IsZero() || d.Before(n)) {
			return d
		}
	}
	return n
}

// step goes to the next instant at which something is due, if that is not after end, and reports whether it did.
func (r *rig) step(end time.Time) bool {
	r.t.Helper()
	at := r.next()
	if at.IsZero() || at.After(end) {
		return false
	}
	if at.After(r.now) {
		r.now = at
	}
	if r.ledger != nil {
		r.ledger.run(r.now, r.g, r.drain)
	}
	if n := r.g.Next(); !n.IsZero() && !n.After(r.now) {
		r.ticks++
		r.g.Tick(r.now)
		r.drain()
		if n := r.g.Next(); !n.IsZero() && !n.After(r.now) {
			// Once may happen: a budget that suffices now. Again and again is a loop that burns a core.
			for range 16 {
				r.ticks++
				r.g.Tick(r.now)
				r.drain()
			}
			if n := r.g.Next(); !n.IsZero() && !n.After(r.now) {
				r.t.Fatalf("at %v: Next stays at %v, which is past: the timer would spin", r.since(), n.Sub(epoch0))
			}
		}
	}
	return true
}

// until goes to an instant, ticking whenever the gate wants it.
func (r *rig) until(end time.Time) {
	r.t.Helper()
	for n := 0; r.step(end); n++ {
		if n > 1_000_000 {
			r.t.Fatalf("at %v: a million ticks", r.since())
		}
	}
	if end.After(r.now) {
		r.now = end
	}
}

func (r *rig) sleep(d time.Duration) {
	r.t.Helper()
	r.until(r.now.Add(d))
}

func (r *rig) since() time.Duration { return r.now.Sub(epoch0) }

func (r *rig) lane() limits.LaneSnapshot { return r.laneNamed("") }

func (r *rig) laneNamed(name string) limits.LaneSnapshot {
	r.t.Helper()
	for _, s := range r.g.Snapshot(r.now) {
		if s.Lane == name {
			return s
		}
	}
	return limits.LaneSnapshot{Lane: name}
}

func (r *rig) budget(d limits.Dimension) limits.BucketSnapshot {
	r.t.Helper()
	for _, b := range r.lane().Budgets {
		if b.Dimension == d {
			return b
		}
	}
	r.t.Fatalf("nothing is known of %v", d)
	return limits.BucketSnapshot{}
}

func (r *rig) count(typ limits.EventType) int {
	n := 0
	for _, e := range r.events {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// pause is how long the lane pauses from now on.
func (r *rig) pause() time.Duration { return max(0, r.lane().Until.Sub(r.now)) }

func (r *rig) wantEpochs(n int) {
	r.t.Helper()
	if got := r.count(limits.EventCooldownStarted); got != n {
		r.t.Fatalf("at %v: %d cooldowns, want %d", r.since(), got, n)
	}
}

func (r *rig) wantSlots(n int) {
	r.t.Helper()
	if got := r.lane().Slots; got != n {
		r.t.Fatalf("at %v: %d slots, want %d", r.since(), got, n)
	}
}

func (r *rig) wantLevel(d limits.Dimension, want, tolerance float64) {
	r.t.Helper()
	if got := r.budget(d).Level; !(math.Abs(got-want) <= tolerance) { // nor NaN
		r.t.Fatalf("at %v: the level of %v is %.4f, want %.4f within %g", r.since(), d, got, want, tolerance)
	}
}

func (r *rig) wantPause(least, most time.Duration) {
	r.t.Helper()
	if got := r.pause(); got < least || got > most {
		r.t.Fatalf("at %v: the lane pauses for %v, want %v to %v", r.since(), got, least, most)
	}
}

// ledgerDouble answers asks late, and perhaps fewer of them, or loses the reply to the first question.
type ledgerDouble struct {
	shared gate.Shared
	open   map[string]map[uint64]bool // by lane
	delay  time.Duration              // of a reply; 0 is 5 ms
	lose   func() bool                // whether the next reply is lost
	refuse func(n int) int

	out     []out
	replies map[uint64]limits.Reply // by the first ask's ID: the same question gets the same answer
	charged map[uint64]int
}

type out struct {
	at  time.Time
	ask limits.Asks
}

func (l *ledgerDouble) post(now time.Time, g *gate.Gate) {
	fixes, settles, asks := g.Outbox()
	for _, c := range fixes {
		l.shared.Exchange(now, "", &gate.Batch{Lane: c.Lane, Renewed: l.renewed(c.Lane), Corrections: []limits.Correction{c}})
	}
	for _, s := range settles {
		l.shared.Exchange(now, "", &gate.Batch{Lane: s.Lane, Renewed: l.renewed(s.Lane), Settlements: []limits.Settlement{s}})
		if !s.Open {
			delete(l.open[s.Lane], s.ID)
		}
	}
	for _, a := range asks {
		l.out = append(l.out, out{now.Add(cmp.Or(l.delay, 5*time.Millisecond)), a})
	}
}

// renewed is the calls of a lane that are open.
func (l *ledgerDouble) renewed(lane string) []uint64 { return slices.Sorted(maps.Keys(l.open[lane])) }

func (l *ledgerDouble) due() (at time.Time) {
	for _, o := range l.out {
		if at.IsZero() || o.at.Before(at) {
			at = o.at
		}
	}
	return at
}

func (l *ledgerDouble) run(now time.Time, g *gate.Gate, drain func()) {
	if l.replies == nil {
		l.replies, l.charged, l.open = make(map[uint64]limits.Reply), make(map[uint64]int), make(map[string]map[uint64]bool)
	}
	for i := 0; i < len(l.out); {
		o := l.out[i]
		if o.at.After(now) {
			i++
			continue
		}
		if l.open[o.ask.Lane] == nil {
			l.open[o.ask.Lane] = make(map[uint64]bool)
		}
		reply, known := l.replies[o.ask.Calls[0].ID]
		if !known {
			asks := o.ask.Calls
			if l.refuse != nil {
				asks = asks[:l.refuse(len(asks))]
			}
			reply, _ = l.shared.Exchange(now, "", &gate.Batch{Lane: o.ask.Lane, Renewed: l.renewed(o.ask.Lane), Waiting: o.ask.Waiting, Asks: asks})
			if len(asks) < len(o.ask.Calls) && reply.Wait == 0 {
				reply.Wait, reply.Bound = 3*time.Millisecond, limits.Requests
			}
			for _, a := range asks[:reply.Granted] {
				l.charged[a.ID]++
				l.open[o.ask.Lane][a.ID] = true
			}
			l.replies[o.ask.Calls[0].ID] = reply
		}
		if !known && l.lose != nil && l.lose() {
			l.out[i].at = now.Add(20 * time.Millisecond) // asked again
			i++
			continue
		}
		l.out = append(l.out[:i], l.out[i+1:]...)
		delete(l.replies, o.ask.Calls[0].ID)
		g.Reply(now, o.ask.Lane, reply)
		drain()
	}
}

var _ fataler = (*testing.T)(nil)
