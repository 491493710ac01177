package account

import (
	"sync"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// lanesAge is the maximum age of the states that Lanes returns, because a snapshot for each request is too expensive.
const lanesAge = 250 * time.Millisecond

// Lanes returns a function that returns the present state of a model's lane, for concurrent use. With upstreams, which any request can
// use, all lanes are one lane without pauses.
func (a *Accounts) Lanes() func(model string) limits.LaneSnapshot {
	var mu sync.Mutex
	var at time.Time
	var all map[string]limits.LaneSnapshot
	return func(model string) limits.LaneSnapshot {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(at) >= lanesAge {
			at, all = now, make(map[string]limits.LaneSnapshot)
			for _, lane := range a.Snapshot().Lanes {
				if a.upstreams != nil {
					lane = limits.LaneSnapshot{InFlight: all[""].InFlight + lane.InFlight}
				}
				all[lane.Lane] = lane
			}
		}
		if a.upstreams != nil {
			model = ""
		}
		return all[model]
	}
}
