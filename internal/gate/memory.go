package gate

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

const (
	// SaveEvery is how often the memory of a lane is to be saved.
	SaveEvery = 5 * time.Second

	minMeasured = 0.8             // minimum confidence of a measured limit that is saved: rejections agreed with it
	forgetAfter = 24 * time.Hour  // maximum age of the newest evidence for a limit, and of a memory
	clockSlip   = time.Minute     // maximum time by which a clock was set back; the pause of a memory from a later time is ignored
	guardGroup  = guardParts / 60 // parts of a guard that are saved as one amount
)

// Memory is the knowledge of a lane that outlives the process.
type Memory struct {
	Lane    string         `json:"lane"`
	SavedAt time.Time      `json:"saved_at"`
	Limits  []limits.Limit `json:"limits,omitempty"` // that responses have shown; the concurrency is one of them
	Until   time.Time      `json:"paused_until,omitzero"`
	Cause   limits.Kind    `json:"pause_cause,omitempty"`
	Budgets []BudgetMemory `json:"budgets,omitempty"`
	Guards  []GuardMemory  `json:"guards,omitempty"`
}

// BudgetMemory is the remaining allowance of a day.
type BudgetMemory struct {
	Dimension limits.Dimension `json:"dimension"`
	Left      float64          `json:"left"`
}

// GuardMemory is the amount that was sent under a configured limit.
type GuardMemory struct {
	Dimension limits.Dimension `json:"dimension"`
	Period    time.Duration    `json:"period,omitempty"` // of the limit; 0: a minute
	Sent      []float64        `json:"sent"`             // amounts of groups of parts of the last period, oldest first; of a bucket its missing part
	Ahead     float64          `json:"ahead,omitempty"`  // maximum amount that may be sent until the next memory is saved
}

// Close notes that no request is sent after this memory.
func (m *Memory) Close() {
	for i := range m.Guards {
		m.Guards[i].Ahead = 0
	}
}

// Memory returns the knowledge of a lane, or false if the lane was forgotten.
func (g *Gate) Memory(now time.Time, lane string) (Memory, bool) {
	l := g.lanes[lane]
	if l == nil {
		return Memory{}, false
	}
	return l.memory(now), true
}

func (l *lane) memory(now time.Time) Memory {
	m := Memory{Lane: l.name, SavedAt: now.Round(0)}
	for _, each := range l.buckets.each {
		if each.Value == 0 {
			continue
		}
		if each.Source.Observed() && !each.header.fixed.is && (each.Source != limits.SourceMeasured || each.Confidence > minMeasured) {
			m.Limits = append(m.Limits, each.Limit)
		}
		if perDay(each.Dimension) && !l.buckets.remote() {
			m.Budgets = append(m.Budgets, BudgetMemory{each.Dimension, l.buckets.book.level(now, each.Dimension)})
		}
	}
	if s := &l.slots; s.refused {
		m.Limits = append(m.Limits, limits.Limit{Dimension: limits.Concurrency, Value: float64(s.n()), Source: limits.SourceRejection, At: s.cutAt.Round(0)})
	}
	for d, g := range l.buckets.book.guards {
		if g != nil {
			d := limits.Dimension(d)
			ahead := max(0, l.buckets.book.level(now, d)) + l.buckets.book.budgets[d].rate*SaveEvery.Seconds()
			m.Guards = append(m.Guards, GuardMemory{d, g.period, g.sent(now), min(ahead, g.ahead(now))})
		}
	}
	if l.cool.until.After(now) {
		m.Until, m.Cause = l.cool.until.Round(0), l.cool.cause
	}
	return m
}

// Share subtracts what other processes used of the lane's daily limits from m. last is the memory at the previous exchange, others the one
// that is in the file now.
func (g *Gate) Share(now time.Time, m, last, others *Memory) {
	l := g.lanes[m.Lane]
	for i := range m.Budgets {
		b := &m.Budgets[i]
		before, ok1 := last.left(b.Dimension)
		theirs, ok2 := others.left(b.Dimension)
		if !ok1 || !ok2 {
			continue
		}
		each := l.buckets.each[b.Dimension]
		used := min(each.cap, before+now.Sub(last.SavedAt).Seconds()*each.rate()) - b.Left
		left := min(each.cap, theirs+now.Sub(others.SavedAt).Seconds()*each.rate()) - used
		b.Left = min(b.Left, left)
		l.buckets.bound(now, b.Dimension, math.Inf(-1), b.Left)
	}
	g.pump(now, l)
}

// left is what a memory says is left of a day's budget.
func (m *Memory) left(d limits.Dimension) (float64, bool) {
	for _, b := range m.Budgets {
		if b.Dimension == d {
			return b.Left, true
		}
	}
	return 0, false
}

// Recall opens a lane with what an earlier process knew of it. It does nothing for a lane that is open already.
func (g *Gate) Recall(now time.Time, m Memory) {
	if g.lanes[m.Lane] != nil {
		return
	}
	l := g.lane(now, m.Lane)
	age := now.Sub(m.SavedAt)
	if m.Until.After(now) && age > -clockSlip {
		l.cool.begin(now, m.Cause, 0, 0)
		l.cool.pause(now, m.Until)
		if m.Cause == limits.UsageWindow {
			l.silence.kept = m.Until
		}
		g.note(limits.Event{Type: limits.EventCooldownStarted, At: now, Lane: l.name, Until: l.cool.until, Outcome: limits.Outcome{Kind: m.Cause, Until: m.Until}})
	}
	if age < 0 || age > forgetAfter {
		return
	}
	for _, lim := range m.Limits {
		switch d, age := lim.Dimension, now.Sub(lim.At); {
		case lim.Value <= 0 || age < 0 || age > forgetAfter || d >= limits.NumDimensions:
		case d == limits.Concurrency:
			l.slots.recall(lim)
		case d >= limits.Requests:
			l.buckets.start(now, lim)
		}
	}
	for _, b := range m.Budgets {
		if d := b.Dimension; !l.buckets.remote() && d < limits.NumDimensions && perDay(d) && l.buckets.each[d].Value > 0 {
			l.buckets.bound(now, d, math.Inf(-1), b.Left+age.Seconds()*l.buckets.each[d].rate())
			g.account.use(d, l.buckets.book.used(now, d))
		}
	}
	for i := range m.Guards {
		for _, book := range g.books(l) {
			if guard := book.guards[min(m.Guards[i].Dimension, limits.NumDimensions-1)]; guard != nil {
				guard.restore(now, m.SavedAt, &m.Guards[i])
			}
		}
	}
}
