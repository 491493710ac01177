package sluice

import (
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// Event is something that happened in a Scheduler. Only the fields that its type speaks of are set.
//
//	Type EventType
//	At time.Time
//	Account string           // Config.Name
//	Member, Lane, Tenant string
//	Call string              // Call.ID
//	Attempt int              // of the call, from 1; of an item that is done: how many were made
//	Throttles int            // of an item that is done
//	Wait time.Duration       // how long the call waited, or has to wait
//	Latency time.Duration    // of the try, from its sending to its end
//	Until time.Time          // when what began is over
//	Dimension Dimension      // the limit that is spoken of; of a slot, what held it back: AnyDimension is a pause, or nothing
//	Limit int64              // its value, per minute or day
//	Source Source            // of that
//	Outcome Outcome
//	Finish string            // why the model stopped, of an item that is done
//	Cost float64             // in US dollars, of an item that is done; 0 where it is not known
//	Reused bool              // the item that is done took no call: its answer was there already
//	InFlight, Waiting int    // calls in the lane after the event: open, and waiting
//	Slots int                // how many may be open there
type Event = gate.Event

// EventType says what happened. As text it is a name such as slot_acquired.
type EventType = gate.EventType

// Types of event.
const (
	EventStarted          = gate.EventStarted          // of the Scheduler
	EventClosed           = gate.EventClosed           // of the Scheduler
	EventMemberRegistered = gate.EventMemberRegistered // Member makes calls from now on
	EventMemberClosed     = gate.EventMemberClosed     // and no more
	EventSlotWaiting      = gate.EventSlotWaiting      // a call could not be sent at once, and waits
	EventSlotAcquired     = gate.EventSlotAcquired     // a call may be sent; Wait is how long it waited
	EventSlotReleased     = gate.EventSlotReleased     // a try ended, throttled or not; Outcome says how
	EventSlotCancelled    = gate.EventSlotCancelled    // a call gave up waiting
	EventThrottled        = gate.EventThrottled        // a try was refused for now; Wait is the call's own wait, if it has one
	EventAttemptFailed    = gate.EventAttemptFailed    // a try failed; Wait is until the next, 0 if there is none
	EventGaveUp           = gate.EventGaveUp           // Do gave up on a call
	EventCooldownStarted  = gate.EventCooldownStarted  // a lane pauses until Until
	EventCooldownEnded    = gate.EventCooldownEnded    // a lane's pause is over and proven
	EventLimitsChanged    = gate.EventLimitsChanged    // a limit of a lane was learned, corrected or told
	EventBreaker          = gate.EventBreaker          // a lane's circuit breaker opened (Until is set) or closed
	EventPaused           = gate.EventPaused           // Scheduler.Pause: nothing is sent in any lane
	EventResumed          = gate.EventResumed          // Scheduler.Resume
	EventShared           = gate.EventShared           // another process uses the lane, too: together they may exceed its limits
	EventItemDone         = gate.EventItemDone         // a program above the Scheduler, such as a batch, recorded a result
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
	At    time.Time      // by the local clock
	Lanes []LaneSnapshot // by name
	Timer time.Time      // when the Scheduler looks after calls that wait by itself; zero: it does not

	Retrying int // calls of Do that wait, each by itself, before they are tried again: no lane counts them

	Limits, Account Limits // ceilings of each lane and of all together, as told
}

// LaneSnapshot is the state of one lane.
//
//	Lane string
//	InFlight, Waiting, Slots int         // calls that are open, that wait, and how many may be open now
//	Oldest time.Time                     // when the oldest open call was sent; zero when none is
//	Until time.Time                      // the lane pauses until then; zero or past: it does not
//	Held bool                            // Scheduler.Pause holds it
//	Probing bool                         // after a pause, only a few unproven calls are let out
//	Pause Kind                           // why it pauses; ServerError: the circuit breaker is open
//	Blocked bool                         // something holds the next call back
//	Binding Dimension                    // what does; AnyDimension is then a pause
//	Bound [NumDimensions]time.Duration   // for how long each has held calls back; AnyDimension is the pauses
//	Budgets []BudgetSnapshot
//	Throttles, Granted int               // since the start: tries that were refused for now, and permits
type LaneSnapshot = gate.Snapshot

// BudgetSnapshot is what is believed of one of the provider's limits, in requests or tokens.
//
//	Dimension Dimension
//	Limit int64     // per minute, or per day
//	Source Source
//	Shared bool     // a Ledger has it: Level is not known here
//	Level float64   // what is left of it now; below zero is a debt
//	Cap float64     // the most that the bucket holds
//	Spent float64   // since the start, refused calls included
type BudgetSnapshot = gate.Budget

// Source says where a limit is known from.
type Source = gate.Source

// Sources of a limit.
const (
	SourceTold     = gate.SourceTold     // Config.Limits or Config.Account
	SourceStart    = gate.SourceStart    // Config.Start
	SourceHeader   = gate.SourceHeader   // an answer's header
	SourceRefusal  = gate.SourceRefusal  // a refusal that stated it
	SourceMeasured = gate.SourceMeasured // counted between refusals, where nobody says
	SourceRegistry = gate.SourceRegistry // published for the account's tier; no Scheduler gives it
	SourceAtLeast  = gate.SourceAtLeast  // so much was used without a refusal; no Scheduler gives it
)

// NumDimensions is the number of dimensions, AnyDimension included.
const NumDimensions = gate.NumDimensions
