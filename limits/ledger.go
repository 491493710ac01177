package limits

import "time"

// Vector holds an amount per dimension: a number of requests, tokens or slots.
type Vector [NumDimensions]float64

// Minus returns the difference of two vectors.
func (v Vector) Minus(other *Vector) Vector {
	for d := range v {
		v[d] -= other[d]
	}
	return v
}

// Asks are calls of one lane that want to be sent, in their order.
type Asks struct {
	Lane    string
	Waiting int // waiting calls of the lane, these included: the weight of the process
	Calls   []Ask
	Test    time.Duration // the time without a grant after which the one call tests the belief that holds it back; 0: it does not
}

// Ask is one call that asks a ledger for its cost.
type Ask struct {
	ID      uint64 // the permit's; a second Ask with the same ID takes nothing
	Cost    Vector
	Guarded Vector // the amount that configured limits count
}

// Reply is a ledger's answer to Asks: the first Granted calls fit, the others wait.
type Reply struct {
	Granted int
	Marks   []Vector      // for each granted Ask: the lane's total spending, this Ask included
	Before  Vector        // the part of Marks[0] that was spent before the last 50 to 100 ms
	Levels  *Vector       // of the lane's token buckets, after the grants; nil: unknown
	Wait    time.Duration // until the first call that did not fit may fit; if all were granted, what a test was granted against
	Bound   Dimension     // the limit that it waits for
	State   LaneState
}

// LaneState is the state of a lane that processes share, apart from its token buckets. The zero value states nothing.
type LaneState struct {
	Open  int // requests in flight, of all processes
	Pause Pause
	Slots SlotLimit
}

// Pause is the pause of a lane, and the episode of probes after it.
type Pause struct {
	Epoch   uint64        // counts the pauses: a rejection of a request of an earlier epoch starts none
	Left    time.Duration // until requests are sent again; 0 or negative: now
	Age     time.Duration // since the first pause of the episode started
	Probing bool          // only Ramp unproven requests may be in flight
	Ramp    int
	Cause   Kind
}

// SlotLimit is the concurrency of a lane, and the evidence for it.
type SlotLimit struct {
	Version uint64        // counts the changes
	Limit   float64       // 0 is none
	Bad     int           // a concurrency that was rejected once; 0: unknown
	Refused bool          // a rejection has set Limit
	Hold    time.Duration // how long Bad counts
	Left    time.Duration // the remaining part of Hold
}

// Settlement returns the difference between the reserved and the used cost of a permit, and its slot. A negative difference is taken.
type Settlement struct {
	ID      uint64
	Lane    string
	Refund  Vector
	Guarded Vector        // to be added to the amounts that configured limits counted for the request
	Age     time.Duration // since the request was sent
	Proven  bool          // the provider accepted the request
	Open    bool          // the request is still in flight and keeps its slot
}

// Correction adapts the state of a lane in a ledger to what the provider states. Lo and Hi bound the level of a token bucket at
// the instant when Mark had been spent; later spending is subtracted from both.
type Correction struct {
	ID        uint64
	Lane      string
	Account   bool      // the limit covers all lanes; Lane only says with whose Asks the correction is sent
	Dimension Dimension // Concurrency: only Slots counts. AnyDimension: only Pause does
	Mark      float64
	Lo, Hi    float64
	Rate      float64 // per second
	Cap       float64
	Start     float64 // the level of a new bucket
	Limit     float64 // the configured limit; 0 is none
	Burst     float64 // the configured size of buckets in seconds of refill; 0 is none

	LimitPeriod time.Duration // to which Limit refers; 0 is Dimension.Window

	Slots  SlotLimit     // counts only if the ledger holds the version that it was made from
	Period time.Duration // the length of a fixed window; 0: the bucket refills all the time
	Left   time.Duration // until the present window ends; 0 leaves that as it is

	Pause Pause // with its own Epoch; a pause is never shortened
}
