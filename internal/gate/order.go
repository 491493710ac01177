package gate

import (
	"container/heap"
	"github.com/sluice-llm/sluice/limits"
	"math"
	"time"
)

// ageing lifts a waiting call by one priority class each time it has waited this long.
const ageing = 30 * time.Second

// numClasses is the number of priority classes, Low to Critical.
const numClasses = int(limits.Critical-limits.Low) + 1

// order says which waiting call of a lane is next. Tenants are served by a virtual counter: the one that was served least,
// by its weight, comes first (the counter of VTC, Sheng et al., OSDI 2024). What it counts is in share.go. That costs the
// logarithm of how many tenants wait: every member of a pool is one.
type order struct {
	tenants map[string]*tenant
	classes [numClasses]tenantHeap // the tenants with waiting calls, by the class of their most urgent one
	rising  tenantHeap             // and those of them whose class will rise by age, by when
	active  int
	waiting int
	floor   float64 // no tenant that comes back starts below the least active counter
	sweepAt int     // how many tenants there are when it is time to forget some
	weights map[string]float64

	asking bool    // for calls that wait, at a remote ledger:
	asked  float64 // the least counter of their tenants

	// perWork is the part of a limit that counts for a unit of work. It is that of the call that was counted first since a limit is
	// known, and 0 while none is: then counters are of work.
	perWork float64
}

// leastSweep is how many tenants are remembered in any case.
const leastSweep = 1024

// tenant is one claimant's queue, a list per priority class.
type tenant struct {
	order  *order
	weight float64
	served float64 // virtual: what it was served, divided by weight
	turn   uint64  // the permit that it was served last
	since  uint64  // the call with which it began to wait
	lists  [numClasses]list
	n      int
	calls  int // waiting or open
	asked  int // of those that wait, in an ask of a remote ledger

	class           int       // as of when its heads changed or it rose
	rises           time.Time // when that will be higher by age; zero: never
	inClass, inRise int       // places in the heaps
}

// list is a queue of tickets, linked through them, so that a cancelled one leaves in constant time.
type list struct{ head, tail *Ticket }

// tenant returns the named tenant, made at its first call. id is that of the newest call.
func (o *order) tenant(name string, id uint64) *tenant {
	q := o.tenants[name]
	if q == nil {
		if o.tenants == nil {
			o.open()
		}
		o.sweep(id)
		q = &tenant{order: o, weight: o.weight(name)}
		o.tenants[name] = q
	}
	return q
}

// weight is the share of a tenant.
func (o *order) weight(name string) float64 {
	if w := o.weights[name]; w > 0 {
		return w
	}
	return 1
}

func (o *order) open() {
	o.tenants = make(map[string]*tenant)
	for c := range o.classes {
		o.classes[c] = tenantHeap{less: (*tenant).before, place: func(q *tenant) *int { return &q.inClass }}
	}
	o.rising = tenantHeap{
		less:  func(a, b *tenant) bool { return a.rises.Before(b.rises) },
		place: func(q *tenant) *int { return &q.inRise },
	}
}

// sweep forgets tenants that have no calls once there are many. One that was not served more than those that wait would
// start with the least of them anyway. One served more is forgotten once many others asked.
func (o *order) sweep(id uint64) {
	n := len(o.tenants)
	if n < max(o.sweepAt, leastSweep) {
		return
	}
	least := o.least()
	for name, q := range o.tenants {
		if q.calls == 0 && (q.served <= least || q.turn+uint64(n/2) < id) {
			delete(o.tenants, name)
		}
	}
	o.sweepAt = 2 * len(o.tenants)
}

// push queues t at the end. A request that comes back goes before the first one that asked later.
func (o *order) push(t *Ticket) {
	q := t.tenant
	l := &q.lists[class(t.Call.Priority)]
	head := l.head
	var at *Ticket
	if t.Front {
		for at = head; at != nil && !t.before(at); at = at.next {
		}
	}
	l.insert(t, at)
	o.waiting++
	if q.n++; q.n == 1 {
		if q.since = t.Order; q.asked == 0 { // else it never stopped waiting
			q.served = max(q.served, o.least())
		}
		o.active++
		q.classify(time.Time{})
		o.enter(q)
	} else if l.head != head {
		o.reclassify(q, time.Time{})
	}
}

func (o *order) remove(t *Ticket) {
	q := t.tenant
	l := &q.lists[class(t.Call.Priority)]
	head := l.head
	l.remove(t)
	o.waiting--
	if q.n--; q.n == 0 {
		if o.active--; o.active == 0 {
			o.floor = q.served
		}
		o.leave(q)
	} else if l.head != head {
		o.reclassify(q, time.Time{})
	}
}

// reclassify finds the class of a tenant whose heads changed or that rose. Without now, age is left to the next look.
func (o *order) reclassify(q *tenant, now time.Time) {
	o.leave(q)
	q.classify(now)
	o.enter(q)
}

func (o *order) enter(q *tenant) {
	heap.Push(&o.classes[q.class], q)
	if !q.rises.IsZero() {
		heap.Push(&o.rising, q)
	}
}

func (o *order) leave(q *tenant) {
	heap.Remove(&o.classes[q.class], q.inClass)
	if !q.rises.IsZero() {
		heap.Remove(&o.rising, q.inRise)
	}
}

