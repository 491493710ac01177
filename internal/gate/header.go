package gate

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

const (
	maxWeight   = 4                // maximum charge per unit that this gate counts
	moreOthers  = 0.5              // addition to the weight for a rejection although there should have been room
	maxSpare    = 0.3              // maximum level, in seconds of refill, that is left for others when a request is sent
	sharedAfter = 2                // score from which lanes share a limit
	fadeAfter   = 10 * time.Second // time without a header in which the weight halves
	hastened    = 1.25             // factor of the pace of emptying for each header that shows a full bucket
)

// headerView is the evidence of headers about one bucket.
type headerView struct {
	seen    bool      // headers show the level
	capRead bool      // a header showed the size
	ignored float64   // a limit that headers state for something else; 0 is none
	stated  float64   // the limit in the newest header
	wrong   int       // requests that were accepted although the headers showed no room
	wholeAt time.Time // when the bucket is full or the window over, by the reset in the newest header of a limit without a period
	fixed   fixed

	doubt   time.Duration // time after an unforeseen rejection in which headers raise no level
	doubted time.Time     // end of that time

	shown  float64   // the remainder by the header before it, less what was spent since
	newest reference // the header of the request that departed last
	jumped bool      // the level rose faster than the rate allows: this is not a bucket of that rate
	inflow float64   // refill per second, where the level jumped; 0 is unknown
	since  reference // the header from which the inflow is measured next
	weight weight
}

// compare finds by two headers that a level rises faster than the rate allows, and then measures how fast. later is the amount that was spent
// just after the request and may count already. exact is whether each unit that was spent is known.
func (h *headerView) compare(next reference, later, rate, cost float64, exact bool) {
	if !next.at.After(h.newest.at) {
		return
	}
	before, full := h.newest, next.left+cost > 0.9*h.stated // just before the request
	h.shown = before.left + before.spent - next.spent
	if h.jumped || exact && !h.since.at.IsZero() {
		before = h.since
	}
	h.newest = next
	span := next.at.Sub(before.at).Seconds()
	inflow := next.left - before.left + next.spent - before.spent - later
	switch {
	case before.at.IsZero():
		h.since = next
	case !h.jumped:
		if h.jumped = inflow > 2*cost+1.5*rate*(span+lateMargin.Seconds()); h.jumped {
			h.weight, h.since = weight{}, next
		}
	case span < 1:
	default:
		if r := inflow / span; full { // it may have lost refill
			h.inflow = max(h.inflow, hastened*r)
		} else if r > 0 {
			h.inflow = r
		}
		h.since = next
	}
}

