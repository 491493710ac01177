package worlds

import (
	"math"
	"time"
)

// Knowing is the reference client: it knows the limits, also after a change once a response has come from there, what
// the average use by foreign clients, the requests of its other instances, and the cause of each rejection. It does not know storms
// and faults before it meets them, nor latencies.
func Knowing(w *World) func(instance int, end End) Client {
	m := newKnowledge(w)
	one := *w
	one.Procs = Processes{}
	made, kept := map[int]bool{}, map[int]*guards{}
	return func(instance int, end End) Client {
		k := &knowing{knowledge: m, end: end, queues: make([][]*Item, w.Lanes), failures: map[*Item]int{}}
		shared := instance
		if w.Procs.Ledger {
			shared = 0
		}
		if kept[shared] == nil {
			kept[shared] = newGuards(&one)
		}
		k.guards = kept[shared]
		if made[instance] { // an earlier life was killed, with all its requests
			m.forget()
			k.guards.forget()
		}
		made[instance] = true
		return k
	}
}

// knowledge is the provider's state as the knowing client infers it. All instances share it.
type knowledge struct {
	w        *World
	lanes    [][]*limit
	frees    []free              // concurrency that is given back, in order
	hold     []time.Duration     // of each lane: until then a limit has no room
	marks    map[*Item][]float64 // tokens spent of each limit when an item was sent
	good     int                 // items without a result that have not proved hopeless
	changed  int                 // changes that it knows
	pause    time.Duration
	strikes  int           // rejections without a Retry-After in a row
	rejected time.Duration // when the newest rejection of a storm came
	suspect  bool          // nothing sent since has shown that the storm is over
	probed   time.Duration // when a request will have shown it, as it was not rejected until then; 0: none is out
}

type free struct {
	at   time.Duration
	lane int
}

func newKnowledge(w *World) *knowledge {
	m := &knowledge{w: w, hold: make([]time.Duration, w.Lanes), marks: map[*Item][]float64{}}
	foreign := w.Foreign.Share > 0
	account := m.share(w.Account, foreign)
	for lane := range w.Lanes {
		m.lanes = append(m.lanes, append(m.share(w.Lane, foreign && lane == 0), account...))
	}
	return m
}

// share returns the part of limits that foreign clients leave, less a reserve for requests that jitter brings together
// and for those that foreign clients send at once.
func (m *knowledge) share(limits []Limit, foreign bool) []*limit {
	w := m.w
	out := inForce(limits)
	for _, l := range out {
		seconds := w.Serve.Jitter
		if l.Dim == Concurrency {
			if foreign {
				l.N = max(1, l.N-math.Round(w.foreignUse(l.Limit)))
				l.meter = newMeter(l.Limit)
			}
			continue
		}
		if foreign {
			l.foreign = min(w.foreignUse(l.Limit), l.N)
			seconds += Seconds(float64(max(1, w.Foreign.Burst)) * w.cost(l.Dim, w.meanItem()) * l.minute() / l.N)
		}
		left := l.Limit
		left.N = max(l.N-l.foreign, l.N/1000)
		switch l.Kind {
		case Sliding:
			left.N *= float64(l.Burst / (l.Burst + w.Serve.Jitter))
			left.Burst += w.Serve.Jitter
		case Bucket:
			left.Burst = max(l.Burst-seconds, l.Burst/2) * Seconds(l.N/left.N)
		}
		l.meter = newMeter(left)
	}
	return out
}

// forget gives back the concurrency of all requests.
func (m *knowledge) forget() {
	m.frees, m.probed, m.good = nil, 0, 0
	release(m.lanes)
}

// forget gives back the concurrency of all requests.
func (g *guards) forget() { release(g.lanes) }

func release(lanes [][]*limit) {
	for _, lane := range lanes {
		for _, l := range lane {
			if l.Dim == Concurrency {
				l.take(0, l.left(0)-l.size())
			}
		}
	}
}

