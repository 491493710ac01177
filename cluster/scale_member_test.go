package cluster_test

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// scaleMember is a program that shares the ledger: its gate, what a Scheduler and a client of the ledger do around it, and
// the calls that it makes.
type scaleMember struct {
	w         *world
	name      string
	demand    demand
	cell      *cell
	roundTrip time.Duration
	g         *gate.Gate
	dead      bool
	timer     time.Time

	calls  map[*gate.Ticket]*scaleCall
	begun  time.Time
	served int // calls that were sent since the warm-up

	asking  bool // an ask is under way
	asks    *limits.Asks
	fixes   []limits.Correction
	settles []limits.Settlement
	leases  map[uint64]bool // granted and not settled
	renewed time.Time
	lingers bool
}

type scaleCall struct {
	ticket    *gate.Ticket
	born      time.Time
	throttles int
}

const scaleLane = "m"

func (m *scaleMember) begin(now time.Time) {
	w := m.w
	m.g = gate.New(gate.Config{Limits: w.s.Told, Attempts: 6, MaxThrottles: 1000, Remote: true, Random: w.random.Int64N})
	m.calls, m.leases, m.begun, m.renewed = make(map[*gate.Ticket]*scaleCall), make(map[uint64]bool), now, now
	for range m.demand.Workers {
		w.after(m.demand.From+time.Duration(w.random.Int64N(int64(100*time.Millisecond))), m.call)
	}
	if m.demand.Rate > 0 {
		m.arrive()
	}
	if m.demand.Dies > 0 {
		w.after(m.demand.Dies, func() { m.dead = true })
	}
	w.after(time.Duration(w.random.Int64N(int64(gate.Heartbeat))), m.beat)
}

// started is when the member began, or begins now.
func (m *scaleMember) started() time.Time {
	if m.begun.IsZero() {
		return m.w.now
	}
	return m.begun
}

// arrive lets calls come by themselves.
func (m *scaleMember) arrive() {
	gap := time.Duration(m.w.random.ExpFloat64() / m.demand.Rate * float64(time.Second))
	m.w.after(gap, func() {
		if !m.ended() {
			m.call()
			m.arrive()
		}
	})
}

func (m *scaleMember) ended() bool {
	return m.dead || m.demand.Until > 0 && m.w.now.Sub(m.begun) > m.demand.Until
}

// call is a new one that asks to be sent.
func (m *scaleMember) call() {
	if m.ended() {
		return
	}
	m.queue(&scaleCall{born: m.w.now}, &gate.Ticket{Call: limits.Call{Lane: scaleLane}})
}

func (m *scaleMember) queue(c *scaleCall, t *gate.Ticket) {
	if m.dead {
		return
	}
	c.ticket = t
	m.calls[t] = c
	m.g.Acquire(m.w.now, t)
	m.pump()
}

// pump does what the gate wants after something happened to it.
func (m *scaleMember) pump() {
	w := m.w
	for _, t := range slices.Clone(m.g.Granted()) {
		m.send(m.calls[t])
	}
	fixes, settles, asks := m.g.Outbox()
	m.fixes, m.settles = append(m.fixes, fixes...), append(m.settles, settles...)
	for i := range asks {
		m.asks = &asks[i]
	}
	m.post()
	if next := m.g.Next(); !next.IsZero() && !next.Equal(m.timer) {
		m.timer = next
		w.after(next.Sub(w.now), func() {
			if !m.dead && m.timer.Equal(next) {
				m.timer = time.Time{}
				m.g.Tick(w.now)
				m.pump()
			}
		})
	}
}

// post is the client of the ledger: one exchange at a time, at once for asks and pauses, soon for what can ride along.
func (m *scaleMember) post() {
	if m.dead {
		return
	}
	hurry := m.asks != nil && !m.asking
	for i := range m.fixes {
		hurry = hurry || m.fixes[i].Dimension == limits.AnyDimension
	}
	switch {
	case hurry:
		m.exchange()
	case len(m.fixes)+len(m.settles) > 0 && !m.lingers:
		m.lingers = true
		m.w.after(linger, func() {
			m.lingers = false
			if len(m.fixes)+len(m.settles) > 0 && !m.dead {
				m.exchange()
			}
		})
	}
}

func (m *scaleMember) exchange() {
	w := m.w
	b := &gate.Batch{Lane: scaleLane, Corrections: m.fixes, Settlements: m.settles}
	asked := m.asks != nil && !m.asking
	if asked {
		b.Asks, b.Waiting = m.asks.Calls, m.asks.Waiting
	}
	if w.now.Sub(m.renewed) >= gate.Heartbeat/2 { // sooner than the heartbeat, as it costs no exchange of its own
		m.renewed = w.now
		b.Renewed = slices.Sorted(maps.Keys(m.leases))
	}
	for _, s := range b.Settlements {
		if !s.Open {
			delete(m.leases, s.ID)
		}
	}
	m.fixes, m.settles = nil, nil
	if asked {
		m.asks, m.asking = nil, true
	}
	w.after(m.roundTrip/2, func() {
		m.cell.exchange(m, b, func(r limits.Reply) {
			if m.dead {
				return
			}
			for i := range r.Granted {
				m.leases[b.Asks[i].ID] = true
			}
			if asked {
				m.asking = false
				m.g.Reply(w.now, scaleLane, r)
			} else {
				m.g.Told(w.now, scaleLane, &r.State, false)
			}
			m.pump()
		})
	})
}

// beat renews leases, where no other exchange has.
func (m *scaleMember) beat() {
	if m.dead {
		return
	}
	if len(m.leases) > 0 && m.w.now.Sub(m.renewed) >= gate.Heartbeat*3/4 {
		m.exchange()
	}
	m.w.after(gate.Heartbeat, m.beat)
}

func (m *scaleMember) told(n *limits.LaneState, awake bool) {
	if m.dead {
		return
	}
	m.g.Told(m.w.now, scaleLane, n, awake)
	m.pump()
}

// send lets a granted call leave, and come back.
func (m *scaleMember) send(c *scaleCall) {
	w := m.w
	if w.measured {
		w.starts++
		m.served++
		wait := w.now.Sub(c.born)
		if c.born.Sub(m.begun) >= w.s.Warm {
			w.waits = append(w.waits, float64(wait)/float64(time.Millisecond))
			w.longest = max(w.longest, wait)
		}
	}
	there := toProvider + time.Duration(w.random.Int64N(int64(jitter)))
	w.after(there, func() {
		o, takes := w.provider.serve()
		w.after(takes+there, func() {
			if !m.dead {
				m.back(c, &o)
			}
		})
	})
}

func (m *scaleMember) back(c *scaleCall, o *limits.Outcome) {
	w := m.w
	old := c.ticket
	delete(m.calls, old)
	d := m.g.Release(w.now, old, o)
	m.pump()
	if d.Action == gate.Again {
		c.throttles++
		w.after(d.Wait, func() {
			m.queue(c, &gate.Ticket{Call: old.Call, Attempt: old.Attempt, Throttles: c.throttles, Queued: old.Queued, Order: old.Order, Front: true})
		})
		return
	}
	if m.demand.Workers > 0 {
		m.call()
	}
}
