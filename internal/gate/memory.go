package gate

import (
	"math"
	"time"
)

// forgetAfter is how long what was learned of a lane is believed at the start of another process.
const forgetAfter = 24 * time.Hour

// clockSlip is how far a clock may have been set back. One that was further ahead was wrong, and so is the pause that it dated: that
// would not end for years.
const clockSlip = time.Minute

// Memory is what a lane knows that outlives the process.
type Memory struct {
	Lane    string         `json:"lane"`
	SavedAt time.Time      `json:"saved_at"`
	Limits  []LimitMemory  `json:"limits,omitempty"`
	Slots   int            `json:"slots,omitempty"` // how many calls the provider takes at once, where a refusal showed it
	Until   time.Time      `json:"paused_until,omitzero"`
	Cause   Kind           `json:"pause_cause,omitempty"`
	Budgets []BudgetMemory `json:"budgets,omitempty"`
}

// LimitMemory is a limit that was learned.
type LimitMemory struct {
	Dimension Dimension `json:"dimension"`
	Value     int64     `json:"value"`
	Source    Source    `json:"source"`
}

// BudgetMemory is what was left of a day's budget.
type BudgetMemory struct {
	Dimension Dimension `json:"dimension"`
	Left      float64   `json:"left"`
}

// Memory returns what a lane knows.
func (g *Gate) Memory(now time.Time, lane string) Memory { return g.lane(now, lane).memory(now) }

func (l *lane) memory(now time.Time) Memory {
	m := Memory{Lane: l.name, SavedAt: now.Round(0)}
	for d := Requests; d < NumDimensions; d++ {
		mir := &l.mirrors[d]
		if mir.limit == 0 {
			continue
		}
		if mir.source != SourceTold {
			m.Limits = append(m.Limits, LimitMemory{d, int64(mir.limit), mir.source})
		}
		if d.window() > 60 && l.book != nil {
			l.book.budgets[d].refill(now)
			m.Budgets = append(m.Budgets, BudgetMemory{d, l.book.budgets[d].level})
		}
	}
	if l.slots.refused {
		m.Slots = l.slots.n()
	}
	if l.cool.until.After(now) && l.cool.cause == UsageWindow {
		m.Until, m.Cause = l.cool.until.Round(0), l.cool.cause
	}
	return m
}

// Share takes what other processes have used of the lane's day budgets out of m, which is what the lane knows now. last
// is what it knew when they were told of it, others what they have written since: both by the clock of the file.
func (g *Gate) Share(now time.Time, m, last, others *Memory) {
	l := g.lanes[m.Lane]
	for i := range m.Budgets {
		b := &m.Budgets[i]
		before, ok1 := last.left(b.Dimension)
		theirs, ok2 := others.left(b.Dimension)
		if !ok1 || !ok2 {
			continue
		}
		mir := &l.mirrors[b.Dimension]
		used := min(mir.cap, before+now.Sub(last.SavedAt).Seconds()*mir.rate(b.Dimension)) - b.Left
		left := min(mir.cap, theirs+now.Sub(others.SavedAt).Seconds()*mir.rate(b.Dimension)) - used
		b.Left = min(b.Left, left)
		l.correct(now, b.Dimension, Correction{Mark: l.sums[b.Dimension], Lo: math.Inf(-1), Hi: b.Left})
	}
	g.pump(now, l)
}

// left is what a memory says is left of a day's budget.
func (m *Memory) left(d Dimension) (float64, bool) {
	for _, b := range m.Budgets {
		if b.Dimension == d {
			return b.Left, true
		}
	}
	return 0, false
}

// Recall gives a lane what an earlier process knew of it. It does nothing for a lane that is open already.
func (g *Gate) Recall(now time.Time, m Memory) {
	if g.lanes[m.Lane] != nil {
		return
	}
	l := g.lane(now, m.Lane)
	age := now.Sub(m.SavedAt)
	if m.Until.After(now) && m.Cause == UsageWindow && age > -clockSlip {
		l.cool.begin(now, UsageWindow, 0, 0)
		l.cool.pause(now, m.Until)
		g.note(Event{Type: EventCooldownStarted, At: now, Lane: l.name, Until: l.cool.until, Outcome: Outcome{Kind: UsageWindow, Until: m.Until}})
	}
	if age < 0 || age > forgetAfter {
		return
	}
	for _, lim := range m.Limits {
		if d := lim.Dimension; d >= Requests && d < NumDimensions && lim.Value > 0 {
			l.start(now, d, float64(lim.Value))
		}
	}
	for _, b := range m.Budgets {
		if d := b.Dimension; l.book != nil && d < NumDimensions && d.window() > 60 && l.mirrors[d].limit > 0 {
			left := b.Left + age.Seconds()*l.mirrors[d].rate(d)
			l.correct(now, d, Correction{Mark: l.sums[d], Lo: math.Inf(-1), Hi: left})
		}
	}
	if m.Slots > 0 && l.slots.ceiling == 0 {
		l.slots.limit = float64(m.Slots)
	}
}
