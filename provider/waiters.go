package provider

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
)

// lookEvery is how often the calls that wait are looked at, for those that would start much sooner elsewhere.
const lookEvery = 200 * time.Millisecond

// leastGain is how much sooner that is at least, beside twice as soon: a call that moves goes behind all others.
const leastGain = 250 * time.Millisecond

// worthwhile reports whether a wait is so much longer than another that a call moves for it.
func worthwhile(wait, other time.Duration) bool { return other < (wait-leastGain)/2 }

// join enters a call among those that wait, at an upstream.
func (u *Upstreams) join(r *routed, at way, move context.CancelFunc) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r.at, r.move = at, move
	u.enterLocked(r, 0)
}

// stay enters a call again that goes on waiting where it is, first by itself for so long.
func (u *Upstreams) stay(r *routed, own time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.enterLocked(r, own)
}

func (u *Upstreams) enterLocked(r *routed, own time.Duration) {
	r.from, r.waits = time.Now().Add(own), true
	r.at.up.waiting++
	r.prev, r.next = u.last, nil
	if u.last != nil {
		u.last.next = r
	} else {
		u.first = r
	}
	u.last = r
	if !u.ticking {
		u.ticking = true
		time.AfterFunc(lookEvery, u.tick)
	}
}

// leave takes a call out, if it waits.
func (u *Upstreams) leave(r *routed) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.leaveLocked(r)
}

func (u *Upstreams) leaveLocked(r *routed) {
	if !r.waits {
		return
	}
	r.waits = false
	r.at.up.waiting--
	if r.prev != nil {
		r.prev.next = r.next
	} else {
		u.first = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	} else {
		u.last = r.prev
	}
	r.prev, r.next = nil, nil
}

// depart takes a call that has its permit out, and says how it goes; false if its upstream was left out.
func (u *Upstreams) depart(r *routed) (Via, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.leaveLocked(r)
	c := &r.at
	key, ok := c.up.keyLocked()
	return Via{Upstream: &c.up.Upstream, Model: c.model, Key: key, PriceIn: c.in, PriceOut: c.out, HasPrice: c.priced}, ok
}

// tick looks at what waits, as long as something does.
func (u *Upstreams) tick() {
	u.look()
	u.mu.Lock()
	defer u.mu.Unlock()
	u.ticking = u.first != nil
	if u.ticking {
		time.AfterFunc(lookEvery, u.tick)
	}
}

// queue is where calls wait for each other: a lane of a Scheduler.
type queue struct {
	scheduler *sluice.Scheduler
	lane      string
}

func (w way) queue() queue { return queue{w.up.Scheduler, w.lane} }

// waiter is a call that waits, as it was when it was looked at.
type waiter struct {
	at    way
	ways  []way
	call  sluice.Call
	move  context.CancelFunc
	place int // in its queue, from 1
}

// look ends the wait of those calls that would start much sooner elsewhere. Each chooses again then, and finds what those
// before it took.
func (u *Upstreams) look() {
	waiters, count, out := u.waiters()
	delays := make(map[queue]time.Duration)
	delay := func(w way, call sluice.Call) time.Duration {
		d, known := delays[w.queue()]
		if !known {
			d = w.ask(call)
			delays[w.queue()] = d
		}
		return d
	}
	left := func(w way) bool { return out&(1<<w.up.index) != 0 }
	for _, w := range waiters {
		if left(w.at) {
			w.move()
			continue
		}
		own := w.at.queue()
		// A call that asked now would wait for all that are before it; one that waits already, for its part of them.
		wait := delay(w.at, w.call) / time.Duration(count[own]+1) * time.Duration(w.place)
		if wait <= leastGain || u.cfg.Prefer == PreferCost && wait <= Patience {
			continue
		}
		if slices.ContainsFunc(w.ways, func(other way) bool {
			return !left(other) && other.queue() != own && worthwhile(wait, delay(other, w.call))
		}) {
			w.move()
		}
	}
}

// waiters returns the calls that wait and may be moved, how many wait in each queue, and which upstreams are left out, by
// index. It returns nothing right after it did: a thousand calls that fail at once need no more than one look.
func (u *Upstreams) waiters() (all []waiter, count map[queue]int, out uint64) {
	const soon = lookEvery / 20
	now := time.Now()
	u.mu.Lock()
	defer u.mu.Unlock()
	if now.Sub(u.looked) < soon {
		return nil, nil, 0
	}
	u.looked = now
	for _, up := range u.all {
		if up.out != nil {
			out |= 1 << up.index
		}
	}
	count = make(map[queue]int)
	for r := u.first; r != nil; r = r.next {
		own := r.at.queue()
		count[own]++
		if !now.Before(r.from) {
			all = append(all, waiter{at: r.at, ways: r.ways, call: r.call, move: r.move, place: count[own]})
		}
	}
	return all, count, out
}
