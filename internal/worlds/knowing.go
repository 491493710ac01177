package worlds

import (
	"math"
	"time"
)

// Knowing is the reference client: it knows the limits, also after a change once a response has come from there, its
// share of what foreign clients and other processes leave, and the cause of each rejection. It does not know storms and
// faults before it meets them, nor latencies.
func Knowing(w *World) func(instance int, end End) Client {
	mirrors := map[int]*mirror{}
	return func(instance int, end End) Client {
		if w.Procs.Ledger {
			instance = 0
		}
		m := mirrors[instance]
		if m == nil {
			m = newMirror(w)
			mirrors[instance] = m
		} else if !w.Procs.Ledger { // an earlier life was killed, with all its requests
			m.forget()
		}
		return &knowing{mirror: m, end: end, queues: make([][]*Item, w.Lanes), failures: map[*Item]int{}}
	}
}

// mirror is what the knowing client holds to be the provider's state.
type mirror struct {
	w        *World
	lanes    [][]*limit
	guards   *guards
	frees    []free // concurrency that is given back, in order
	changed  int    // changes that it knows
	pause    time.Duration
	strikes  int           // rejections without a Retry-After in a row
	rejected time.Duration // when the newest rejection of a storm came
	suspect  bool          // nothing sent since has shown that the storm is over
	probing  bool          // one request is out that is to show it
}

type free struct {
	at   time.Duration
	lane int
}

func newMirror(w *World) *mirror {
	m := &mirror{w: w, guards: newGuards(w)}
	account := m.share(w.Account, w.Foreign.Share)
	for lane := range w.Lanes {
		foreign := w.Foreign.Share
		if lane > 0 { // foreign clients use the first lane
			foreign = 0
		}
		m.lanes = append(m.lanes, append(m.share(w.Lane, foreign), account...))
	}
	return m
}

// share returns the part of limits that is for this client, less a reserve for requests that jitter brings together.
func (m *mirror) share(limits []Limit, foreign float64) []*limit {
	w := m.w
	part := 1.0
	if w.Procs.N > 1 && !w.Procs.Ledger {
		part = 1 / float64(w.Procs.N)
	}
	mine := append([]Limit(nil), limits...)
	for i := range mine {
		l := &mine[i]
		l.N *= part * (1 - foreign)
		switch {
		case l.Dim == Concurrent:
			l.N = max(1, math.Floor(l.N))
		case l.Kind == Sliding:
			l.Burst += w.Serve.Jitter
			l.N *= float64((l.Burst - w.Serve.Jitter) / l.Burst)
		case l.Kind == Bucket:
			l.Burst = max(l.Burst-w.Serve.Jitter, l.Burst/2)
		}
	}
	return inForce(mine)
}

// forget gives back the concurrency of all requests.
func (m *mirror) forget() {
	m.frees, m.probing = nil, false
	for _, lanes := range [][][]*limit{m.lanes, m.guards.lanes} {
		for _, lane := range lanes {
			for _, l := range lane {
				if l.Dim == Concurrent {
					l.take(0, l.left(0)-l.size())
				}
			}
		}
	}
}

// room returns the earliest instant at which an item may be sent.
func (m *mirror) room(now time.Duration, item *Item) time.Duration {
	up := m.w.Serve.Up.span()
	at := max(now, m.guards.earliest(now, item))
	for _, l := range m.lanes[item.Lane] {
		need := max(m.w.cost(l.Dim, item), m.w.total(l.Dim, item))
		then := l.after(at+up, min(need, l.size()))
		if then == never {
			return never
		}
		at = max(at, then-up)
	}
	for _, l := range m.lanes[item.Lane] { // the end of a window, which jitter might carry a request across
		if f, ok := l.meter.(*fixed); ok && f.of(at+up) != f.of(at+up+m.w.Serve.Jitter.span()) {
			at = (f.of(at+up)+1)*f.window - f.phase - up
		}
	}
	return at
}

func (m *mirror) take(now time.Duration, item *Item) {
	m.guards.take(now, item)
	for _, l := range m.lanes[item.Lane] {
		l.take(now+m.w.Serve.Up.span(), max(m.w.cost(l.Dim, item), m.w.total(l.Dim, item)))
	}
}