// unforeseen notes a rejection while headers showed room: they lag, or others use the limit. room is whether the level showed room, too.
func (h *headerView) unforeseen(now time.Time, room bool) {
	if h.jumped && h.shown < 1 { // headers showed none: this gate assumed a refill
		return
	}
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

// read corrects one bucket by one header. A header bounds the level at some instant between the request's departure and now; the other
// requests of that time are known to within the margins.
func (b *buckets) read(now time.Time, t *Ticket, r *limits.Reading) {
	d := r.Dimension
	if float64(r.Limit) == b.each[d].header.ignored {
		return
	}
	later, stale := t.later(d, &b.spent), false
	seen := reference{t.sent, float64(r.Remaining), t.mark[d]}
	if r.Remaining < r.Limit && !perDay(d) {
		f := &b.each[d].header.fixed
		stale = f.see(now, r, seen, max(1, b.mean[d]), later+t.sooner(d), b.lane.flight.open, b.book.budgets[d].ended)
	}
	each := b.believe(now, t, limits.Limit{Dimension: d, Value: b.each[d].header.limit(r), Source: limits.SourceHeader, At: t.sent, Confidence: 1})
	switch each.header.stated = float64(r.Limit); {
	case r.Remaining == r.Limit: // some servers always state a full bucket, which tells nothing
		if r.Window {
			each.drain.pace = min(each.drain.pace*hastened, maxExcess)
		}
	case stale:
	case b.windowed(each):
		b.readWindow(now, t, r)
	default:
		b.readBucket(now, t, r, seen, later)
	}
}

// law returns the outcome of a rejection with the window that it states in words as a reading, unless a header shows that limit. If it states
// no wait, the window ends a period after the first request in it.
func (b *buckets) law(now time.Time, o *limits.Outcome) *limits.Outcome {
	w, d := o.Window, o.Dimension
	if w.N <= 0 || w.Period <= 0 || !o.Kind.Throttle() || slices.ContainsFunc(o.Readings, func(r limits.Reading) bool { return r.Dimension == d }) {
		return o
	}
	r := limits.Reading{Dimension: d, Limit: int64(w.N), Reset: o.Wait, ResetSlack: time.Second, Period: w.Period, Window: true}
	switch bud := b.book.budgets[d]; {
	case o.Wait > 0:
	case bud.period == w.Period && bud.ends.After(now):
		r.Reset = bud.ends.Sub(now)
	case bud.period == 0 && now.Sub(b.opened) < w.Period:
		r.Reset = w.Period - now.Sub(b.opened)
	default:
		r.ResetSlack = 0
	}
	with := *o
	with.Readings, with.Limit = append(slices.Clip(o.Readings), r), 0
	return &with
}

// limit returns the limit per minute or day that a header states. Without a period it is the size of a bucket if that refills faster.
func (h *headerView) limit(r *limits.Reading) float64 {
	limit, window := float64(r.Limit), window(r.Dimension)
	if period := h.fixed.refers(r); period > 0 {
		return limit * window / period.Seconds()
	}
	if r.Window && h.inflow > 1.1*limit/window {
		return math.Floor(h.inflow * window)
	}
	return limit
}

// readBucket corrects a bucket that refills all the time. later is the amount that was spent just after the request and may count already.
func (b *buckets) readBucket(now time.Time, t *Ticket, r *limits.Reading, seen reference, later float64) {
	d := r.Dimension
	each := b.each[d]
	h := &each.header
	each.author, each.doubt = 0, nil
	first := !each.shown
	each.shown, h.seen, each.probe = true, true, probe{}
	rate, left, slack := each.rate(), float64(r.Remaining), float64(r.Slack)/2
	toFull := max(0, r.Reset-r.ResetSlack).Seconds()
	most := left + slack + rate*max(0, r.Reset).Seconds() // rounded figures show an interval
	owes := left <= slack && b.reserves.charge == limits.ChargeActual && (d == limits.Tokens || d == limits.OutputTokens || d == limits.TokensPerDay)
	switch {
	case r.Reset == 0:
		each.cap = max(each.cap, min(each.Value, left), 1)
	case owes: // the time until it is full includes a debt
		each.cap = max(1, min(each.cap, most))
	case left > slack || !h.capRead:
		each.cap, h.capRead = max(1, min(max(each.cap, left-slack+rate*toFull), most, each.Value)), true
	}
	age := now.Sub(t.sent)
	lo := min(each.cap, left-slack+rate*max(0, age-lateMargin).Seconds()) - t.sooner(d) - b.unproduced(t, d)
	hi := left + slack + 1 + rate*age.Seconds() + later
	hi = max(hi, b.book.budgets[d].spent-t.mark[d]) // no bucket holds less than nothing
	if owes {
		// Output may have left a debt. The remaining tokens do not show it, but the time until the bucket is full does.
		lo = math.Inf(-1)
		hi = min(hi, max(each.cap-rate*toFull, -t.openOutput)+rate*age.Seconds()+later)
	}
	if first { // the remainder of an unknown bucket is believed with a margin
		hi = max(lo, left-b.mean[d])
	}
	if b.charged && b.book.budgets[d].level < min(lo-b.book.budgets[d].spent+t.mark[d], each.cap)-2*t.cost[d] {
		b.charged = false // the level is higher than charged rejections allow
	}
	if now.Before(h.doubted) {
		lo = math.Inf(-1)
	}
	b.share(now, t, d, left)
	each, h = b.each[d], &b.each[d].header
	h.compare(seen, later, rate, b.mean[d], d == limits.Requests)
	if r.Window && r.ResetSlack > 0 {
		h.wholeAt = now.Add(r.Reset + r.ResetSlack)
	}
	if !h.fixed.is && (d == limits.Requests || b.reserves.charge != limits.ChargeActual) {
		h.weight.compare(seen, later, each.cap, rate, b.mean[d])
	}
	if d == limits.Tokens && !h.fixed.is {
		b.findCharge(now, t, left)
	}
	before := b.book.level(now, d)
	b.correct(now, d, limits.Correction{Mark: t.mark[d], Lo: lo, Hi: hi})
	if b.remote() || b.book.level(now, d) != before {
		each.mark = 0
	}
}