// room returns the earliest instant at which an item may be sent.
func (m *knowledge) room(now time.Duration, item *Item) time.Duration {
	up := m.w.Serve.Up.span()
	at := max(now, m.hold[item.Lane])
	for _, l := range m.lanes[item.Lane] {
		need := max(m.w.cost(l.Dim, item), m.w.total(l.Dim, item))
		then := after(l, at+up, min(need, l.size()))
		if then == never {
			return never
		}
		b, ok := l.meter.(*bucket)                                                                      // one of a single request has no reserve
		if then > at+up && (ok && b.full < need+b.rate*float64(m.w.Serve.Jitter) || l.Kind == Opened) { // its first request may have been late
			then += m.w.Serve.Jitter.span()
		}
		at = max(at, then-up)
	}
	for _, l := range m.lanes[item.Lane] { // the end of a window, which jitter might carry a request across
		if f, ok := l.meter.(*fixed); ok && f.ends(at+up) != f.ends(at+up+m.w.Serve.Jitter.span()) {
			at = f.ends(at+up) - up
		}
	}
	return at
}

func (m *knowledge) take(now time.Duration, item *Item) {
	lane := m.lanes[item.Lane]
	marks := make([]float64, len(lane))
	for i, l := range lane {
		cost := max(m.w.cost(l.Dim, item), m.w.total(l.Dim, item))
		l.take(now+m.w.Serve.Up.span(), cost)
		l.spent += cost
		marks[i] = l.spent
	}
	m.marks[item] = marks
}

// giveBack returns unused charges of a request, and its concurrency at the instant when the provider releases it.
func (m *knowledge) giveBack(now time.Duration, item *Item, r *Response) {
	trip := m.w.Serve.Up + m.w.Serve.Down
	for _, l := range m.lanes[item.Lane] {
		if l.Dim == Concurrency {
			m.frees = append(m.frees, free{now + max(0, l.Late-trip).span() + time.Microsecond, item.Lane})
			continue
		}
		cost := max(m.w.cost(l.Dim, item), m.w.total(l.Dim, item))
		if kept := m.kept(l.Dim, item, r); kept < cost {
			l.take(now, kept-cost)
		}
	}
}

// kept returns the charge that remains after a response.
func (m *knowledge) kept(d Dimension, item *Item, r *Response) float64 {
	switch charged := m.w.Charge; {
	case r.limited() && !charged.Rejected, !r.limited() && (r.Status == 503 || r.Status == 529) && !charged.Overload:
		return 0
	case r.cause == stray || r.cause == overload || r.cause == stormed || r.cause == limited:
		return m.w.cost(d, item)
	case r.Status != 200:
		return m.w.wasted(d, item)
	}
	return m.w.total(d, item)
}

// refresh gives back the concurrency that is free by now.
func (m *knowledge) refresh(now time.Duration) {
	for len(m.frees) > 0 && m.frees[0].at <= now {
		for _, l := range m.lanes[m.frees[0].lane] {
			if l.Dim == Concurrency {
				l.take(now, -1)
			}
		}
		m.frees = m.frees[1:]
	}
}

// learn corrects the state by a response.
func (m *knowledge) learn(now time.Duration, item *Item, r *Response) {
	for m.changed < len(m.w.Changes) && r.done != never && r.done >= m.w.Changes[m.changed].At.span() {
		change := m.w.Changes[m.changed]
		m.changed++
		seen := map[*limit]bool{}
		for _, lane := range m.lanes {
			for _, l := range lane {
				if change.concerns(l.Dim) && !seen[l] {
					seen[l] = true
					l.change(now, change.Factor)
				}
			}
		}
	}
	if r.cause != limited {
		return
	}
	up := m.w.Serve.Up.span()
	room := r.done - m.w.Serve.Reject.span() + r.wait
	m.hold[item.Lane] = max(m.hold[item.Lane], room-up)
	for i, l := range m.lanes[item.Lane] {
		if l.Dim != r.limit || l.Dim == Concurrency {
			continue
		}
		left := 0.0
		if b, ok := l.meter.(*bucket); ok {
			left = m.w.cost(l.Dim, item) - b.rate*(room-now-up).Seconds()
			if m.w.Charge.Rejected { // so are the requests sent since
				left -= l.spent - m.marks[item][i]
			}
		} else if m.w.Foreign.Share == 0 {
			continue
		}
		if more := l.left(now+up) - left; more > 0 {
			l.take(now+up, more)
		}
	}
}

