package worlds

import (
	"cmp"
	"time"
)

// Optimum returns the least time in which a client that knows everything finishes all items that can succeed: the
// limits and their levels, changes, storms and foreign clients. It sends each lane's items in the order of the
// queue and each retry as soon as the failure is known. It keeps the guarantees that the user configured, it leaves
// foreign clients their requests, it never takes output tokens that are not there, and it sends each odd item once. It
// returns false if that takes more than an hour.
func Optimum(w *World) (time.Duration, bool) {
	ideal := *w
	s := &ideal.Serve
	trip := s.Up + s.Down
	s.Up, s.Down, s.Jitter = 0, 0, 0
	ideal.Lane, ideal.Account = heldLonger(w.Lane, trip), heldLonger(w.Account, trip)
	clock := new(clock)
	o := &omniscient{w: &ideal, clock: clock, provider: newProvider(&ideal, clock, true), trip: trip.span()}
	o.guards = newGuards(&ideal)
	o.queues = make([][]*Item, w.Lanes)
	for _, item := range ideal.Items() {
		if item.At > 0 {
			clock.at(item.At, func() { o.add(item) })
			o.left++
			continue
		}
		o.left++
		o.queues[item.Lane] = append(o.queues[item.Lane], item)
	}
	for o.send(); o.left > 0 && clock.step(); o.send() {
		if clock.now > time.Hour {
			return 0, false
		}
	}
	return o.last + o.trip, o.left == 0
}

// heldLonger lets each concurrent request count until its client can have sent another one.
func heldLonger(limits []Limit, trip Seconds) []Limit {
	out := append([]Limit(nil), limits...)
	for i := range out {
		if out[i].Dim == Concurrency {
			out[i].Late = max(out[i].Late, trip)
		}
	}
	return out
}

// omniscient is the client of Optimum. Its clock is the provider's.
type omniscient struct {
	w        *World
	clock    *clock
	provider *provider
	guards   *guards
	queues   [][]*Item // of each lane
	left     int       // items without an end
	trip     time.Duration
	last     time.Duration // when the last item succeeded
	wake     time.Duration // the earliest instant at which it is to be asked again
}

func (o *omniscient) add(item *Item) { o.queues[item.Lane] = append(o.queues[item.Lane], item) }

// send sends all that can be sent now, from the longest queue first.
func (o *omniscient) send() {
	for {
		best, earliest := -1, never
		for lane, queue := range o.queues {
			if len(queue) == 0 {
				continue
			}
			at := max(o.provider.earliest(queue[0]), o.guards.earliest(o.clock.now, queue[0]))
			earliest = min(earliest, at)
			if at == o.clock.now && (best < 0 || len(queue) > len(o.queues[best])) {
				best = lane
			}
		}
		if best < 0 {
			o.sleep(earliest)
			return
		}
		item := o.queues[best][0]
		o.queues[best] = o.queues[best][1:]
		o.attempt(item)
	}
}

func (o *omniscient) sleep(until time.Duration) {
	if until == never || o.wake > o.clock.now && o.wake <= until {
		return
	}
	o.wake = until
	o.clock.at(until, func() {})
}

func (o *omniscient) attempt(item *Item) {
	if item.odd == "429" || item.odd == "words" || o.provider.tooSmall(item) != nil {
		o.left--
		return
	}
	expires := o.clock.now + o.w.Config.deadline()
	r := o.provider.arrive(item, expires)
	end := min(r.done, expires)
	o.guards.take(o.clock.now, item)
	o.clock.at(end+o.trip, func() { o.guards.release(item) })
	switch {
	case item.odd != "":
		o.left--
	case r.Status == 200 && r.done <= expires:
		o.clock.at(end, func() {
			o.left--
			o.last = max(o.last, o.clock.now)
		})
	default:
		o.clock.at(end+o.trip, func() { o.queues[item.Lane] = append([]*Item{item}, o.queues[item.Lane]...) })
	}
}

// guards hold a client to the configured limits: at most N sent in every sliding minute or, with a configured burst, at
// most as a token bucket of that burst allows.
type guards struct {
	w     *World
	lanes [][]*limit
	blind bool // usage is known once a response states it, and input tokens are as estimated until then
}

