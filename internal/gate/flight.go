package gate

import "time"

// flight is the calls that are open, in the order they were sent.
type flight struct {
	list
	unproven *Ticket // the oldest that is not proven; nil when all are
}

func (f *flight) add(t *Ticket) {
	f.append(t)
	if f.unproven == nil {
		f.unproven = t
	}
}

func (f *flight) remove(t *Ticket) {
	if f.unproven == t {
		f.unproven = t.next
	}
	f.list.remove(t)
}

// moment is what was charged around the calls of one millisecond, so that the interval which a header states can be
// told apart from what was sent just before and after the call that it answers.
type moment struct {
	at         time.Time
	from       Vector // charged by the late margin before it,
	start, end Vector // by its beginning and its last call,
	after      Vector // and by the early margin after it, once settled
	settled    bool
	recent     bool
	refs       int // calls of it that are open
}

// grain is how long a moment lasts.
const grain = time.Millisecond

// recent is the moments within the late margin, oldest first.
type recent struct {
	moments []*moment
	next    int // the first that is not settled
	free    []*moment
}

// enter puts a call that is about to be charged into the present moment.
func (r *recent) enter(now time.Time, sums *Vector, t *Ticket) {
	n := len(r.moments)
	if n == 0 || now.Sub(r.moments[n-1].at) >= grain {
		r.forget(now, sums)
		r.begin(now, sums)
		n = len(r.moments)
	}
	t.moment = r.moments[n-1]
	t.moment.refs++
	for d := Requests; d < NumDimensions; d++ {
		t.moment.end[d] = sums[d] + t.cost[d]
	}
}

func (r *recent) begin(now time.Time, sums *Vector) {
	var m *moment
	if n := len(r.free); n > 0 {
		m, r.free = r.free[n-1], r.free[:n-1]
	} else {
		m = new(moment)
	}
	*m = moment{at: now, start: *sums, end: *sums, from: *sums, recent: true}
	if len(r.moments) > 0 {
		m.from = r.moments[0].start
	}
	r.moments = append(r.moments, m)
}

// forget settles and drops what the margins have passed.
func (r *recent) forget(now time.Time, sums *Vector) {
	for r.next < len(r.moments) && now.Sub(r.moments[r.next].at) >= earlyMargin {
		m := r.moments[r.next]
		m.after, m.settled = *sums, true
		r.next++
	}
	old := 0
	for old < r.next && now.Sub(r.moments[old].at) >= lateMargin {
		r.moments[old].recent = false
		r.reuse(r.moments[old])
		old++
	}
	if old > 0 {
		r.moments = append(r.moments[:0], r.moments[old:]...)
		r.next -= old
	}
}

func (r *recent) leave(t *Ticket) {
	t.moment.refs--
	r.reuse(t.moment)
	t.moment = nil
}

func (r *recent) reuse(m *moment) {
	if m.refs == 0 && !m.recent {
		r.free = append(r.free, m)
	}
}

// sooner is what others were charged just before t.
func (t *Ticket) sooner(d Dimension) float64 {
	if t.lane.book == nil {
		return t.early[d]
	}
	return max(0, t.moment.end[d]-t.moment.from[d]-t.cost[d])
}

// later is what others were charged just after t. Of other members nobody knows: what they were charged counts as more than
// is left, and never as less.
func (t *Ticket) later(d Dimension, sums *Vector) float64 {
	if t.moment.settled {
		sums = &t.moment.after
	}
	return max(0, sums[d]-t.moment.start[d]-t.cost[d])
}