// judge says when to send again after a response. Whether a storm is over one request is to show.
func (m *knowledge) judge(now time.Duration, a *Attempt, r *Response) {
	m.probed = 0
	fresh := a.Sent.Sub(Epoch) >= m.rejected
	switch {
	case r.cause != stormed:
		if fresh {
			m.suspect, m.strikes = false, 0
		}
		return
	case retryAfter(r) > 0:
		m.pause = max(m.pause, now+retryAfter(r))
	case fresh:
		m.pause = now + 250*time.Millisecond<<min(m.strikes, 2)
		m.strikes++
	}
	m.rejected, m.suspect = now, true
}

// knowing is one instance of the knowing client.
type knowing struct {
	*knowledge
	guards   *guards
	end      End
	queues   [][]*Item
	later    []*Item // hopeless ones, to be tried again once there are no others
	failures map[*Item]int
}

func (k *knowing) Add(_ time.Time, item *Item) {
	k.good++
	k.queues[item.Lane] = append(k.queues[item.Lane], item)
}

func (k *knowing) Next(t time.Time) (send []*Attempt, wake time.Time) {
	now := t.Sub(Epoch)
	k.refresh(now)
	if now < k.pause {
		return nil, Epoch.Add(k.pause)
	}
	if k.probed > 0 && now >= k.probed {
		k.suspect, k.probed, k.strikes = false, 0, 0
	}
	if k.good == 0 {
		for _, item := range k.later {
			k.queues[item.Lane] = append(k.queues[item.Lane], item)
		}
		k.later = nil
	}
	next := never
	if len(k.frees) > 0 {
		next = k.frees[0].at
	}
	for {
		lane, at := k.ready(now)
		if lane < 0 || k.probed > 0 {
			next = min(next, at)
			break
		}
		item := k.queues[lane][0]
		if k.suspect {
			k.probed = now + (2*k.w.Serve.Jitter + k.w.Serve.Up + k.w.Serve.Down + k.w.Serve.Reject).span() + time.Millisecond
		}
		k.queues[lane] = k.queues[lane][1:]
		k.take(now, item)
		k.guards.take(now, item)
		send = append(send, &Attempt{Item: item})
	}
	if k.probed > 0 {
		next = min(next, k.probed)
	}
	if k.w.Procs.N > 1 { // another process may give back
		next = min(next, now+20*time.Millisecond)
	}
	if next == never || next <= now {
		return send, time.Time{}
	}
	return send, Epoch.Add(next)
}

// ready returns the lane with the longest queue whose next item can be sent now, or -1 and the instant when one can.
func (k *knowing) ready(now time.Duration) (best int, earliest time.Duration) {
	best, earliest = -1, never
	for lane, queue := range k.queues {
		if len(queue) == 0 {
			continue
		}
		at := max(k.room(now, queue[0]), k.guards.earliest(now, queue[0]))
		if at > now {
			earliest = min(earliest, at)
		} else if best < 0 || len(queue) > len(k.queues[best]) {
			best = lane
		}
	}
	return best, earliest
}

func (k *knowing) Head(time.Time, *Attempt, *Response) {}

func (k *knowing) Done(t time.Time, a *Attempt, r *Response) {
	now := t.Sub(Epoch)
	k.giveBack(now, a.Item, r)
	k.guards.release(a.Item)
	k.learn(now, a.Item, r)
	k.judge(now, a, r)
	if r.cause == broken || r.cause == hopeless {
		k.failures[a.Item]++
	}
	gone := r.cause == hopeless && k.failures[a.Item] == 1
	switch {
	case r.Status == 200:
		gone = true
		k.end(a.Item, true)
	case r.cause == hopeless && (r.Status == 400 || r.Status == 429), k.failures[a.Item] >= k.w.Config.attempts():
		gone = gone || r.cause != hopeless
		k.end(a.Item, false)
	case r.cause == hopeless:
		k.later = append(k.later, a.Item)
	default:
		k.queues[a.Item.Lane] = append([]*Item{a.Item}, k.queues[a.Item.Lane]...)
	}
	if gone {
		k.good--
	}
}