// guarantees returns the configured limits as a client has to keep them.
func (w *World) guarantees() (out []Limit) {
	for _, l := range w.Config.Limits {
		g := Limit{Dim: l.Dim, N: l.N, Kind: Sliding, Burst: 60}
		if w.Config.Burst > 0 {
			g.Kind, g.Burst = Bucket, w.Config.Burst
		}
		if l.Dim == RPD {
			g.Kind, g.Burst = Sliding, 24*60*60
		}
		if w.Procs.N > 1 && !w.Procs.Ledger {
			g.N *= float64(w.Procs.N)
		}
		out = append(out, g)
	}
	return out
}

func newGuards(w *World) *guards {
	g := &guards{w: w}
	account := inForce(w.guarantees())
	for range w.Lanes {
		if w.Config.Account {
			g.lanes = append(g.lanes, account)
		} else {
			g.lanes = append(g.lanes, inForce(w.guarantees()))
		}
	}
	return g
}

// guarded returns the cost of an item under a guarantee: the greater of reserved and used tokens.
func (w *World) guarded(d Dimension, item *Item) float64 {
	mode := cmp.Or(w.Config.Charge, Declared)
	if w.Config.Charge == "" && w.Show.Dialect == "anthropic" {
		mode = Actual
	}
	used := float64(item.input + item.output)
	if w.Show.Dialect == "bare" { // nobody says what is used
		used = 0
	}
	switch d {
	case TPM:
		if mode == Actual && used > 0 {
			return used
		}
		return max(used, declared(mode, d, item.input, item.Max))
	case OTPM:
		if mode == Actual && used > 0 {
			return float64(item.output)
		}
		return float64(max(item.Max, item.output))
	}
	return declared(mode, d, item.input, item.Max)
}

// reserved returns what a client reserves at least under a guarantee before it knows the usage, and used what counts once that is stated.
func (w *World) reserved(d Dimension, item *Item) (reserved, used float64) {
	mode := w.Config.Charge
	if mode == "" && w.Show.Dialect == "anthropic" {
		mode = Actual
	}
	input := min(item.input, item.Input)
	used = map[Dimension]float64{TPM: float64(item.input + item.output), ITPM: float64(item.input), OTPM: float64(item.output)}[d]
	switch {
	case mode != Actual: // a client can be told of no other mode
		reserved = declared(Declared, d, input, item.Max)
	case d == OTPM:
	case d == TPM:
		reserved = float64(input)
	default:
		reserved = declared(mode, d, input, item.Max)
	}
	if mode != Actual {
		used = max(used, reserved)
	}
	return reserved, used
}

func (g *guards) earliest(now time.Duration, item *Item) time.Duration {
	at := now
	for _, l := range g.lanes[item.Lane] {
		at = max(at, after(l, now, min(g.w.guarded(l.Dim, item), l.size())))
	}
	return at
}

func (g *guards) cost(d Dimension, item *Item) float64 {
	if g.blind {
		reserved, _ := g.w.reserved(d, item)
		return reserved
	}
	return g.w.guarded(d, item)
}

func (g *guards) take(now time.Duration, item *Item) {
	for _, l := range g.lanes[item.Lane] {
		l.take(now, g.cost(l.Dim, item))
	}
}

// learn adds the used tokens beyond the reserved ones of an item that was sent at an instant.
func (g *guards) learn(now, sent time.Duration, item *Item) {
	for _, l := range g.lanes[item.Lane] {
		if l.Dim != TPM && l.Dim != ITPM && l.Dim != OTPM {
			continue
		}
		switch reserved, used := g.w.reserved(l.Dim, item); m := l.meter.(type) {
		case *sliding:
			m.amend(sent, used-reserved)
		case *bucket:
			if m.filled <= sent && m.left(now) < m.full { // else what was missing has flowed in
				m.take(now, used-reserved)
			}
		}
	}
}

// exceeded returns a guarantee that an item sent now would break, or nil. It is silent about concurrency, which a
// client may count from another instant on.
func (g *guards) exceeded(now time.Duration, item *Item) *limit {
	for _, l := range g.lanes[item.Lane] {
		if l.Dim != Concurrency && l.left(now)+l.size()*1e-6 < min(g.cost(l.Dim, item), l.size()) {
			return l
		}
	}
	return nil
}

// release gives back the concurrency of a request that has ended.
func (g *guards) release(item *Item) {
	for _, l := range g.lanes[item.Lane] {
		if l.Dim == Concurrency {
			l.take(0, -1)
		}
	}
}
