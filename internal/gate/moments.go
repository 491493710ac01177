package gate

import (
	"time"

	"github.com/sluice-llm/sluice/limits"
)

const (
	lateMargin  = 100 * time.Millisecond // maximum time that a request takes to reach the provider
	earlyMargin = 20 * time.Millisecond  // maximum time by which a later request may overtake it
	grain       = time.Millisecond       // the length of a moment
)

// moment has the totals that were charged around the requests of one millisecond. A header may or may not count requests that were sent
// just before and after its own.
type moment struct {
	at         time.Time
	from       limits.Vector // total at the late margin before it
	start, end limits.Vector // totals at its start and with its last request
	after      limits.Vector // total at the early margin after it, if settled
	settled    bool
}

// recent is the moments within the late margin, oldest first.
type recent struct {
	moments []*moment
	next    int // index of the first one that is not settled
}

// enter adds a request that is about to be charged to the present moment.
func (r *recent) enter(now time.Time, sums *limits.Vector, t *Ticket) {
	n := len(r.moments)
	if n == 0 || now.Sub(r.moments[n-1].at) >= grain {
		r.forget(now, sums)
		r.begin(now, sums)
		n = len(r.moments)
	}
	t.moment = r.moments[n-1]
}

func (r *recent) begin(now time.Time, sums *limits.Vector) {
	m := &moment{at: now, start: *sums, end: *sums, from: *sums}
	if len(r.moments) > 0 {
		m.from = r.moments[0].start
	}
	r.moments = append(r.moments, m)
}

// forget settles and drops the moments that the margins have passed.
func (r *recent) forget(now time.Time, sums *limits.Vector) {
	for r.next < len(r.moments) && now.Sub(r.moments[r.next].at) >= earlyMargin {
		m := r.moments[r.next]
		m.after, m.settled = *sums, true
		r.next++
	}
	old := 0
	for old < r.next && now.Sub(r.moments[old].at) >= lateMargin {
		old++
	}
	if old > 0 {
		r.moments = append(r.moments[:0], r.moments[old:]...)
		r.next -= old
	}
}

// sooner returns the amount that other requests were charged just before t.
func (t *Ticket) sooner(d limits.Dimension) float64 {
	if t.lane.buckets.remote() {
		return t.early[d]
	}
	return max(0, t.moment.end[d]-t.moment.from[d]-t.cost[d])
}

// later returns the amount that other requests of this gate were charged just after t.
func (t *Ticket) later(d limits.Dimension, sums *limits.Vector) float64 {
	if t.moment.settled {
		sums = &t.moment.after
	}
	return max(0, sums[d]-t.moment.start[d]-t.cost[d])
}
