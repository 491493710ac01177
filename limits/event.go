package limits

import (
	"time"
)

// EventType is the type of an Event. Its text is a name such as slot_acquired.
type EventType string

// Types of event.
const (
	EventStarted EventType = "scheduler_started" // Slots is the configured concurrency, if there is one
	EventClosed  EventType = "scheduler_closed"

	EventMemberRegistered EventType = "member_registered" // Member makes calls from now on
	EventMemberClosed     EventType = "member_closed"

	EventCheckpointSaved   EventType = "checkpoint_saved"   // of Member
	EventCheckpointLoaded  EventType = "checkpoint_loaded"  // of Member
	EventCheckpointDamaged EventType = "checkpoint_damaged" // Member's newest checkpoint cannot be read; Outcome.Err says why

	EventSlotWaiting   EventType = "slot_waiting"   // a call waits for its permit
	EventSlotAcquired  EventType = "slot_acquired"  // a call has its permit; Wait is how long it waited
	EventSlotReleased  EventType = "slot_released"  // an attempt ended; Outcome is its result
	EventSlotCancelled EventType = "slot_cancelled" // a call stopped waiting

	EventThrottled     EventType = "throttled"      // the provider asked to slow down; Wait is the backoff of this call, if any
	EventAttemptFailed EventType = "attempt_failed" // an attempt failed; Wait is the time to the next one, 0 if there is none
	EventGaveUp        EventType = "gave_up"        // Do gave up on a call

	EventCooldownStarted EventType = "cooldown_started" // a lane pauses until Until
	EventCooldownEnded   EventType = "cooldown_ended"   // the pause is over, and an accepted request proved it
	EventLimitsChanged   EventType = "limits_changed"   // a limit of a lane was learned, corrected or configured
	EventBreaker         EventType = "breaker"          // the circuit breaker of a lane opened (Until is set) or closed
	EventPaused          EventType = "paused"           // Scheduler.Pause: no lane sends
	EventResumed         EventType = "resumed"          // Scheduler.Resume
	EventShared          EventType = "shared"           // another process uses the lane too: together they may exceed its limits

	EventItemDone EventType = "item_done" // a program above the Scheduler, such as a batch, recorded a result
)

// Event is something that happened in a Scheduler. Only the fields that its type mentions are set.
type Event struct {
	Type      EventType
	At        time.Time
	Account   string // Config.Name of the Scheduler
	Member    string
	Lane      string
	Tenant    string
	Call      string        // Call.ID
	Attempt   int           // of the call, from 1; of a recorded item: the number of attempts
	Throttles int           // of a recorded item
	Wait      time.Duration // how long the call waited, or has to wait
	Latency   time.Duration // of the attempt, from sending to release
	Until     time.Time     // the end of what started
	Dimension Dimension     // the limit; for a slot, the limit that held it back: AnyDimension is a pause, or nothing
	Limit     int64         // the value of that limit, per window
	Source    Source        // the source of that value
	Outcome   Outcome
	Finish    string  // why the model stopped, of a recorded item
	Cost      float64 // in US dollars, of a recorded item; 0: unknown
	Estimated float64 // the part of Cost that is an estimate
	Reused    bool    // the recorded item needed no call, because its result was known
	InFlight  int     // requests in flight in the lane, after the event
	Slots     int     // the concurrency of the lane
	Waiting   int     // calls that wait in the lane
}

// LaneSnapshot is the state of one lane.
type LaneSnapshot struct {
	Lane      string
	InFlight  int                          // requests in flight
	Waiting   int                          // calls that wait
	Slots     int                          // the concurrency now
	Oldest    time.Time                    // when the oldest request in flight was sent; zero: none is in flight
	Until     time.Time                    // the end of the pause; zero or past: the lane does not pause
	Held      bool                         // Scheduler.Pause holds the lane
	Probing   bool                         // after a pause, the lane sends only a few requests until one is accepted
	Pause     Kind                         // why the lane pauses; ServerError: the circuit breaker is open
	Blocked   bool                         // something holds the next call back
	Binding   Dimension                    // the limit that does; AnyDimension: a pause
	Bound     [NumDimensions]time.Duration // for how long each limit has held calls back; AnyDimension: the pauses
	Budgets   []BucketSnapshot
	Throttles int // attempts that were throttled, since the start
	Granted   int // permits, since the start
}

// BucketSnapshot is the token bucket that models one limit, in requests or tokens.
type BucketSnapshot struct {
	Dimension Dimension
	Limit     int64 // per minute or day
	Source    Source
	Shared    bool    // a Ledger holds the bucket, so that Level is unknown here
	Level     float64 // the fill now; negative is a debt
	Cap       float64 // the size of the bucket
	Spent     float64 // since the start, rejected requests included
	Claims    Claims
}
