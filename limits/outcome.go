package limits

import "time"

// Reading is the state of one limit, as stated in the headers of a response.
type Reading struct {
	Dimension Dimension     // dimension of the limit
	Limit     int64         // value of the limit
	Remaining int64         // remaining amount
	Reset     time.Duration // time until the limit is unused again (0: not stated)
	Slack     int64         // rounding unit of Remaining, for example 1,000 tokens at Anthropic (0: exact)

	ResetSlack time.Duration // maximum amount by which rounding increases Reset

	At     time.Time     // arrival time of the header (zero: the time of processing)
	Period time.Duration // period of the limit if it is not a minute or a day (0: not stated)
	Window bool          // true if Reset is the end of a fixed window; responses may disprove this
}

// Outcome is the result of one attempt. The zero value is a success of unknown usage.
type Outcome struct {
	Kind  Kind  // category of the result
	Scope Scope // extent of the rejection, as stated; for example, a 403 may concern the key
	Err   error // error for the caller (nil for OK)

	// The fields from Wait to Others describe a rejection.
	Wait      time.Duration // time for which the provider asks to wait (0: not stated)
	Until     time.Time     // time at which a usage window is reset (zero: not stated)
	Dimension Dimension     // dimension of the exceeded limit
	Limit     int64         // value of the exceeded limit, per minute or day (0: not stated)
	Window    Window        // exceeded limit with its period, if the text of the response states both
	Used      int64         // used amount of the exceeded limit (0: not stated)
	Requested int64         // amount that this request needed (0: not stated)
	Proxy     bool          // true if a proxy rejected the request: too many requests in flight, or no server available
	TooLarge  bool          // true if this request alone exceeds an entire rate limit, so that no retry can succeed
	Others    int           // number of other requests that succeeded after this rejection and show that this request is at fault (0: unknown)

	Usage    Usage     // usage of the attempt
	HasUsage bool      // true if the response stated Usage, or if the usage of an interrupted response was counted
	Readings []Reading // limits from the headers of the response

	Unsent    bool // true if the request was not sent; the reserved cost is refunded
	Abandoned bool // true if the caller did not wait for the response, which is then not evidence about the provider
	Final     bool // true if the caller does not retry, for any kind
	Alone     bool // true to give up early if this is the only remaining call and is at fault, as without Config.MaxThrottles
	Amended   bool // true if the provider rejected an added field; Do repeats the call immediately without the field, at no cost of an attempt
	Elsewhere bool // true if the caller uses another Scheduler after this call fails
	Open      bool // true if the response body is still being read; the reader releases the permit
}

// Priority orders calls by urgency. The priority of a waiting call rises by one every 30 seconds. The zero value is Normal.
type Priority int8

// Priorities.
const (
	Low      Priority = -1
	Normal   Priority = 0
	High     Priority = 1
	Critical Priority = 2
)

// Call describes a call that needs a permit. The zero value is a small call on the default lane.
type Call struct {
	ID       string   // name of the call in events and errors
	Lane     string   // group of calls that share the same limits, as a rule one model ("" is a valid lane)
	Item     uint64   // identifier of the item if several calls process it, for example on several upstreams (0: one call)
	Tenant   string   // tenant of the call; tenants share the lane by weight ("" is a valid tenant)
	Member   string   // pool member that makes the call, for events
	Priority Priority // urgency of the call (default Normal)
	Cost     Cost     // expected tokens of the call

	// MaxWait is the maximum time that each attempt waits for a permit. After that time, the attempt fails with a
	// *sluice.SlotTimeoutError. If 0, only the context limits the wait.
	MaxWait time.Duration

	// Withdrawn stops the wait of the call when the channel is closed. The call then fails with sluice.ErrWithdrawn. Nil has no effect.
	Withdrawn <-chan struct{}

	// GivenUp is called when the call fails finally, before another call receives the permit. GivenUp must return
	// quickly and must not call the Scheduler. Nil has no effect.
	GivenUp func(Outcome)

	// Ahead is the number of calls in other queues that precede this call. Only Delay uses it. A negative value subtracts calls of the lane.
	Ahead int
}