// classify sets the tenant's class, age counted, and when it will be higher.
func (q *tenant) classify(now time.Time) {
	q.class, q.rises = 0, time.Time{}
	for c := range q.lists {
		if t := q.lists[c].head; t != nil {
			q.class = max(q.class, t.agedClass(now))
		}
	}
	if q.class == numClasses-1 {
		return
	}
	for c := range q.lists {
		if t := q.lists[c].head; t != nil {
			at := t.Queued.Add(time.Duration(q.class+1-c) * ageing)
			if q.rises.IsZero() || at.Before(q.rises) {
				q.rises = at
			}
		}
	}
}

// next is the call whose turn it is, or nil.
func (o *order) next(now time.Time) *Ticket {
	for q := o.rising.first(); q != nil && !q.rises.After(now); q = o.rising.first() {
		o.reclassify(q, now)
	}
	for c := numClasses - 1; c >= 0; c-- {
		if q := o.classes[c].first(); q != nil {
			return q.next(now)
		}
	}
	return nil
}

// before reports whether q was served less than p, or, as much, longer ago.
func (q *tenant) before(p *tenant) bool {
	if q.served != p.served {
		return q.served < p.served
	}
	return q.turn < p.turn || q.turn == p.turn && q.since < p.since
}

// each calls fn with every call that waits.
func (o *order) each(fn func(*Ticket)) {
	for c := range o.classes {
		for _, q := range o.classes[c].tenants {
			q.each(fn)
		}
	}
}

func (q *tenant) each(fn func(*Ticket)) {
	for c := range q.lists {
		for t := q.lists[c].head; t != nil; t = t.next {
			fn(t)
		}
	}
}

// place is one more than how many waiting calls are more urgent than t, or as urgent and older.
func (o *order) place(now time.Time, t *Ticket) int {
	place, own := 1, t.agedClass(now)
	o.each(func(u *Ticket) {
		if theirs := u.agedClass(now); theirs > own || theirs == own && u.before(t) {
			place++
		}
	})
	return place
}

// leastTried is the waiting call that was tried least often, the oldest of equals. It goes out as a probe: otherwise one call
// would pay for a whole storm with its patience.
func (o *order) leastTried(now time.Time) *Ticket {
	first := o.next(now)
	best := first
	if best.tries() == 0 {
		return best
	}
	o.each(func(t *Ticket) {
		if t.tries() < best.tries() || t.tries() == best.tries() && best != first && t.before(best) {
			best = t
		}
	})
	return best
}

// untried is any of the waiting calls that were tried least often: if items fail, their neighbours may as well.
func (o *order) untried(random func(int64) int64) (any *Ticket) {
	equals := int64(0)
	o.each(func(t *Ticket) {
		switch {
		case any == nil || t.tries() < any.tries():
			any, equals = t, 1
		case t.tries() == any.tries():
			if equals++; random(equals) == 0 {
				any = t
			}
		}
	})
	return any
}

// tries is how often a call was tried before.
func (t *Ticket) tries() int { return t.Throttles + t.Attempt - 1 }

// next is the tenant's first call of the highest class, age counted.
func (q *tenant) next(now time.Time) *Ticket {
	var best *Ticket
	for c := numClasses - 1; c >= 0; c-- {
		switch t := q.lists[c].head; {
		case t == nil:
		case best == nil:
			best = t
		default:
			if higher := t.agedClass(now) - best.agedClass(now); higher > 0 || higher == 0 && t.Queued.Before(best.Queued) {
				best = t
			}
		}
	}
	return best
}

// agedClass is the ticket's priority class, lifted by how long it has waited.
func (t *Ticket) agedClass(now time.Time) int {
	return min(class(t.Call.Priority)+int(max(0, now.Sub(t.Queued))/ageing), numClasses-1)
}

// serve counts amount of work done for the tenant.
func (q *tenant) serve(amount float64) { q.stand(q.served + amount/q.weight) }

// stand sets the tenant's counter.
func (q *tenant) stand(served float64) {
	q.served = served
	if q.n > 0 {
		heap.Fix(&q.order.classes[q.class], q.inClass)
	}
}

// least is the smallest counter of the tenants that wait.
func (o *order) least() float64 {
	if o.active == 0 && !o.asking {
		return o.floor
	}
	least := math.Inf(1)
	if o.asking {
		least = o.asked
	}
	for c := range o.classes {
		if q := o.classes[c].first(); q != nil {
			least = min(least, q.served)
		}
	}
	return least
}

func class(p limits.Priority) int { return int(min(max(p, limits.Low), limits.Critical) - limits.Low) }

// insert puts t before a ticket of the list, or at its end if that is nil.
func (l *list) insert(t, at *Ticket) {
	behind := &l.tail
	if at != nil {
		behind = &at.prev
	}
	t.prev, t.next = *behind, at
	*behind = t
	if t.prev == nil {
		l.head = t
	} else {
		t.prev.next = t
	}
}

// before reports whether t asked earlier than u.
func (t *Ticket) before(u *Ticket) bool {
	return t.Queued.Before(u.Queued) || t.Queued.Equal(u.Queued) && t.Order < u.Order
}

func (l *list) remove(t *Ticket) {
	if t.prev == nil {
		l.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		l.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
}
