package runinfo

import (
	"fmt"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// Lane is the state of a lane at one instant.
type Lane struct {
	Lane      string    `json:"lane"`                    // Model, or upstream and model.
	InFlight  int       `json:"in_flight"`               // Requests in flight.
	Slots     int       `json:"concurrency"`             // Allowed concurrency.
	Waiting   int       `json:"waiting"`                 // Waiting requests.
	Oldest    time.Time `json:"oldest,omitzero"`         // Start of the oldest request in flight.
	Binding   string    `json:"binding,omitempty"`       // Binding limit.
	Until     time.Time `json:"cooldown_until,omitzero"` // End of the cooldown.
	Why       string    `json:"cooldown_why,omitempty"`  // Cause of the cooldown.
	Throttles int       `json:"throttles"`               // Rate-limited requests.
	Limits    []Level   `json:"limits"`                  // State by limit.
}

// Level is the state of one limit of a lane.
type Level struct {
	Dimension string  `json:"dimension"`        // Name of the limit, such as `rpm`.
	Limit     int64   `json:"limit"`            // Value of the limit.
	Source    string  `json:"source"`           // Origin of the value, such as `header`.
	Level     float64 `json:"level"`            // Level of the token bucket; negative after too much use.
	Cap       float64 `json:"cap"`              // Size of the token bucket.
	Spent     float64 `json:"spent"`            // Amount used since the process started.
	Shared    bool    `json:"shared,omitempty"` // Other clients share the limit.
	limits.Claims
}

func newLanes(snaps []limits.LaneSnapshot, now time.Time) []Lane {
	lanes := make([]Lane, 0, len(snaps))
	for _, l := range snaps {
		lane := Lane{
			Lane: l.Lane, InFlight: l.InFlight, Slots: l.Slots, Waiting: l.Waiting, Oldest: l.Oldest, Throttles: l.Throttles,
			Limits: make([]Level, 0, len(l.Budgets)),
		}
		if l.Waiting > 0 && l.Binding != limits.AnyDimension {
			lane.Binding = l.Binding.String()
		}
		if l.Until.After(now) {
			lane.Until, lane.Why = l.Until, l.Pause.String()
		}
		for _, b := range l.Budgets {
			lane.Limits = append(lane.Limits, Level{b.Dimension.String(), b.Limit, string(b.Source), b.Level, b.Cap, b.Spent, b.Shared, b.Claims})
		}
		lanes = append(lanes, lane)
	}
	return lanes
}

// Bucket returns the token bucket of a lane for one limit; the zero value if there is none.
func Bucket(lane limits.LaneSnapshot, d limits.Dimension) limits.BucketSnapshot {
	for _, b := range lane.Budgets {
		if b.Dimension == d {
			return b
		}
	}
	return limits.BucketSnapshot{}
}

// LaneUse is the use of a lane's limits by a run.
type LaneUse struct {
	Lane   string `json:"lane"`        // Model, or upstream and model.
	Slots  int    `json:"concurrency"` // Allowed concurrency.
	Limits []Use  `json:"limits"`      // Limits and their use.

	Granted int `json:"-"` // Requests that were sent.
}

// Use is the use of one limit by a run.
type Use struct {
	Dimension string  `json:"dimension"` // Name of the limit, such as `rpm`.
	Limit     int64   `json:"limit"`     // Value of the limit.
	Source    string  `json:"source"`    // Origin of the value, such as `header`.
	Share     float64 `json:"share"`     // Used share of the allowed amount.
	limits.Claims

	by limits.Dimension
}

func newLaneUses(snap sluice.Snapshot, wall time.Duration) []LaneUse {
	lanes := make([]LaneUse, 0, len(snap.Lanes))
	for _, lane := range snap.Lanes {
		l := LaneUse{Lane: lane.Lane, Slots: lane.Slots, Limits: make([]Use, 0, len(lane.Budgets)), Granted: lane.Granted}
		for _, b := range lane.Budgets {
			spent := b.Spent
			if b.Dimension.Per(time.Minute) == limits.Requests {
				spent = float64(lane.Granted - lane.Throttles) // rejected requests do not count
			}
			l.Limits = append(l.Limits, Use{b.Dimension.String(), b.Limit, string(b.Source), share(b, spent, wall), b.Claims, b.Dimension})
		}
		lanes = append(lanes, l)
	}
	return lanes
}

// share is the used part of the amount that a limit allows in that time: the content of the bucket and its refill.
func share(b limits.BucketSnapshot, spent float64, wall time.Duration) float64 {
	allowed := b.Cap + float64(b.Limit)*float64(wall)/float64(b.Dimension.Window())
	if b.Limit <= 0 || allowed <= 0 {
		return 0
	}
	return min(1, spent/allowed)
}

// String describes the limits of the lane and their use; "" without limits.
func (l LaneUse) String() string {
	var parts []string
	for _, b := range l.Limits {
		if b.Limit > 0 && b.Limit != provider.Endless {
			source := prose.Source(limits.Source(b.Source), b.Claims)
			parts = append(parts, fmt.Sprintf("%s of %s (%s)", prose.Percent(b.Share), prose.Limit(b.by, b.Limit), source))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return l.Lane + ": " + prose.Fields(parts...)
}
