package gate

import (
	"math"
	"time"
)

const (
	maxWeight   = 4                // maximum charge per unit that this gate counts
	moreOthers  = 0.5              // addition to the weight for a rejection although there should have been room
	maxSpare    = 0.3              // maximum level, in seconds of refill, that is left for others when a request is sent
	sharedAfter = 2                // score from which lanes share a limit
	fadeAfter   = 10 * time.Second // time without a header in which the weight halves
	isWindow    = 3                // score from which a limit is a fixed window
)

// headerView is the evidence of headers about one bucket.
type headerView struct {
	seen    bool    // headers show the level
	capRead bool    // a header showed the size
	ignored float64 // a limit that headers state for something else; 0 is none
	stated  float64 // the limit in the newest header
	wrong   int     // requests that were accepted although the headers showed no room
	fixed   fixed

	doubt   time.Duration // time after an unforeseen rejection in which headers raise no level
	doubted time.Time     // end of that time

	newest  reference // the header of the request that departed last
	reset   float64   // the seconds until the reset in that header
	windows int       // score for a limit that is filled at instants, instead of all the time
	jumped  bool      // the level rose faster than the rate allows: this is no bucket
	inflow  float64   // refill per second, where the level jumped; 0 is unknown
	since   reference // the header from which the inflow is measured next
	weight  weight
}

// seeWindow scores whether a limit is filled at an instant, or all the time. If it is filled at an instant, the instant of the reset stays
// while requests are charged. later is the amount that was spent just after the request and may count already.
func (h *headerView) seeWindow(next reference, reset, later, rate, cost, limit float64) {
	span := next.at.Sub(h.newest.at).Seconds()
	switch {
	case span <= 0 || next.left >= h.newest.left || reset <= 0:
	case math.Abs(reset-h.reset+span) < span/4+0.001:
		h.windows = min(h.windows+1, 2*isWindow)
	default:
		h.windows = max(h.windows-2, 0)
	}
	if span <= 0 {
		return
	}
	inflow := next.left - h.newest.left + next.spent - h.newest.spent - later
	if !h.jumped && !h.newest.at.IsZero() && inflow > 2*cost+1.5*rate*(span+lateMargin.Seconds()) {
		h.jumped, h.weight = true, weight{}
	}
	h.newest, h.reset = next, reset
	h.measure(next, later, limit)
}

// measure measures the inflow of a bucket that refills faster than its limit per minute says: a limit may be the size of the bucket. What is
// full may have lost refill.
func (h *headerView) measure(next reference, later, limit float64) {
	before, span := h.since, next.at.Sub(h.since.at).Seconds()
	switch {
	case !h.jumped || next.left > 0.9*limit:
		h.since = reference{}
	case before.at.IsZero():
		h.since = next
	case span >= 1:
		h.since = next
		if rate := (next.left - before.left + next.spent - before.spent - later) / span; rate > 0 {
			h.inflow = rate
		}
	}
}

// unforeseen notes a rejection while headers showed room: they lag, or others use the limit. room is whether the level showed room, too.
func (h *headerView) unforeseen(now time.Time, room bool) {
	h.doubt = min(max(2*h.doubt, firstDoubt), maxSpan)
	h.doubted = now.Add(h.doubt)
	if room && !h.jumped {
		h.weight.more = min(h.weight.more+moreOthers, maxWeight-1)
		h.weight.ratio = h.weight.factor()
	}
}

// weight is the charge per unit that this gate counts. It is above 1 if the provider charges more or if others use the limit.
type weight struct {
	more  float64 // the weight, less 1
	ratio float64 // moving average of the compared ratios
	since reference
	eased time.Time // departure of the request whose header lowered the weight last
}

// fade lowers the weight while responses have no headers that could lower it. sent is the departure of such a request.
func (h *headerView) fade(sent time.Time) {
	if w := &h.weight; w.more > 0 && sent.Sub(h.newest.at) >= fadeAfter && sent.Sub(w.eased) >= fadeAfter {
		w.more, w.eased = w.more/2, sent
		w.ratio = w.factor()
	}
}

// reference is an earlier header, with the total that this gate had spent before its request.
type reference struct {
	at          time.Time
	left, spent float64
}

// factor returns the amount that is charged per unit.
func (w *weight) factor() float64 { return 1 + w.more }

// compare compares the amount that headers show as charged with the amount that this gate spent. A bucket that was nearly full in
// between may have lost refill, and shows nothing. later is the amount that was spent just after the request and may count already.
func (w *weight) compare(next reference, later, cap, rate, cost float64) {
	if next.left+cost > 0.3*cap {
		if w.since = (reference{}); next.at.Sub(w.eased) >= time.Second { // there is room for more
			w.more, w.eased = w.more/2, next.at
			w.ratio = w.factor()
		}
		return
	}
	ours, span := next.spent+later-w.since.spent, next.at.Sub(w.since.at)
	if w.since.at.IsZero() || span < 0 {
		w.since = next
		return
	}
	if ours <= 10*cost || span < time.Second || cap < 5*cost { // a small bucket may have been full meanwhile
		return
	}
	theirs := w.since.left - next.left + rate*span.Seconds()
	w.ratio = max(w.ratio, 1)
	w.ratio += (min(theirs/ours, 2)*w.factor() - w.ratio) / 2
	w.more = min(max(w.ratio, 1), maxWeight) - 1
	w.since = next
}

// compared scores by headers whether a lane shares a limit with other lanes of the gate.
type compared struct {
	apart      bool      // headers showed that it does not share the limit
	from       time.Time // requests that were sent before it have other totals
	since      reference
	own, total float64 // amounts that the lane and all lanes had spent at since
	score      int
}

// add compares the amount that headers show as charged with the amounts that the lane and all lanes spent.
func (c *compared) add(next reference, own, total, cap, rate, cost float64) {
	before, all, own1 := c.since, total-c.total, own-c.own
	others := all - own1
	if next.at.Before(c.from) {
		return
	}
	valid := !before.at.IsZero() && !before.at.Before(c.from) && max(next.left, before.left) <= 0.95*cap
	if valid && (others < 3*cost || !next.at.After(before.at)) { // too early to tell
		return
	}
	c.since, c.own, c.total = next, own, total
	seen := before.left - next.left + rate*next.at.Sub(before.at).Seconds()
	switch {
	case !valid:
	case seen-own1 > 0.3*others && seen-own1 < 1.4*others: // requests that will be rejected are not charged
		c.score = max(c.score, 0) + 1
	case math.Abs(seen-own1) < 0.3*others:
		c.score = min(c.score, 0) - 1
	}
}
