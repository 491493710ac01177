package gate

import "time"

// EventType says what happened.
type EventType string

// Types of event.
const (
	EventStarted EventType = "scheduler_started"
	EventClosed  EventType = "scheduler_closed"

	EventMemberRegistered EventType = "member_registered" // Member makes calls from now on
	EventMemberClosed     EventType = "member_closed"

	EventSlotWaiting   EventType = "slot_waiting"   // a call could not be sent at once, and waits
	EventSlotAcquired  EventType = "slot_acquired"  // a call may be sent; Wait is how long it waited
	EventSlotReleased  EventType = "slot_released"  // an attempt ended, throttled or not; Outcome says how
	EventSlotCancelled EventType = "slot_cancelled" // a call gave up waiting

	EventThrottled     EventType = "throttled"      // an attempt was refused for now; Wait is the call's own wait, if it has one
	EventAttemptFailed EventType = "attempt_failed" // an attempt failed; Wait is until the next, 0 if there is none
	EventGaveUp        EventType = "gave_up"        // Do gave up on a call

	EventCooldownStarted EventType = "cooldown_started" // a lane pauses until Until
	EventCooldownEnded   EventType = "cooldown_ended"   // a lane's pause is over and proven
	EventLimitsChanged   EventType = "limits_changed"   // a limit of a lane was learned, corrected or told
	EventBreaker         EventType = "breaker"          // a lane's circuit breaker opened (Until is set) or closed
	EventPaused          EventType = "paused"           // Pause: nothing is sent in any lane
	EventResumed         EventType = "resumed"          // Resume
	EventShared          EventType = "shared"           // another process uses the lane too: together they may exceed its limits

	EventItemDone EventType = "item_done" // a result was recorded: it is of a program above the Scheduler, such as a batch
)

// Event is something that happened in a lane. Only the fields that its type speaks of are set.
type Event struct {
	Type      EventType
	At        time.Time
	Account   string // Config.Name of the Scheduler
	Member    string
	Lane      string
	Tenant    string
	Call      string        // Call.ID
	Attempt   int           // of the call, from 1; of an item that is done: how many were made
	Throttles int           // of an item that is done
	Wait      time.Duration // how long the call waited, or has to wait
	Latency   time.Duration
	Until     time.Time
	Dimension Dimension // the limit that is spoken of; of a slot what holds it back, or did: AnyDimension is a pause, or nothing
	Limit     int64
	Source    Source // of a limit
	Outcome   Outcome
	Finish    string  // why the model stopped, of an item that is done
	Cost      float64 // in US dollars, of an item that is done; 0 where it is not known
	Reused    bool    // the item that is done took no call: its answer was there already
	InFlight  int     // in the lane, after the event
	Slots     int     // how many calls may be open there
	Waiting   int
}

// Snapshot is the state of one lane.
type Snapshot struct {
	Lane      string
	InFlight  int
	Waiting   int
	Slots     int                          // how many calls may be open now
	Oldest    time.Time                    // when the oldest open call was sent; zero when none is
	Until     time.Time                    // the lane pauses until then; zero or past: it does not
	Held      bool                         // Pause holds it
	Probing   bool                         // after a pause, only a few unproven calls are let out
	Pause     Kind                         // why it pauses; ServerError: the breaker is open
	Binding   Dimension                    // what holds the next call back
	Blocked   bool                         // something does; AnyDimension is then a pause
	Bound     [NumDimensions]time.Duration // for how long each has held calls back; AnyDimension is the pauses
	Budgets   []Budget
	Throttles int
	Granted   int
}

// Budget is the mirror of one of the provider's buckets.
type Budget struct {
	Dimension Dimension
	Limit     int64 // per minute, or per day
	Source    Source
	Shared    bool    // a ledger that others share has it: Level is not known here
	Level     float64 // what is left of it now
	Cap       float64
	Spent     float64 // since the start, refused calls included
}
