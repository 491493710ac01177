package cluster_test

import (
	"cmp"
	"container/heap"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// world is many members on one ledger, or on one per region, in virtual time. The gates are those that programs have, and the
// ledger is the model that the script on the engine is measured by. The network, the engine's queue, the client's batches and
// the provider are imitated here.
type world struct {
	s        scale
	now      time.Time
	events   happenings
	seq      uint64
	random   *rand.Rand
	provider *countingProvider
	cells    []*cell
	members  []*scaleMember
	byName   map[string]*scaleMember

	measured  bool      // after the warm-up
	waits     []float64 // milliseconds, of the calls that were sent since
	starts    int
	exchanges int
	empty     int // exchanges that were asked for calls, and granted none
	wakes     int
	longest   time.Duration
}

// scale is a scenario of the world.
type scale struct {
	Name      string
	Regions   []region
	Limits    limits.Limits // what the provider enforces
	Told      limits.Limits // what members are told
	Burst     time.Duration // how much refill the provider's bucket holds, one call at least; 0: a second's
	Headers   bool          // answers say what is left
	Latency   time.Duration // of an answer, ± half of it
	Warm, For time.Duration // what is measured begins after Warm
	Seed      uint64
	Cells     bool          // a ledger in every region, with a lease of the limits: see cells
	CellDies  time.Duration // when the last region is gone, its ledger and its members; 0: never
	Storm     time.Duration // at that time the provider refuses everything for five seconds, without saying why; 0: never
}

// region is members that are as far from the ledger.
type region struct {
	RoundTrip time.Duration // to the ledger; with Cells, to the others' ledgers
	Demands   []demand      // one per member
}

// demand is what a member wants: so many workers that make one call after the other, or calls that come by themselves.
type demand struct {
	Workers int
	Rate    float64       // per second
	From    time.Duration // its workers begin then
	Until   time.Duration // no more calls after that; 0: to the end
	Dies    time.Duration // from then on nothing is heard of the member; 0: it lives
}

// The assumed cost of one call of the script on Redis.
const (
	scriptBase = 120 * time.Microsecond
	scriptItem = 10 * time.Microsecond // and as much for each ask, settlement and renewed lease

	linger     = 25 * time.Millisecond // settlements go by themselves after that
	toProvider = 5 * time.Millisecond  // the least one-way time from a member to the provider,
	jitter     = 5 * time.Millisecond  // and what is added to it by chance
)

type happening struct {
	at   time.Time
	seq  uint64
	what func()
}

type happenings []happening

func (h happenings) Len() int { return len(h) }
func (h happenings) Less(i, j int) bool {
	return h[i].at.Before(h[j].at) || h[i].at.Equal(h[j].at) && h[i].seq < h[j].seq
}
func (h happenings) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *happenings) Push(x any)   { *h = append(*h, x.(happening)) }
func (h *happenings) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = happening{}
	*h = old[:len(old)-1]
	return x
}

func newWorld(s scale) *world {
	s.Burst = cmp.Or(s.Burst, time.Second)
	w := &world{s: s, now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), random: rand.New(rand.NewPCG(s.Seed, 7)), byName: make(map[string]*scaleMember)}
	w.provider = newCountingProvider(w)
	for i, r := range s.Regions {
		if i == 0 || s.Cells {
			w.cells = append(w.cells, &cell{w: w, index: i})
		}
		for j, d := range r.Demands {
			m := &scaleMember{w: w, name: fmt.Sprintf("%d.%d", i, j), demand: d, cell: w.cells[len(w.cells)-1], roundTrip: r.RoundTrip}
			if s.Cells {
				m.roundTrip = 300 * time.Microsecond
			}
			w.members = append(w.members, m)
			w.byName[m.name] = m
		}
	}
	if s.Cells {
		newLeases(w)
	}
	return w
}

// after lets something happen later.
func (w *world) after(d time.Duration, what func()) {
	w.seq++
	heap.Push(&w.events, happening{w.now.Add(max(0, d)), w.seq, what})
}

func (w *world) run() {
	start := w.now
	w.after(w.s.Warm, func() { w.measured = true; w.provider.measure() })
	for _, m := range w.members {
		m.begin(start)
	}
	end := start.Add(w.s.Warm + w.s.For)
	for len(w.events) > 0 && !w.events[0].at.After(end) {
		e := heap.Pop(&w.events).(happening)
		w.now = e.at
		e.what()
	}
	w.now = end
}

// cell is an engine with a ledger.
type cell struct {
	w      *world
	index  int
	shared gate.Shared
	free   time.Time // when the engine is done with what has arrived
	busy   time.Duration
	pause  limits.Pause
	lease  *cellLease // nil: the ledger has the whole limit
}

// exchange is a call of the script: it waits for its turn at the engine.
func (c *cell) exchange(m *scaleMember, b *gate.Batch, reply func(limits.Reply)) {
	w := c.w
	begin := c.free
	if begin.Before(w.now) {
		begin = w.now
	}
	service := scriptBase + time.Duration(len(b.Asks)+len(b.Settlements)+len(b.Corrections)+len(b.Renewed))*scriptItem
	c.free = begin.Add(service)
	if w.measured {
		c.busy += service
		w.exchanges++
	}
	w.after(c.free.Sub(w.now), func() {
		r, wake := c.shared.Exchange(w.now, m.name, b)
		if w.measured && len(b.Asks) > 0 && r.Granted == 0 {
			w.empty++
		}
		c.tell(m, wake, &r.State)
		w.after(m.roundTrip/2, func() { reply(r) })
	})
}

// tell is what an engine publishes: who is to wake up, and a pause that is new.
func (c *cell) tell(from *scaleMember, wake string, n *limits.LaneState) {
	w := c.w
	if other := w.byName[wake]; other != nil {
		w.wakes++
		news := *n
		w.after(other.roundTrip/2, func() { other.told(&news, true) })
	}
	if n.Pause.Epoch == c.pause.Epoch {
		return
	}
	c.pause = n.Pause
	for _, other := range w.members {
		if other.cell != c || other == from {
			continue
		}
		news := *n
		w.after(other.roundTrip/2, func() { other.told(&news, false) })
	}
}

// quantile of what is sorted here.
func quantile(of []float64, q float64) float64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[min(len(of)-1, int(q*float64(len(of))))]
}
