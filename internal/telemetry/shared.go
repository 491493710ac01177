package telemetry

import (
	"github.com/sluice-llm/sluice/limits"
)

// Rejections of several lanes are many from this number, and from this share of their requests.
const (
	fewRefused  = 5
	manyRefused = 0.05
)

// LimitUse is the use of one limit by a lane.
type LimitUse struct {
	Dimension limits.Dimension `json:"dimension"` // Name of the limit, such as `rpm`.
	Limit     int64            `json:"limit"`     // Value of the limit.
	Source    limits.Source    `json:"source"`    // Origin of the value, such as `header`.
	Share     float64          `json:"share"`     // Used share of the allowed amount.
	limits.Claims
}

// SharedLimits looks for a limit that an account seems to have for several lanes together: it rejected many requests of the lanes,
// although each lane used less than half of it. The zero value is ready.
type SharedLimits struct{ seen map[sharedLimit]refusals }

type sharedLimit struct {
	account   string
	dimension limits.Dimension
	limit     int64
}

type refusals struct{ lanes, calls, refused int }

// Add adds one limit of one lane, with the number of the lane's requests and of the rejections by the limit. It reports whether the limit
// seems to be shared.
func (s *SharedLimits) Add(account string, u LimitUse, calls, refused int) bool {
	if refused == 0 || u.Share >= 0.5 || u.Source == limits.SourceConfigured {
		return false
	}
	if s.seen == nil {
		s.seen = map[sharedLimit]refusals{}
	}
	key := sharedLimit{account, u.Dimension, u.Limit}
	all := s.seen[key]
	all.lanes++
	all.calls += calls
	all.refused += refused
	s.seen[key] = all
	return all.lanes > 1 && all.refused >= fewRefused && float64(all.refused) >= manyRefused*float64(all.calls)
}
