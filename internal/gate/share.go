package gate

import "github.com/sluice-llm/sluice/limits"

// What serving a call counts for among tenants: the largest part that it takes of a minute's limit, of its lane's or the
// account's (the dominant share, Ghodsi et al., NSDI 2011). So tenants share what binds: requests where requests do, tokens
// as the provider charges them where tokens do. By used tokens alone, a tenant that declares long outputs could take
// most of a limit that charges declared tokens.
//
// Where no such limit is known, slots are what is shared, and the tokens say best how long a call has one.

// count counts a call that is granted.
func (l *lane) count(t *Ticket) {
	switch o, limited := &l.order, l.buckets.limited(); {
	case o.perWork == 0 && limited:
		before := l.share(&t.cost)
		o.perWork = l.largest(&t.cost) / before
		l.rescale(o.perWork)
	case o.perWork > 0 && !limited:
		l.rescale(1 / o.perWork)
		o.perWork = 0
	}
	t.counted = l.share(&t.cost)
	t.tenant.serve(t.counted)
}

// recount exchanges what a call was counted for when it was granted for what it used.
func (l *lane) recount(t *Ticket, refund *limits.Vector, o *limits.Outcome) {
	switch used := t.cost; {
	case l.order.perWork > 0:
		for d := range used {
			used[d] -= refund[d]
		}
		t.tenant.serve(l.share(&used) - t.counted)
	case o.HasUsage:
		t.tenant.serve(work(sane(o.Usage.Input), sane(o.Usage.Output)) - t.counted)
	}
}

// share is what a call of that cost counts for.
func (l *lane) share(cost *limits.Vector) float64 {
	if l.order.perWork == 0 {
		return work(cost[limits.InputTokens], cost[limits.OutputTokens])
	}
	return l.largest(cost)
}

// largest is the largest part of a limit that a call of that cost takes; 0 where none is known.
func (l *lane) largest(cost *limits.Vector) (largest float64) {
	for _, each := range l.buckets.perMinute() {
		if limit := l.buckets.limit(each.Dimension); limit > 0 {
			if part := max(1, cost[each.Dimension]) / limit; part > largest { // a cost of 0 takes turns as well
				largest = part
			}
		}
	}
	return largest
}

// work is what the tokens of a call count for: output takes about twice the time that input does.
func work(input, output float64) float64 { return 1 + input + 2*output }

// rescale multiplies all counters, and what open requests were counted for, by unit. The order of tenants stays.
func (l *lane) rescale(unit float64) {
	for _, q := range l.order.tenants {
		q.served *= unit
	}
	l.order.floor *= unit
	l.order.asked *= unit
	for t := l.flight.head; t != nil; t = t.next {
		t.counted *= unit
	}
}
