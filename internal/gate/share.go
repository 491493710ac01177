package gate

// What serving a call counts for among tenants: the largest part that it takes of a minute's limit, of its lane's or the
// account's (the dominant share, Ghodsi et al., NSDI 2011). So tenants share what binds: requests where requests do, tokens
// as the provider charges them where tokens do. By the tokens that were used alone, who declares long answers and gets
// short ones would be let have most of a limit that charges what is declared.
//
// Where no such limit is known, slots are what is shared, and the tokens say best how long a call has one.

// count counts a call that is granted.
func (l *lane) count(t *Ticket) {
	switch o := &l.order; {
	case o.perWork == 0 && l.limited():
		before := l.share(&t.cost)
		o.perWork = l.largest(&t.cost) / before
		l.rescale(o.perWork)
	case o.perWork > 0 && !l.limited():
		l.rescale(1 / o.perWork)
		o.perWork = 0
	}
	t.counted = l.share(&t.cost)
	t.tenant.serve(t.counted)
}

// recount exchanges what a call was counted for when it was granted for what it used.
func (l *lane) recount(t *Ticket, refund *Vector, o *Outcome) {
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

// limited reports whether a limit of a minute is known.
func (l *lane) limited() bool {
	for d := Requests; d <= OutputTokens; d++ {
		if l.limit(d) > 0 {
			return true
		}
	}
	return false
}

// limit is the lower of the lane's and the account's; 0 if neither is known.
func (l *lane) limit(d Dimension) float64 {
	own, shared := l.mirrors[d].limit, 0.0
	if a := &l.gate.account; a.on {
		shared = a.book.budgets[d].rate * d.window()
	}
	if own == 0 || shared == 0 {
		return own + shared
	}
	return min(own, shared)
}

// share is what a call of that cost counts for.
func (l *lane) share(cost *Vector) float64 {
	if l.order.perWork == 0 {
		return work(cost[InputTokens], cost[OutputTokens])
	}
	return l.largest(cost)
}

// largest is the largest part of a limit that a call of that cost takes; 0 where none is known.
func (l *lane) largest(cost *Vector) (largest float64) {
	for d := Requests; d <= OutputTokens; d++ {
		if limit := l.limit(d); limit > 0 {
			largest = max(largest, max(1, cost[d])/limit) // what costs nothing takes turns as well
		}
	}
	return largest
}

// work is what the tokens of a call count for: output takes about twice the time that input does.
func work(input, output float64) float64 { return 1 + input + 2*output }

// rescale has all counters, and what open calls were counted for, be in another unit, of which one of the old is so many. That
// leaves the order of tenants as it is.
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
