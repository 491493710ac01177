package limits

import "time"

// Reading is the state of one limit, as stated in the headers of a response.
type Reading struct {
	Dimension Dimension     // dimension of the limit
	Limit     int64         // value of the limit
	Remaining int64         // remaining amount
	Reset     time.Duration // time until the full limit is available again (0: not stated)
	Slack     int64         // rounding unit of Remaining, for example 1,000 tokens at Anthropic (0: exact)

	ResetSlack time.Duration // maximum increase of Reset through rounding

	At     time.Time     // arrival time of the header (zero: the time of processing)
	Period time.Duration // period of the limit, if other than a minute or a day (0: not stated)
	Window bool          // true if Reset seems to be the end of a fixed window (later responses may disprove this)
}

// Outcome is the result of one attempt. The zero Outcome is a success with unknown usage.
type Outcome struct {
	Kind  Kind  // category of the result
	Scope Scope // extent of the rejection according to the response (for example, a 403 may concern the API key)
	Err   error // error that the caller receives (nil for OK)

	// The fields from Wait to Others describe a rejection.
	Wait      time.Duration // waiting time that the provider requests (0: not stated)
	Until     time.Time     // reset time of the usage window (zero: not stated)
	Dimension Dimension     // dimension of the exceeded limit
	Limit     int64         // value of the exceeded limit, per minute or day (0: not stated)
	Window    Window        // exceeded limit with the period, if the response text states limit and period
	Used      int64         // amount that was used of the exceeded limit (0: not stated)
	Requested int64         // amount that this request needed (0: not stated)
	Proxy     bool          // true if a proxy rejected the request because of too many requests in flight or no available server
	TooLarge  bool          // true if this request alone exceeds an entire rate limit, so that no retry can succeed
	Others    int           // number of other requests whose success after this rejection shows that this request is at fault (0: unknown)

	Usage    Usage     // usage of the attempt
	HasUsage bool      // true if Usage was stated in the response or counted from an interrupted response
	Readings []Reading // limits from the headers of the response

	Unsent    bool // true if the request was not sent, so that the reserved cost is refunded
	Abandoned bool // true if the caller did not wait for the response, so that the Outcome is not evidence about the provider
	Final     bool // true if the call must not be retried, independent of Kind
	Amended   bool // true if the provider rejected an added field, so that Do immediately repeats the call without counting an attempt
	Elsewhere bool // true if the caller will use another Scheduler after this call fails
	Open      bool // true if the response body is still being read, so that the reader releases the permit
}

// Priority orders calls by urgency. The priority of a waiting call rises by one every 30 seconds. The zero Priority is Normal.
type Priority int8

// Priorities.
const (
	Low      Priority = -1
	Normal   Priority = 0
	High     Priority = 1
	Critical Priority = 2
)

// Call describes a call that needs a permit. The zero Call is a small call in the default lane.
type Call struct {
	ID       string   // name of the call in events and errors
	Lane     string   // name of the group of calls that share the same limits, as a rule one model ("" is a valid lane)
	Item     uint64   // identifier of an item that several calls process, for example on several upstreams (0: one call)
	Tenant   string   // tenant of the call, where tenants share the lane by weight ("" is a valid tenant)
	Member   string   // pool member that makes the call, as named in events
	Priority Priority // urgency of the call (default Normal)
	Cost     Cost     // expected tokens of the call

	// MaxWait is the maximum time that each attempt waits for a permit. After this time, the attempt fails with a
	// *sluice.SlotTimeoutError. If MaxWait is 0, only the context limits the wait.
	MaxWait time.Duration

	// Withdrawn makes the waiting call fail with sluice.ErrWithdrawn when this channel is closed. A nil channel has no effect.
	Withdrawn <-chan struct{}

	// GivenUp is called when Do gives up on the call, before another call receives the slot. GivenUp must return quickly
	// and must not call the Scheduler. A nil function has no effect.
	GivenUp func(Outcome)

	// Ahead is the number of calls in other queues before this call, for Scheduler.Delay. A negative Ahead subtracts waiting calls of the lane.
	Ahead int

	// Attempts and MaxThrottles limit the attempts of this call in place of the Scheduler's Config (0: as in Config).
	Attempts, MaxThrottles int
}
