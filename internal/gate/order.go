package gate

import (
	"math"
	"time"
)

// ageing lifts a waiting call by one priority class each time it has waited this long.
const ageing = 30 * time.Second

// numClasses is the number of priority classes, Low to Critical.
const numClasses = int(Critical-Low) + 1

// order says which waiting call of a lane is next. Tenants are served by a virtual token counter: the one that was
// served least, by its weight, comes first (the counter of VTC, Sheng et al., OSDI 2024).
type order struct {
	tenants map[string]*tenant
	active  []*tenant // those with waiting calls
	waiting int
	floor   float64 // no tenant that comes back starts below the least active counter
	weights map[string]float64
}

// tenant is one claimant's queue, a list per priority class.
type tenant struct {
	weight float64
	served float64 // virtual: tokens served, divided by weight
	turn   uint64  // the permit that it was served last
	lists  [numClasses]list
	n      int
	index  int // in order.active
}

// list is a queue of tickets, linked through them, so that a cancelled one leaves in constant time.
type list struct{ head, tail *Ticket }

// tenant returns the named tenant, made at its first call.
func (o *order) tenant(name string) *tenant {
	t := o.tenants[name]
	if t == nil {
		if o.tenants == nil {
			o.tenants = make(map[string]*tenant)
		}
		t = &tenant{weight: 1}
		if w := o.weights[name]; w > 0 {
			t.weight = w
		}
		o.tenants[name] = t
	}
	return t
}

// push queues t: at the end, or, where it was throttled and comes back, before those that asked later.
func (o *order) push(t *Ticket) {
	q := t.tenant
	if q.n == 0 {
		q.served = max(q.served, o.least())
		q.index = len(o.active)
		o.active = append(o.active, q)
	}
	l := &q.lists[class(t.Call.Priority)]
	if t.Front {
		l.insert(t)
	} else {
		l.append(t)
	}
	q.n++
	o.waiting++
}

func (o *order) remove(t *Ticket) {
	q := t.tenant
	q.lists[class(t.Call.Priority)].remove(t)
	q.n--
	o.waiting--
	if q.n > 0 {
		return
	}
	if len(o.active) == 1 {
		o.floor = q.served
	}
	last := len(o.active) - 1
	o.active[q.index] = o.active[last]
	o.active[q.index].index = q.index
	o.active[last] = nil
	o.active = o.active[:last]
}

// next is the call whose turn it is, or nil.
func (o *order) next(now time.Time) *Ticket {
	var best *Ticket
	bestClass := -1
	for _, q := range o.active {
		t, c := q.next(now)
		if c > bestClass || c == bestClass && q.before(best.tenant) {
			best, bestClass = t, c
		}
	}
	return best
}

// before reports whether q was served less than p, or, as much, longer ago.
func (q *tenant) before(p *tenant) bool {
	return q.served < p.served || q.served == p.served && q.turn < p.turn
}

// place is one more than how many waiting calls are more urgent than t, or as urgent and older.
func (o *order) place(now time.Time, t *Ticket) int {
	place, own := 1, t.agedClass(now)
	for _, q := range o.active {
		for c := range q.lists {
			for u := q.lists[c].head; u != nil; u = u.next {
				if theirs := u.agedClass(now); theirs > own || theirs == own && u.before(t) {
					place++
				}
			}
		}
	}
	return place
}

// leastThrottled is the waiting call that was throttled least often, the oldest of equals. It goes out as a probe:
// otherwise one call would pay for a whole storm with its patience.
func (o *order) leastThrottled(now time.Time) *Ticket {
	best := o.next(now)
	for _, q := range o.active {
		for c := range q.lists {
			for t := q.lists[c].head; t != nil && best.Throttles > 0; t = t.next {
				if t.Throttles < best.Throttles {
					best = t
				}
			}
		}
	}
	return best
}

// next is the tenant's first call of the highest class, age counted, and that class.
func (q *tenant) next(now time.Time) (*Ticket, int) {
	var best *Ticket
	bestClass := -1
	for c := numClasses - 1; c >= 0; c-- {
		t := q.lists[c].head
		if t == nil {
			continue
		}
		aged := t.agedClass(now)
		if aged > bestClass || aged == bestClass && t.Queued.Before(best.Queued) {
			best, bestClass = t, aged
		}
	}
	return best, bestClass
}

// agedClass is the ticket's priority class, lifted by how long it has waited.
func (t *Ticket) agedClass(now time.Time) int {
	return min(class(t.Call.Priority)+int(max(0, now.Sub(t.Queued))/ageing), numClasses-1)
}

// serve counts amount of work done for the tenant.
func (q *tenant) serve(amount float64) { q.served += amount / q.weight }

// least is the smallest counter of the tenants that wait.
func (o *order) least() float64 {
	if len(o.active) == 0 {
		return o.floor
	}
	least := math.Inf(1)
	for _, q := range o.active {
		least = min(least, q.served)
	}
	return least
}

// work is what serving a call counts for: output costs a provider about twice what input does.
func work(input, output float64) float64 { return 1 + input + 2*output }

func class(p Priority) int { return int(min(max(p, Low), Critical) - Low) }

func (l *list) append(t *Ticket) {
	t.prev, t.next = l.tail, nil
	if l.tail == nil {
		l.head = t
	} else {
		l.tail.next = t
	}
	l.tail = t
}

// insert puts t before the first that asked later than it.
func (l *list) insert(t *Ticket) {
	at := l.head
	for at != nil && !t.before(at) {
		at = at.next
	}
	if at == nil {
		l.append(t)
		return
	}
	t.prev, t.next = at.prev, at
	if at.prev == nil {
		l.head = t
	} else {
		at.prev.next = t
	}
	at.prev = t
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
