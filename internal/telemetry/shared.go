package telemetry

import (
	"github.com/sluice-llm/sluice/limits"
)

// Refusals of several lanes are many from so many on, and from that share of their calls.
const (
	fewRefused  = 5
	manyRefused = 0.05
)

// LimitUse is how far a lane used a limit, and how many of its calls were refused by it.
type LimitUse struct {
	Account, Dimension string
	Limit              int64
	Source             string  // in the words of limits.Source
	Share              float64 // of what the limit let through
	Calls, Refused     int
}

// SharedLimits looks for a limit that an account seems to have for several lanes together, and not for each: many calls of them all
// were refused by it, though none of them used half of it. The zero value has seen nothing.
type SharedLimits struct{ seen map[LimitUse]refusals }

type refusals struct{ lanes, calls, refused int }

// Add takes in one limit of one lane, and reports whether it is such a limit by what was seen so far.
func (s *SharedLimits) Add(u LimitUse) bool {
	if u.Refused == 0 || u.Share >= 0.5 || u.Source == string(limits.SourceConfigured) {
		return false
	}
	if s.seen == nil {
		s.seen = map[LimitUse]refusals{}
	}
	key := LimitUse{Account: u.Account, Dimension: u.Dimension, Limit: u.Limit}
	all := s.seen[key]
	all.lanes++
	all.calls += u.Calls
	all.refused += u.Refused
	s.seen[key] = all
	return all.lanes > 1 && all.refused >= fewRefused && float64(all.refused) >= manyRefused*float64(all.calls)
}
