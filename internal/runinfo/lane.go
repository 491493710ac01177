package runinfo

import (
	"fmt"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// busiest returns the lane with the most open requests: its limit holds the run back. Without lanes, it returns the zero value.
func busiest(lanes []limits.LaneSnapshot) (lane limits.LaneSnapshot) {
	for i, l := range lanes {
		if i == 0 || l.Waiting+l.InFlight > lane.Waiting+lane.InFlight {
			lane = l
		}
	}
	return lane
}

// binding returns the limit that delays the requests of a lane. If its value is unknown, the limit is 0.
func binding(lane *limits.LaneSnapshot) limits.BucketSnapshot {
	if lane.Binding == limits.Concurrency {
		return limits.BucketSnapshot{Dimension: limits.Concurrency, Limit: int64(lane.Slots)}
	}
	for _, b := range lane.Budgets {
		if b.Dimension == lane.Binding {
			return b
		}
	}
	return limits.BucketSnapshot{Dimension: lane.Binding}
}

// at returns lanes as they are at an instant: without past pauses, and without a binding limit if no request waits.
func at(now time.Time, lanes []limits.LaneSnapshot) []limits.LaneSnapshot {
	lanes = append([]limits.LaneSnapshot{}, lanes...)
	for i := range lanes {
		l := &lanes[i]
		if l.Waiting == 0 {
			l.Binding = limits.AnyDimension
		}
		if !l.Until.After(now) {
			l.Until, l.Pause = time.Time{}, sluice.OK
		}
	}
	return lanes
}

// LaneUse is the use of a lane's limits by a run.
type LaneUse struct {
	Lane   string               `json:"lane"`        // Model, or upstream and model.
	Slots  int                  `json:"concurrency"` // Allowed concurrency.
	Limits []telemetry.LimitUse `json:"limits"`      // Limits and their use.

	Granted int `json:"-"` // Requests that were sent.
}

func newLaneUses(snap sluice.Snapshot, wall time.Duration) []LaneUse {
	lanes := make([]LaneUse, 0, len(snap.Lanes))
	for _, lane := range snap.Lanes {
		l := LaneUse{Lane: lane.Lane, Slots: lane.Slots, Limits: []telemetry.LimitUse{}, Granted: lane.Granted}
		for _, b := range lane.Budgets {
			spent := b.Spent
			if b.Dimension.Per(time.Minute) == limits.Requests {
				spent = float64(lane.Granted - lane.Throttles) // rejected requests do not count
			}
			l.Limits = append(l.Limits, telemetry.LimitUse{
				Dimension: b.Dimension, Limit: b.Limit, Source: b.Source, Share: share(b, spent, wall), Claims: b.Claims,
			})
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
			source := prose.Source(b.Source, b.Claims)
			parts = append(parts, fmt.Sprintf("%s of %s (%s)", prose.Percent(b.Share), prose.Limit(b.Dimension, b.Limit), source))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return l.Lane + ": " + prose.Fields(parts...)
}
