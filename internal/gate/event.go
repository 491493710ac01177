package gate

import "time"

// EventType says what happened.
type EventType string

// Types of event.
const (
	EventGranted   EventType = "granted"   // a call may be sent
	EventReleased  EventType = "released"  // an attempt ended; Outcome says how
	EventThrottled EventType = "throttled" // an attempt was refused for now; Outcome says how
	EventBackoff   EventType = "backoff"   // a call waits on its own before its next attempt
	EventCooldown  EventType = "cooldown"  // a lane pauses until Until
	EventResumed   EventType = "resumed"   // a lane's pause is over and proven
	EventLimit     EventType = "limit"     // a limit of a lane was learned or corrected
	EventBreaker   EventType = "breaker"   // a lane's circuit breaker opened (Until is set) or closed
	EventGaveUp    EventType = "gave_up"   // Do gave up on a call
	EventShared    EventType = "shared"    // another process uses the lane too: together they may exceed its limits
)

// Event is something that happened in a lane. Only the fields that its type speaks of are set.
type Event struct {
	Type      EventType
	At        time.Time
	Lane      string
	Tenant    string
	Call      string // Call.ID
	Attempt   int
	Wait      time.Duration // how long the call waited, or has to wait
	Latency   time.Duration
	Until     time.Time
	Dimension Dimension
	Limit     int64
	Outcome   Outcome
	InFlight  int // in the lane, after the event
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
	Level     float64
	Cap       float64
	Spent     float64 // since the start, refused calls included
}
