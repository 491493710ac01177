package gate_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// turns is a plain model of whose turn it is: it looks at every call that waits, and shares no code with the order.
type turns struct {
	tenants map[string]*claimant
	weights map[string]float64
	floor   float64
}

type claimant struct {
	weight, served float64
	turn, since    uint64
	waiting        []*gate.Ticket
}

func (m *turns) of(name string) *claimant {
	q := m.tenants[name]
	if q == nil {
		q = &claimant{weight: 1}
		if w, ok := m.weights[name]; ok {
			q.weight = w
		}
		m.tenants[name] = q
	}
	return q
}

func (m *turns) least() float64 {
	least, some := m.floor, false
	for _, q := range m.tenants {
		if len(q.waiting) > 0 && (!some || q.served < least) {
			least, some = q.served, true
		}
	}
	return least
}

// asks takes in a call whose order is known by now.
func (m *turns) asks(t *gate.Ticket, order uint64) {
	q := m.of(t.Call.Tenant)
	if len(q.waiting) == 0 {
		q.served, q.since = max(q.served, m.least()), order
	}
	q.waiting = append(q.waiting, t)
}

func (m *turns) leaves(t *gate.Ticket) {
	q := m.of(t.Call.Tenant)
	q.waiting = slices.DeleteFunc(q.waiting, func(u *gate.Ticket) bool { return u == t })
	for _, other := range m.tenants {
		if len(other.waiting) > 0 {
			return
		}
	}
	m.floor = q.served
}

// rank is how urgent a call is, from 0 to 3: a class more each 30 seconds.
func rank(now time.Time, t *gate.Ticket) int {
	return min(int(t.Call.Priority)+1+int(now.Sub(t.Queued)/(30*time.Second)), 3)
}

// next is the tenant's call that goes first: the most urgent, the oldest of those, and of these the one that asked as it.
func (q *claimant) next(now time.Time) (best *gate.Ticket) {
	for _, t := range q.waiting {
		switch {
		case best == nil, rank(now, t) > rank(now, best):
			best = t
		case rank(now, t) < rank(now, best):
		case t.Queued.Before(best.Queued):
			best = t
		case !t.Queued.Equal(best.Queued):
		case t.Call.Priority > best.Call.Priority, t.Call.Priority == best.Call.Priority && t.Order < best.Order:
			best = t
		}
	}
	return best
}

// next is the call whose turn it is.
func (m *turns) next(now time.Time) (best *gate.Ticket) {
	var of *claimant
	for _, q := range m.tenants {
		t := q.next(now)
		if t == nil {
			continue
		}
		first := best == nil || rank(now, t) > rank(now, best)
		if !first && rank(now, t) == rank(now, best) {
			switch {
			case q.served != of.served:
				first = q.served < of.served
			case q.turn != of.turn:
				first = q.turn < of.turn
			default:
				first = q.since < of.since
			}
		}
		if first {
			best, of = t, q
		}
	}
	return best
}

func (m *turns) serve(t *gate.Ticket, work float64) {
	q := m.of(t.Call.Tenant)
	q.served += work / q.weight
}

// bystander is a gate and the model beside it.
type bystander struct {
	t             *testing.T
	g             *gate.Gate
	m             *turns
	random        *rand.Rand
	now           time.Time
	waiting, open []*gate.Ticket
	back          []*gate.Ticket // calls that will come back
	seen          int
}

// settle follows what the gate granted.
func (c *bystander) settle() {
	for _, t := range c.g.Granted() {
		c.seen++
		if want := c.m.next(c.now); want != t {
			c.t.Fatalf("grant %d is %+v, and it was the turn of %+v", c.seen, t.Call, want.Call)
		}
		c.m.leaves(t)
		c.m.of(t.Call.Tenant).turn = t.ID
		c.m.serve(t, gate.Work(t))
		c.waiting = slices.DeleteFunc(c.waiting, func(u *gate.Ticket) bool { return u == t })
		c.open = append(c.open, t)
	}
}

