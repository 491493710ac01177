package limits

import "time"

// Reading is one limit and its state, as the headers of a response give them.
type Reading struct {
	Dimension Dimension
	Limit     int64
	Remaining int64
	Reset     time.Duration // until the limit is unused again; 0: not stated
	Slack     int64         // Remaining is rounded to a multiple of it (Anthropic rounds tokens to 1,000); 0 is exact

	ResetSlack time.Duration // rounding may add this much to Reset

	At     time.Time     // when the header came; zero: when it is taken in
	Period time.Duration // the time to which Limit refers, where it is no minute or day; 0: not stated
	Window bool          // Reset is the end of a fixed window, unless responses show otherwise
}

// Outcome is the result of one attempt. The zero value is a success of unknown usage.
type Outcome struct {
	Kind  Kind
	Scope Scope // what a rejection claims to be about, such as a 403 about the key
	Err   error // for the caller; nil for OK

	// What a rejection states.
	Wait      time.Duration // how long the provider asks to wait; 0: not stated
	Until     time.Time     // when a usage window is reset; zero: not stated
	Dimension Dimension     // the limit that was exceeded
	Limit     int64         // its value, per minute or day; 0: not stated
	Window    Window        // its value and its period, where the response states both in words
	Used      int64         // the used part of it; 0: not stated
	Requested int64         // the amount that this request asked for; 0: not stated
	Proxy     bool          // a proxy rejected it: for the number of requests in flight, or because no server is up
	TooLarge  bool          // this request alone is above the whole limit, so that no retry succeeds
	Others    int           // other requests that the provider accepted after it rejected this one, which is therefore at fault itself; 0: unknown

	Usage    Usage
	HasUsage bool      // Usage was stated, or was counted in a response that broke off
	Readings []Reading // from the headers of any response

	Unsent    bool // the request was never sent, so that its cost is refunded
	Abandoned bool // the caller gave up on the response, which therefore proves nothing about the provider
	Final     bool // the caller does not retry, for any kind
	Alone     bool // the call is given up early if it is the only remaining one and is at fault, as if Config.MaxThrottles were not set
	Amended   bool // the provider refused a field that the caller had added: the call is made once more without it, at once, which spends no attempt
	Elsewhere bool // if the call ends here, the caller makes it at another Scheduler
	Open      bool // the body is still being read; its reader releases the permit
}

// Priority orders calls of different urgency. A waiting call rises by one for each 30 s. The zero value is Normal.
type Priority int8

// Priorities.
const (
	Low      Priority = -1
	Normal   Priority = 0
	High     Priority = 1
	Critical Priority = 2
)

// Call describes a call that asks for a permit. The zero value is a small call on the default lane.
type Call struct {
	ID       string // names the call in events and errors
	Lane     string // the calls that the provider limits together, as a rule one model; "" is a lane too
	Item     uint64 // identifies the item if several calls are made for it, for example one per upstream; 0: one call
	Tenant   string // tenants take turns; "" is a tenant too
	Member   string // the member of a pool that makes the call, for events
	Priority Priority
	Cost     Cost

	// MaxWait is how long each attempt may wait for its permit before it fails with a *sluice.SlotTimeoutError. 0: as long as its
	// context permits.
	MaxWait time.Duration

	// Withdrawn ends the waits of the call with sluice.ErrWithdrawn once it is closed. Nil: only its context does.
	Withdrawn <-chan struct{}

	// GivenUp is called when the call fails for good, before its permit goes to another one. It must be quick and must not call the
	// Scheduler. Nil does nothing.
	GivenUp func(Outcome)

	// Ahead is the number of calls in other queues that go first, for Delay. A negative value subtracts calls of the lane.
	Ahead int
}
