package gate

import (
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// account is the limits that are configured for all lanes of a gate together, beside the limits of each lane. A request is granted by
// both or by neither.
type account struct {
	on    bool
	book  *Book
	slots int // configured concurrency; 0 is none
	open  int // requests in flight in all lanes
}

// newAccount sets up the limits that are configured for all lanes together.
func newAccount(now time.Time, configured limits.Limits) account {
	a := account{on: configured != limits.Limits{}, book: newBook(false), slots: configured.Concurrency}
	for d := range rates {
		limit := limitOf(configured, d)
		a.book.configure(now, d, promiseOf(configured, d))
		if limit > 0 && perDay(d) {
			a.book.correct(now, &limits.Correction{Dimension: d, Lo: limit, Hi: limit, Rate: limit / window(d), Cap: limit})
		}
	}
	return a
}

// openAccount sets up the limits of all lanes together. The amounts of the limits before them count, or those of the only lane.
func (g *Gate) openAccount(now time.Time) {
	before := g.account
	g.account = newAccount(now, g.cfg.Account)
	g.account.open = before.open
	switch {
	case before.on:
		g.account.inherit(now, before.book, g.cfg.Account)
	case len(g.sorted) == 1:
		g.account.inherit(now, g.sorted[0].buckets.book, g.cfg.Account)
	}
}

// inherit has the account count the amounts that the guards of a book have counted, and the used part of a day.
func (a *account) inherit(now time.Time, from *Book, configured limits.Limits) {
	for d, g := range from.guards {
		if g == nil {
			continue
		}
		counted := *g
		a.book.guards[d] = &counted
		a.book.configure(now, limits.Dimension(d), promiseOf(configured, limits.Dimension(d)))
	}
	a.use(limits.RequestsPerDay, from.used(now, limits.RequestsPerDay))
	a.use(limits.TokensPerDay, from.used(now, limits.TokensPerDay))
}

// use takes an amount from a day's limit, down to the debt of a day: the amount may be the used part of a much higher limit.
func (a *account) use(d limits.Dimension, amount float64) {
	if !a.on {
		return
	}
	if b := a.book.budgets[d]; b.rate > 0 {
		b.level = max(b.level-max(0, amount), -b.cap)
	}
}

// full reports whether all of the account's slots are taken.
func (a *account) full() bool { return a.slots > 0 && a.open >= a.slots }