func (c *bystander) pick(list *[]*gate.Ticket) *gate.Ticket {
	i := c.random.IntN(len(*list))
	t := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return t
}

// acquire asks for a call, whose order is that of its number where it does not come back.
func (c *bystander) acquire(t *gate.Ticket, ids *uint64) {
	*ids++
	order := t.Order
	if order == 0 {
		order, t.Queued = *ids, c.now
		t.Order = order
	}
	c.m.asks(t, order)
	c.waiting = append(c.waiting, t)
	c.g.Acquire(c.now, t)
}

func (c *bystander) release(t *gate.Ticket) {
	if c.random.IntN(3) == 0 { // it counts for nothing, and comes back
		c.m.serve(t, -gate.Work(t))
		c.g.Release(c.now, t, &limits.Outcome{Unsent: true})
		c.back = append(c.back, &gate.Ticket{Call: t.Call, Queued: t.Queued, Order: t.Order, Front: true})
		return
	}
	used := limits.Usage{Input: c.random.IntN(100), Output: c.random.IntN(500)}
	c.m.serve(t, 1+float64(used.Input)+2*float64(used.Output)-gate.Work(t))
	c.g.Release(c.now, t, &limits.Outcome{Usage: used, HasUsage: true})
}

func TestEveryGrantIsThatOfAPlainModel(t *testing.T) {
	for seed := range uint64(60) {
		weights := map[string]float64{"1": 2, "2": .5, "3": 10}
		tenants := []int{2, 12, 60}[seed%3]
		c := &bystander{t: t, random: rand.New(rand.NewPCG(seed, 2)), now: time.Unix(1_700_000_000, 0),
			m: &turns{tenants: make(map[string]*claimant), weights: weights},
			g: gate.New(gate.Config{Limits: limits.Limits{Concurrency: 6}, Attempts: 3, MaxThrottles: 5, Weights: weights})}
		var ids uint64
		for range 1500 {
			op := c.random.IntN(20)
			switch {
			case op < 8 && len(c.waiting) < 4*tenants:
				c.acquire(&gate.Ticket{Call: limits.Call{Tenant: fmt.Sprint(c.random.IntN(tenants)),
					Priority: limits.Priority(c.random.IntN(4) - 1), Cost: limits.Cost{Input: c.random.IntN(100), MaxOutput: c.random.IntN(400)}}}, &ids)
			case op < 10 && len(c.back) > 0:
				c.acquire(c.pick(&c.back), &ids)
			case op < 12 && len(c.waiting) > 0:
				tk := c.pick(&c.waiting)
				c.m.leaves(tk)
				c.g.Cancel(c.now, tk)
			case op < 19 && len(c.open) > 0:
				c.release(c.pick(&c.open))
			case op == 19:
				c.now = c.now.Add(time.Duration(c.random.IntN(20_000)) * time.Millisecond)
			}
			c.settle()
		}
		if c.seen < 300 {
			t.Errorf("seed %d: only %d grants", seed, c.seen)
		}
	}
}

// A tenant that was served much, of late, is remembered though many others come and go.
func TestWhoWasServedOfLateIsNotForgotten(t *testing.T) {
	r, held := oneSlot(t, nil)
	many := func(from, to int) {
		for i := from; i < to; i++ {
			r.cancel(r.queue(limits.Call{Tenant: fmt.Sprint("other ", i)}))
		}
	}
	many(0, 1000)
	heavy := r.queue(limits.Call{Tenant: "heavy", Cost: limits.Cost{Input: 10_000}})
	next := r.queue(limits.Call{Tenant: "next"})
	r.release(held, limits.Outcome{})
	r.release(heavy, limits.Outcome{})
	r.take()
	waits := r.queue(limits.Call{Tenant: "waits"})
	many(1000, 1100)
	want := []*gate.Ticket{waits, nil, r.queue(limits.Call{Tenant: "heavy"})}
	want[1] = r.queue(limits.Call{Tenant: "light"})
	if got := r.serveAll(next, time.Millisecond, 3); !slices.Equal(got, want) {
		t.Error("a tenant that had much is served before others, as if it had had nothing")
	}
}
