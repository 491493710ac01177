package limits

import (
	"time"
)

// EventType is the type of an Event. The value of an EventType is a name such as slot_acquired.
type EventType string

// Types of events.
const (
	EventStarted EventType = "scheduler_started" // a Scheduler started with the configured concurrency in Slots (0: not configured)
	EventClosed  EventType = "scheduler_closed"  // a Scheduler was closed

	EventMemberRegistered EventType = "member_registered" // a member was registered in a pool
	EventMemberClosed     EventType = "member_closed"     // a member of a pool was closed

	EventCheckpointSaved   EventType = "checkpoint_saved"   // a member's checkpoint was saved
	EventCheckpointLoaded  EventType = "checkpoint_loaded"  // a member's checkpoint was loaded
	EventCheckpointDamaged EventType = "checkpoint_damaged" // a member's newest checkpoint is unreadable for the reason in Outcome.Err

	EventSlotWaiting   EventType = "slot_waiting"   // a call waits for a permit
	EventSlotAcquired  EventType = "slot_acquired"  // a call received a permit after the time in Wait
	EventSlotReleased  EventType = "slot_released"  // an attempt finished with the result in Outcome
	EventSlotCancelled EventType = "slot_cancelled" // a call stopped waiting for a permit

	EventThrottled     EventType = "throttled"      // an attempt was rate-limited, and the call's backoff is in Wait (0: no backoff)
	EventAttemptFailed EventType = "attempt_failed" // an attempt failed, and the time until the retry is in Wait (0: no retry)
	EventGaveUp        EventType = "gave_up"        // Scheduler.Do gave up on a call

	EventCooldownStarted EventType = "cooldown_started" // a lane started a cooldown until the time in Until
	EventCooldownEnded   EventType = "cooldown_ended"   // a lane's cooldown ended, as confirmed by an accepted request
	EventLimitsChanged   EventType = "limits_changed"   // a limit of a lane was learned, corrected or configured
	EventBreaker         EventType = "breaker"          // the circuit breaker of a lane opened (with the end in Until) or closed
	EventPaused          EventType = "paused"           // Scheduler.Pause stopped all lanes
	EventResumed         EventType = "resumed"          // Scheduler.Resume ended the pause of all lanes
	EventShared          EventType = "shared"           // another process uses the same lane, so both processes together may exceed the limits

	EventItemDone EventType = "item_done" // a program that uses the Scheduler, such as a batch, recorded an item's result
)

// Event describes a change in a Scheduler, a pool or a batch. Each type of event sets only some of the fields of Event.
type Event struct {
	Type      EventType     // type of the event
	At        time.Time     // time of the event
	Account   string        // Config.Name of the Scheduler
	Member    string        // identifier of the pool member
	Lane      string        // lane of the call
	Tenant    string        // tenant of the call
	Call      string        // identifier of the call (Call.ID)
	Attempt   int           // number of the attempt, starting at 1 (for a recorded item, the number of attempts)
	Throttles int           // number of rate-limited attempts of a recorded item
	Wait      time.Duration // elapsed or required waiting time of the call
	Latency   time.Duration // time from sending the request to releasing the permit
	Until     time.Time     // end of the cooldown, or of the circuit breaker's pause
	Dimension Dimension     // dimension of the limit, or of the limit that delayed the call (AnyDimension: a pause, or no delay)
	Limit     int64         // value of the limit per period of the dimension
	Source    Source        // source of the limit's value
	Outcome   Outcome       // result of the attempt
	Finish    string        // finish reason in the model's response, for a recorded item
	Cost      float64       // cost of a recorded item in USD (0: unknown)
	Estimated float64       // estimated part of Cost, in USD
	Reused    bool          // true if the recorded item needed no request because the result was already known
	InFlight  int           // number of the lane's requests in flight after the event
	Slots     int           // maximum concurrency of the lane
	Waiting   int           // number of waiting calls of the lane
}

// LaneSnapshot contains the state of one lane.
type LaneSnapshot struct {
	Lane      string           `json:"lane"`                    // Model, or upstream and model.
	InFlight  int              `json:"in_flight"`               // Requests in flight.
	Slots     int              `json:"concurrency"`             // Allowed concurrency.
	Waiting   int              `json:"waiting"`                 // Waiting requests.
	Oldest    time.Time        `json:"oldest,omitzero"`         // Start of the oldest request in flight.
	Binding   Dimension        `json:"binding,omitempty"`       // Binding limit. AnyDimension is a pause.
	Until     time.Time        `json:"cooldown_until,omitzero"` // End of the cooldown. It can be past.
	Pause     Kind             `json:"cooldown_why,omitempty"`  // Cause of the cooldown. ServerError: the circuit breaker is open.
	Throttles int              `json:"throttles"`               // Rate-limited requests. They are counted since the start.
	Budgets   []BucketSnapshot `json:"limits"`                  // State by limit.

	Granted int                          `json:"-"` // number of granted permits since the start
	Held    bool                         `json:"-"` // true while Scheduler.Pause stops the lane
	Probing bool                         `json:"-"` // true while the lane sends only a few test requests after a cooldown
	Blocked bool                         `json:"-"` // true if a limit or a pause delays the next call
	Bound   [NumDimensions]time.Duration `json:"-"` // total time during which each limit delayed calls (AnyDimension: pauses)
}

// BucketSnapshot contains the state of the token bucket for one limit, in requests or tokens.
type BucketSnapshot struct {
	Dimension Dimension `json:"dimension"`        // Name of the limit, such as `rpm`.
	Limit     int64     `json:"limit"`            // Value of the limit. It applies per minute or day.
	Source    Source    `json:"source"`           // Origin of the value, such as `header`.
	Level     float64   `json:"level"`            // Level of the token bucket; negative after too much use.
	Cap       float64   `json:"cap"`              // Size of the token bucket.
	Spent     float64   `json:"spent"`            // Amount used since the process started. Rejected requests count.
	Shared    bool      `json:"shared,omitempty"` // Other clients share the limit. A Ledger stores the bucket, so Level is unknown.
	Claims              // values of the limit from different sources
}
