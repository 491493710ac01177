package gate

import "time"

// account is what the lanes of a gate share: budgets and slots that are told, beside each lane's own. A call has all
// that it needs of both, or nothing.
type account struct {
	on    bool
	book  Book
	slots int // 0 is no such limit
	open  int
}

// newAccount sets up the budgets that are told for all lanes together. No header speaks of them.
func newAccount(now time.Time, told Limits) account {
	a := account{on: told != Limits{}, slots: told.Concurrent}
	burst := startCap
	if told.Burst > 0 {
		burst = told.Burst.Seconds()
	}
	for d := Requests; d < NumDimensions; d++ {
		limit := limitOf(told, d)
		if limit == 0 {
			continue
		}
		rate := limit / d.window()
		full := max(1, rate*burst)
		if d.window() > 60 {
			full = limit
		}
		a.book.correct(now, &Correction{Dimension: d, Lo: full, Hi: full, Rate: paceUntried * rate, Cap: full})
	}
	return a
}

// full reports whether all of the account's slots are taken.
func (a *account) full() bool { return a.slots > 0 && a.open >= a.slots }

// wait is how long until cost fits both the lane and the account, and which budget says so.
func (l *lane) waitFor(now time.Time, cost *Vector) (time.Duration, Dimension) {
	wait, d := l.book.wait(now, cost)
	if a := &l.gate.account; a.on {
		if w, bound := a.book.wait(now, cost); w > wait {
			return w, bound
		}
	}
	return wait, d
}

// charge takes cost from the lane and the account.
func (l *lane) charge(cost *Vector) Vector {
	if a := &l.gate.account; a.on {
		a.book.charge(cost)
	}
	return l.book.charge(cost)
}

// pump grants what can be granted after something happened to a lane. What lanes share is given to the call that asked
// first.
func (g *Gate) pump(now time.Time, l *lane) {
	if !g.account.on {
		l.pump(now)
		return
	}
	for _, l := range g.sorted {
		l.renew(now)
		l.stuck = false
	}
	for {
		var first *lane
		var head *Ticket
		for _, l := range g.sorted {
			if l.stuck || l.order.waiting == 0 {
				continue
			}
			if t := l.order.next(now); head == nil || t.before(head) {
				first, head = l, t
			}
		}
		if first == nil {
			break
		}
		first.stuck = !first.step(now)
	}
	for _, l := range g.sorted {
		if l.order.waiting == 0 {
			l.rest(now)
		}
	}
}
