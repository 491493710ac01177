package sluice

import (
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// Observer receives events in order, one at a time. The Scheduler holds no lock while Observe runs. Observe must return quickly, because new
// calls wait while about 1,000 events are pending. Observe may call Snapshot, TryAcquire and Release, because these methods do not wait.
type Observer interface {
	Observe(Event)
}

// ObserverFunc is a function that implements Observer.
type ObserverFunc func(Event)

// Observe calls f with the event.
func (f ObserverFunc) Observe(e Event) { f(e) }

// Snapshot contains the state of a Scheduler at one point in time.
type Snapshot struct {
	At    time.Time             // local time of the snapshot
	Lanes []limits.LaneSnapshot // states of the lanes, sorted by lane name
	Timer time.Time             // time of the next check of waiting calls (zero: no check is scheduled)

	Retrying int // number of calls in backoff before a retry, not counted in Lanes

	Limits, Account Limits // configured limits of each lane, and of all lanes together
}
