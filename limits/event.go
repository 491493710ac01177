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
	Lane      string                       // name of the lane
	InFlight  int                          // number of requests in flight
	Waiting   int                          // number of calls that wait for a permit
	Slots     int                          // current maximum concurrency
	Oldest    time.Time                    // send time of the oldest request in flight (zero: no request is in flight)
	Until     time.Time                    // end of the cooldown (zero or past: no cooldown)
	Held      bool                         // true while Scheduler.Pause stops the lane
	Probing   bool                         // true while the lane sends only a few test requests after a cooldown
	Pause     Kind                         // cause of the cooldown (ServerError: the circuit breaker is open)
	Blocked   bool                         // true if a limit or a pause delays the next call
	Binding   Dimension                    // limit that delays the next call (AnyDimension: a pause)
	Bound     [NumDimensions]time.Duration // total time during which each limit delayed calls (AnyDimension: pauses)
	Budgets   []BucketSnapshot             // states of the token buckets
	Throttles int                          // number of rate-limited attempts since the start
	Granted   int                          // number of granted permits since the start
}

// BucketSnapshot contains the state of the token bucket for one limit, in requests or tokens.
type BucketSnapshot struct {
	Dimension Dimension // dimension of the limit
	Limit     int64     // value of the limit, per minute or day
	Source    Source    // source of the limit's value
	Shared    bool      // true if a Ledger stores the bucket, which makes Level unknown
	Level     float64   // current level of the bucket (negative: more was used than available)
	Cap       float64   // capacity of the bucket
	Spent     float64   // amount used since the start, including by rejected requests
	Claims    Claims    // values of the limit from different sources
}
