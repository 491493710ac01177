package telemetry

import (
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// laneGauges is how the lanes of one label stand, added up.
type laneGauges struct {
	inFlight, waiting, slots, paused int

	until   time.Time // of the latest pause that is on; zero: none
	budgets [limits.NumDimensions]budgetState
}

// budgetState is one limit of the lanes of a label.
type budgetState struct {
	limit  int64
	level  float64
	shared bool // the level is not known here
	source limits.Source
}

// gather adds up the lanes of a Snapshot by label.
func gather(snap sluice.Snapshot, label func(lane string) string) map[string]*laneGauges {
	states := make(map[string]*laneGauges)
	for i := range snap.Lanes {
		lane := &snap.Lanes[i]
		name := label(lane.Lane)
		st := states[name]
		if st == nil {
			st = &laneGauges{}
			states[name] = st
		}
		st.add(lane, snap.At)
	}
	return states
}

func (st *laneGauges) add(lane *limits.LaneSnapshot, now time.Time) {
	st.inFlight += lane.InFlight
	st.waiting += lane.Waiting
	st.slots += lane.Slots
	pauses := lane.Until.After(now)
	if pauses || lane.Held {
		st.paused++
	}
	if pauses && lane.Until.After(st.until) {
		st.until = lane.Until
	}
	for _, b := range lane.Budgets {
		to := &st.budgets[b.Dimension]
		to.limit += b.Limit
		to.level += b.Level
		to.source = b.Source
		to.shared = to.shared || b.Shared
	}
}
