package sluice

import (
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// Observer receives events in order, one at a time, under no lock. Observe must be quick: new calls wait while 1,000 events are
// pending. Of the Scheduler it may call Snapshot, TryAcquire and Release, which do not wait.
type Observer interface {
	Observe(Event)
}

// ObserverFunc makes an Observer of a function.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// Snapshot is the state of a Scheduler at one instant.
type Snapshot struct {
	At    time.Time             // by the local clock
	Lanes []limits.LaneSnapshot // by name
	Timer time.Time             // when the Scheduler next checks waiting calls; zero: no check is due

	Retrying int // calls of Do in backoff; no lane counts them

	Limits, Account Limits // configured limits of each lane, and of all lanes together
}