// giveBack returns a request's concurrency once the provider counts it no more.
func (m *mirror) giveBack(now time.Duration, item *Item) {
	m.guards.release(item)
	trip := m.w.Serve.Up + m.w.Serve.Down
	for _, l := range m.lanes[item.Lane] {
		if l.Dim == Concurrent {
			m.frees = append(m.frees, free{now + max(0, l.Late-trip).span(), item.Lane})
		}
	}
}

// refresh gives back the concurrency that is free by now.
func (m *mirror) refresh(now time.Duration) {
	for len(m.frees) > 0 && m.frees[0].at <= now {
		for _, l := range m.lanes[m.frees[0].lane] {
			if l.Dim == Concurrent {
				l.take(now, -1)
			}
		}
		m.frees = m.frees[1:]
	}
}

// learn corrects the mirror by a response.
func (m *mirror) learn(now time.Duration, item *Item, r *Response) {
	for m.changed < len(m.w.Changes) && r.done != never && r.done >= m.w.Changes[m.changed].At.span() {
		change := m.w.Changes[m.changed]
		m.changed++
		seen := map[*limit]bool{}
		for _, lane := range m.lanes {
			for _, l := range lane {
				if change.concerns(l.Dim) && !seen[l] {
					seen[l] = true
					l.N *= change.Factor
					l.refit(now, l.N)
				}
			}
		}
	}
	if r.cause != limited {
		return
	}
	for _, l := range m.lanes[item.Lane] {
		if left := l.left(now); l.Dim != Concurrent && left > 0 {
			l.take(now, left)
		}
	}
}

// judge says when to send again after a response. Whether a storm is over one request is to show.
func (m *mirror) judge(now time.Duration, a *Attempt, r *Response) {
	m.probing = false
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
		m.pause = now + 250*time.Millisecond<<min(m.strikes, 3)
		m.strikes++
	}
	m.rejected, m.suspect = now, true
}

// knowing is one instance of the knowing client.
type knowing struct {
	*mirror
	end      End
	queues   [][]*Item
	failures map[*Item]int
}

func (k *knowing) Add(_ time.Time, item *Item) {
	k.queues[item.Lane] = append(k.queues[item.Lane], item)
}

func (k *knowing) Next(t time.Time) (send []*Attempt, wake time.Time) {
	now := t.Sub(Epoch)
	k.refresh(now)
	if now < k.pause {
		return nil, Epoch.Add(k.pause)
	}
	next := never
	if len(k.frees) > 0 {
		next = k.frees[0].at
	}
	for lane := range k.queues {
		for len(k.queues[lane]) > 0 {
			item := k.queues[lane][0]
			at := k.room(now, item)
			if k.ledgered() && at == never {
				at = now + 10*time.Millisecond // another process may give back
			}
			if k.probing || at > now {
				next = min(next, at)
				break
			}
			k.probing = k.suspect
			k.queues[lane] = k.queues[lane][1:]
			k.take(now, item)
			send = append(send, &Attempt{Item: item})
		}
	}
	if next == never || next <= now {
		return send, time.Time{}
	}
	return send, Epoch.Add(next)
}

// ledgered reports whether other processes use the mirror as well.
func (m *mirror) ledgered() bool { return m.w.Procs.N > 1 && m.w.Procs.Ledger }

func (k *knowing) Head(time.Time, *Attempt, *Response) {}

func (k *knowing) Done(t time.Time, a *Attempt, r *Response) {
	now := t.Sub(Epoch)
	k.giveBack(now, a.Item)
	k.learn(now, a.Item, r)
	k.judge(now, a, r)
	if r.cause == broken || r.cause == hopeless {
		k.failures[a.Item]++
	}
	switch {
	case r.Status == 200:
		k.end(a.Item, true)
	case r.cause == hopeless && (r.Status == 400 || r.Status == 429), k.failures[a.Item] >= k.w.Told.attempts():
		k.end(a.Item, false)
	case r.cause == hopeless: // after all others
		k.queues[a.Item.Lane] = append(k.queues[a.Item.Lane], a.Item)
	default:
		k.queues[a.Item.Lane] = append([]*Item{a.Item}, k.queues[a.Item.Lane]...)
	}
}
