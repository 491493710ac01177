package find

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice"
)

// evidence is what answers said of one budget.
type evidence struct {
	sluice.Reading
	source sluice.Source
	at     time.Time
	period period
}

// period is how long a stated budget takes to fill, between two bounds, by all readings of it: a budget of which u are in
// use, and which is filled at an even pace, is full again after u / limit of it. No period explains the readings of a window
// that begins anew at its end.
type period struct{ least, most time.Duration }

const (
	longestMinute = 600 * time.Second // what refills more slowly is a day's budget, not a minute's
	hour, day     = time.Hour, 24 * time.Hour
	never         = time.Duration(math.MaxInt64)
)

// narrowed takes another reading into account, which came with the answer to a call that took so long.
func (p period) narrowed(r *sluice.Reading, took time.Duration) period {
	used := r.Limit - r.Remaining
	if used <= 0 || r.Reset <= r.ResetSlack {
		return p
	}
	if p.most == 0 {
		p.most = never
	}
	each := func(reset time.Duration, used int64) time.Duration {
		return time.Duration(min(float64(reset)*float64(r.Limit)/float64(used), float64(never)/2))
	}
	// What is left is stated in whole units: at least one less is in use, and the call's own, but for what came back since.
	p.least = max(p.least, each(r.Reset-r.ResetSlack, used+r.Slack))
	if surely := used - 1 - r.Slack; surely > 0 {
		p.most = min(p.most, each(r.Reset, surely))
	} else if r.Slack == 0 && r.Dimension == sluice.Requests {
		p.most = min(p.most, each(r.Reset+took, 1))
	}
	return p
}

// includes reports whether the period may be so long.
func (p period) includes(d time.Duration) bool { return p.least <= d+d/50 && d-d/50 <= p.most }

// dimension is what a reading is really of: some headers of requests tell the day's.
func (e *evidence) dimension() sluice.Dimension {
	long := e.Reset-e.ResetSlack > longestMinute || e.period.least > longestMinute && (e.period.includes(hour) || e.period.includes(day))
	switch {
	case e.source != sluice.SourceHeader || !long:
	case e.Dimension == sluice.Requests:
		return sluice.RequestsPerDay
	case e.Dimension == sluice.Tokens:
		return sluice.TokensPerDay
	}
	return e.Dimension
}

// inUse is how much of a minute's budget is in use. A budget that is full while less than its limit is left holds no more:
// then the time until it is full tells.
func inUse(r *sluice.Reading) float64 {
	used := float64(r.Limit - r.Remaining - r.Slack)
	return min(used, r.Reset.Minutes()*float64(r.Limit)+1)
}
