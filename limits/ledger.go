package limits

import "time"

// Vector contains one amount (of requests, tokens or slots) per dimension.
type Vector [NumDimensions]float64

// Minus returns the difference v - other for each dimension.
func (v Vector) Minus(other *Vector) Vector {
	for d := range v {
		v[d] -= other[d]
	}
	return v
}

// Asks is an ordered batch of calls in one lane that need permits.
type Asks struct {
	Lane    string        // name of the lane
	Waiting int           // number of waiting calls of the lane, including Calls (the weight of the process)
	Calls   []Ask         // calls that need permits
	Test    time.Duration // time without a granted permit after which a call may exceed a learned limit as a test (0: no test)
}

// Ask is the request for a permit that a Ledger receives for one call.
type Ask struct {
	ID      uint64 // identifier of the permit (repeated Asks with the same ID are charged once)
	Cost    Vector // reserved cost of the call
	Guarded Vector // amount that counts against the configured limits
}

// Reply is the reply of a Ledger to Asks. The first Granted calls receive permits, and the remaining calls wait.
type Reply struct {
	Granted int           // number of calls that receive permits
	Marks   []Vector      // total amount used by the lane, up to and including each granted Ask
	Before  Vector        // part of Marks[0] that was used more than 50 to 100 ms ago
	Levels  *Vector       // levels of the lane's token buckets after the grants (nil: unknown)
	Wait    time.Duration // time until the limits may permit the next call (after a granted test, the wait that the test skipped)
	Bound   Dimension     // limit that delays the next call
	State   LaneState     // state of the lane after the grants
}

// LaneState contains the shared state of a lane, except for token buckets. The zero LaneState contains no information.
type LaneState struct {
	Open  int       // number of requests in flight in all processes
	Pause Pause     // cooldown of the lane
	Slots SlotLimit // concurrency of the lane
}

// Pause describes the cooldown of a lane, and the test requests after the cooldown.
type Pause struct {
	Epoch   uint64        // number of the cooldown (rejections of requests from earlier epochs start no cooldown)
	Left    time.Duration // time until the lane resumes sending (0 or negative: immediately)
	Age     time.Duration // time since the first cooldown in this series
	Probing bool          // true if Ramp limits the number of unconfirmed requests in flight
	Ramp    int           // maximum number of unconfirmed requests in flight while Probing is true
	Cause   Kind          // kind of the rejection that started the cooldown
}

// SlotLimit is the maximum concurrency of a lane, with the evidence for the value.
type SlotLimit struct {
	Version uint64        // number of changes to the limit
	Limit   float64       // maximum concurrency (0: no limit)
	Bad     int           // concurrency at which a request was rejected (0: unknown)
	Refused bool          // true if a rejection determined Limit
	Hold    time.Duration // time for which Bad applies
	Left    time.Duration // remaining time of Hold
}

// Settlement frees the slot of a permit and refunds the reserved cost minus the used cost. A negative refund is charged.
type Settlement struct {
	ID      uint64        // identifier of the permit
	Lane    string        // name of the lane
	Refund  Vector        // reserved cost minus used cost
	Guarded Vector        // additional amount that counts against configured limits
	Age     time.Duration // time since the request was sent
	Proven  bool          // true if the provider accepted the request
	Open    bool          // true if the request is still in flight and keeps its slot
}

// Correction updates the state of a lane in a Ledger after a response. Lo and Hi are bounds for the level of a token
// bucket when the total usage of the lane was Mark. Later usage reduces both bounds.
type Correction struct {
	ID        uint64    // identifier of the correction
	Lane      string    // name of the lane
	Account   bool      // true if the limit covers all lanes (the correction is sent with the Asks of Lane)
	Dimension Dimension // dimension of the limit (Concurrency: only Slots applies; AnyDimension: only Pause applies)
	Mark      float64   // total usage of the lane for which Lo and Hi apply
	Lo, Hi    float64   // lower and upper bound of the bucket's level
	Rate      float64   // refill per second
	Cap       float64   // capacity of the bucket
	Start     float64   // initial level of a new bucket
	Limit     float64   // configured limit (0: not configured)
	Burst     float64   // configured capacity of the bucket, in seconds of refill (0: not configured)

	LimitPeriod time.Duration // period to which Limit refers (0: Dimension.Window)

	Slots  SlotLimit     // new concurrency (ignored if Version differs from the version in the Ledger)
	Period time.Duration // length of a fixed window (0: the bucket refills continuously)
	Left   time.Duration // time until the current window ends (0: no change)

	Pause Pause // new cooldown with a new Epoch, which never shortens a running cooldown
}
