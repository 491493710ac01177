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
