package route

import (
	"container/list"
	"context"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
)

const (
	lookInterval = 200 * time.Millisecond // how often waiting calls are compared with the other upstreams
	minGain      = 250 * time.Millisecond // minimum gain of a move, beside half the wait: a call that moves goes behind all others
)

// worthwhile reports whether a wait is so much longer than another that a call moves for it.
func worthwhile(wait, other time.Duration) bool { return other < (wait-minGain)/2 }

// queued is the place at which a call waits.
type queued struct {
	at   Way                // set only while the call does not wait
	move context.CancelFunc // ends the wait; set with at

	// Guarded by Router.mu:
	from    time.Time     // start of the wait, after the call's own wait for another attempt
	element *list.Element // of Router.waiting; nil if it does not wait
}

// noItem names no item.
func noItem() string { return "" }

// enqueue enters a call among those that wait. Until its own wait is over, it is not moved.
func (r *Router) enqueue(c *call, own time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.from, c.element = time.Now().Add(own), r.waiting.PushBack(c)
	r.upstreams[c.at.Upstream].waiting++
	if !r.ticking && len(r.upstreams) > 1 {
		r.ticking = true
		time.AfterFunc(lookInterval, r.tick)
	}
}

// dequeue removes a call, if it waits.
func (r *Router) dequeue(c *call) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dequeueLocked(c)
}

func (r *Router) dequeueLocked(c *call) {
	if c.element != nil {
		r.waiting.Remove(c.element)
		c.element = nil
		r.upstreams[c.at.Upstream].waiting--
	}
}

// depart removes a call that has its permit, and sets its key; false if its upstream was left out, or its key is held.
func (r *Router) depart(c *call) (ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dequeueLocked(c)
	c.sent = time.Now()
	c.key, ok = r.upstreams[c.at.Upstream].takeKeyLocked(c.sent, c.item)
	return ok
}

// awaitHeld waits while a key is held that the call could go with. It reports whether there was one.
func (c *call) awaitHeld() bool {
	r, until := c.router, time.Time{}
	r.mu.Lock()
	for _, w := range c.ways {
		up := r.upstreams[w.Upstream]
		for k := range up.keys {
			if h := &up.keys[k]; h.condition == held && up.account.health.condition == open && (until.IsZero() || h.until.Before(until)) {
				until = h.until
			}
		}
	}
	changed := r.changed
	r.mu.Unlock()
	if until.IsZero() {
		return false
	}
	timer := time.NewTimer(max(time.Until(until), lookInterval))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-c.ctx.Done():
		return false
	case <-c.spec.Withdrawn:
		return false
	}
	return true
}

// tick moves waiting calls, as long as there are any.
func (r *Router) tick() {
	r.moveWaiting()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ticking = r.waiting.Len() > 0
	if r.ticking {
		time.AfterFunc(lookInterval, r.tick)
	}
}

// queue is where calls wait for each other: a lane of a Scheduler.
type queue struct {
	scheduler *sluice.Scheduler
	lane      string
}

func (r *Router) queue(w Way) queue { return queue{r.upstreams[w.Upstream].Scheduler, w.Lane} }

// waiter is a call that waits, at the instant of a look.
type waiter struct {
	*call
	at    Way
	move  context.CancelFunc
	place int // in its queue, from 1
}

// moveWaiting ends the wait of those calls that would start much sooner at another upstream. Each chooses again then, and finds the
// queues as the calls before it left them.
func (r *Router) moveWaiting() {
	waiters, count, out := r.waiters()
	delays, firsts := make(map[queue]time.Duration), make(map[queue]time.Duration)
	delay := func(known map[queue]time.Duration, w Way, spec sluice.Call) time.Duration {
		d, ok := known[r.queue(w)]
		if !ok {
			d = r.delay(w, spec)
			known[r.queue(w)] = d
		}
		return d
	}
	left := func(w Way) bool { return out&(1<<w.Upstream) != 0 }
	for _, w := range waiters {
		if left(w.at) {
			w.move()
			continue
		}
		own := r.queue(w.at)
		// A call that asked now would wait for all calls before it; one that waits already, for its part of them. All wait for the end
		// of a pause.
		front := w.spec
		front.Ahead = math.MinInt32 // before all others
		least := delay(firsts, w.at, front)
		wait := least + max(0, delay(delays, w.at, w.spec)-least)/time.Duration(count[own]+1)*time.Duration(w.place)
		if wait <= minGain || r.cfg.Cheapest && wait <= patience {
			continue
		}
		if slices.ContainsFunc(w.ways, func(other Way) bool {
			return !left(other) && r.queue(other) != own && worthwhile(wait, delay(delays, other, w.spec))
		}) {
			w.move()
		}
	}
}

// waiters returns the calls that wait and may be moved, how many wait in each queue, and which upstreams are left out, by
// index. It returns nothing right after it did: a thousand calls that fail at once need only one look.
func (r *Router) waiters() (all []waiter, count map[queue]int, out uint64) {
	const soon = lookInterval / 20
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Sub(r.looked) < soon {
		return nil, nil, 0
	}
	r.looked = now
	for _, up := range r.upstreams {
		if up.leftOutLocked() != nil && !up.admitsLocked(now, noItem) {
			out |= 1 << up.index
		}
	}
	count = make(map[queue]int)
	for e := r.waiting.Front(); e != nil; e = e.Next() {
		c := e.Value.(*call)
		own := r.queue(c.at)
		count[own]++
		if !now.Before(c.from) {
			all = append(all, waiter{call: c, at: c.at, move: c.move, place: count[own]})
		}
	}
	return all, count, out
}
