package sluice

import (
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// Event is something that happened in a Scheduler. Only the fields that its type speaks of are set.
type Event = gate.Event

// EventType says what happened.
type EventType = gate.EventType

// Types of event.
const (
	EventStarted          = gate.EventStarted
	EventClosed           = gate.EventClosed
	EventMemberRegistered = gate.EventMemberRegistered
	EventMemberClosed     = gate.EventMemberClosed
	EventSlotWaiting      = gate.EventSlotWaiting
	EventSlotAcquired     = gate.EventSlotAcquired
	EventSlotReleased     = gate.EventSlotReleased
	EventSlotCancelled    = gate.EventSlotCancelled
	EventThrottled        = gate.EventThrottled
	EventAttemptFailed    = gate.EventAttemptFailed
	EventGaveUp           = gate.EventGaveUp
	EventCooldownStarted  = gate.EventCooldownStarted
	EventCooldownEnded    = gate.EventCooldownEnded
	EventLimitsChanged    = gate.EventLimitsChanged
	EventBreaker          = gate.EventBreaker
	EventPaused           = gate.EventPaused
	EventResumed          = gate.EventResumed
	EventShared           = gate.EventShared
	EventItemDone         = gate.EventItemDone
)

// Observer is told of events, in order and never under a lock, by whoever caused them or by who is telling at that time.
// Nobody tells two at once. It must be quick: new calls wait while a thousand events do. It may call of the Scheduler
// what does not wait: Snapshot, TryAcquire and Release.
type Observer interface {
	Observe(Event)
}

// ObserverFunc makes an Observer of a function.
type ObserverFunc func(Event)

// Observe calls f.
func (f ObserverFunc) Observe(e Event) { f(e) }

// Snapshot is the state of a Scheduler at one instant.
type Snapshot struct {
	At    time.Time
	Lanes []LaneSnapshot // by name
	Timer time.Time      // when the Scheduler looks after calls that wait by itself; zero: it does not

	Limits, Account Limits // ceilings of each lane and of all together, as told
}

// LaneSnapshot is the state of one lane.
type LaneSnapshot = gate.Snapshot

// BudgetSnapshot is the mirror of one of the provider's buckets.
type BudgetSnapshot = gate.Budget

// Source says where a limit is known from.
type Source = gate.Source

// Sources of a limit.
const (
	SourceTold     = gate.SourceTold
	SourceStart    = gate.SourceStart
	SourceHeader   = gate.SourceHeader
	SourceRefusal  = gate.SourceRefusal
	SourceMeasured = gate.SourceMeasured
	SourceRegistry = gate.SourceRegistry
	SourceAtLeast  = gate.SourceAtLeast
)

// NumDimensions is the number of dimensions, AnyDimension included.
const NumDimensions = gate.NumDimensions
