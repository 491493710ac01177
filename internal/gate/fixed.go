package gate

import (
	"cmp"
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

const (
	leastRefill = 5 * time.Second        // minimum period that is believed of a limit that refills all the time
	taken       = 0.1                    // maximum share of a window that others may have used when it begins
	turnMargin  = 10 * time.Millisecond  // delay of the first request after the end of a window
	firstLate   = 250 * time.Millisecond // delay of the next request if the window was not over, doubled with each rejection
	longestLate = 10 * time.Second       // and at most
)

// periods are the lengths of windows that people configure.
var periods = [...]time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 12 * time.Second, 15 * time.Second, 20 * time.Second,
	30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute, 20 * time.Minute,
	30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 4 * time.Hour, 5 * time.Hour, 6 * time.Hour, 12 * time.Hour}

// fixed is the evidence for a fixed window: a limit that is whole again at an instant, whatever was used. The instant is the end of the window
// that the first request opens, or one of the clock.
type fixed struct {
	limit    int64         // to which the evidence refers
	is, not  bool          // it was shown that the limit is one, or is none
	untested bool          // one request is to test that a window of which no header speaks is used up
	period   time.Duration // length of a window; 0 is unknown
	lo, hi   time.Time     // bounds of the end of the present window; zero before the first
	stated   time.Time     // the end in the newest header
	opened   time.Time     // departure of the first request of the present window; zero if others opened it
	first    reference     // the first header of the present window
	least    float64       // the smallest remainder in it
	reset    time.Duration // the time until the end in that header
	near     float64       // the amount that was charged just before and after its request
	late     time.Duration // the delay after a rejection that came when the window should have been over
	exact    bool          // the last window was whole when it was expected
	partial  int           // windows that were not
}

// see takes in a header. cost is the amount of a usual request, near the amount that was charged just before and after the request and may
// count or not, open the number of requests in flight, ended the end of the last window. stale is whether the header is of that one.
func (f *fixed) see(now time.Time, r *limits.Reading, next reference, cost, near float64, open int, ended time.Time) (stale bool) {
	if r.Limit != f.limit && !next.at.Before(f.first.at) {
		*f = fixed{limit: r.Limit}
	}
	if f.not || r.Limit != f.limit || r.Reset <= 0 && r.Period <= 0 && f.hi.IsZero() {
		return false
	}
	left, used := r.Reset, float64(r.Limit-r.Remaining)
	if left <= 0 && r.ResetSlack == 0 { // not stated
		left = cmp.Or(r.Period, f.period)
	}
	at := now
	if !r.At.IsZero() {
		at = r.At
	}
	stated := at.Add(left)
	lo, hi := next.at.Add(left-time.Second), stated.Add(r.ResetSlack+turnMargin)
	if r.Reset <= 0 && r.ResetSlack == 0 || lo.Before(next.at) {
		lo = next.at
	}
	switch {
	case next.at.Before(ended), hi.Before(f.lo) && !f.hi.IsZero():
		return f.is
	case f.hi.IsZero() && r.Reset <= 0 && r.Period <= 0: // it is over, if it is one
		return false
	case f.hi.IsZero() || lo.After(f.hi) || !ended.IsZero() && f.first.at.Before(ended) && next.left > f.least+cost:
		whole := used <= float64(open)*cost+near+taken*float64(r.Limit)
		if !ended.IsZero() && !whole && !f.exact {
			f.partial++
		}
		f.begin(r, next, stated, lo, hi, used <= float64(open+1)*cost)
		f.reset, f.near, f.exact = left, near, whole && !ended.IsZero()
		if f.partial > 1 || f.partial > 0 && f.period >= leastRefill && used > float64(r.Limit)/2 {
			f.not, f.is = true, false
		}
		return false
	}
	if lo.After(f.lo) {
		f.lo = lo
	}
	if hi.Before(f.hi) {
		f.hi = hi
	}
	if !f.opened.IsZero() && next.at.Before(f.opened) {
		f.opened = next.at
	}
	f.stated, f.least = stated, min(f.least, next.left)
	if r.Remaining == 0 && f.first.at.Before(ended) && !next.at.Before(f.lo) { // it should have been over
		f.postpone(next.at)
	}
	f.judge(r, next, left, cost, near, used)
	return false
}

// postpone notes that the present window was not over at an instant at which it was expected to be.
func (f *fixed) postpone(at time.Time) {
	f.late = min(max(2*f.late, firstLate), longestLate)
	f.lo = at.Add(f.late)
}

// begin starts a window with its first header. own is whether all of its requests may be of this gate.
func (f *fixed) begin(r *limits.Reading, first reference, stated, lo, hi time.Time, own bool) {
	before := *f
	*f = fixed{limit: r.Limit, is: before.is || r.Window, period: before.period, partial: before.partial, lo: lo, hi: hi, stated: stated, first: first, least: first.left}
	if own {
		f.opened = first.at
	}
	switch usual := usual(lo.Sub(first.at), hi.Sub(first.at), stated.Sub(first.at)); {
	case r.Period > 0:
		f.period = r.Period
	case own && usual > 0:
		f.period = usual
	case !before.hi.IsZero() && !own:
		f.period = max(f.period, stated.Sub(before.stated))
	case own || f.period == 0:
		f.period = max(stated.Sub(first.at), time.Second)
	}
}

// judge decides by two headers of one window whether it is a window. A bucket refills meanwhile, and the time until it is full grows with
// the amount that is used.
func (f *fixed) judge(r *limits.Reading, next reference, left time.Duration, cost, near, used float64) {
	span := next.at.Sub(f.first.at)
	if span < 0 {
		return
	}
	if next.left-f.first.left+next.spent-f.first.spent-near-f.near > 3*cost+0.02*float64(r.Limit) {
		f.not, f.is = true, false
		return
	}
	before := float64(r.Limit) - f.first.left
	bucket := time.Duration(float64(f.reset)*used/max(before, 1)) - span
	if off := left - (f.reset - span); used >= 2*before+2*cost && bucket-left > 2*r.ResetSlack+f.reset/2 && off.Abs() <= r.ResetSlack+f.reset/10 {
		f.is = true
	}
}

// usual returns the usual period within bounds that is nearest to a time; 0 if there is none.
func usual(lo, hi, to time.Duration) (p time.Duration) {
	for _, each := range periods {
		if each > lo && each <= hi && (p == 0 || (each-to).Abs() < (p-to).Abs()) {
			p = each
		}
	}
	return p
}

// refers returns the time to which the limit in a header refers; 0 is unknown. The resets of a bucket in whole seconds show none.
func (f *fixed) refers(r *limits.Reading) time.Duration {
	if r.Period == 0 && (f.is || r.Window && f.period >= leastRefill) {
		return f.period
	}
	return r.Period
}

// ends returns the expected end of the present window.
func (f *fixed) ends() time.Time {
	e := f.stated
	if !f.opened.IsZero() && f.period > 0 {
		e = f.opened.Add(f.period)
	}
	if e.After(f.hi) {
		e = f.hi
	}
	if e.Before(f.lo) {
		e = f.lo
	}
	return e.Add(turnMargin)
}

// windowed reports whether a limit is a fixed window. The levels of a shared ledger refill all the time.
func (b *buckets) windowed(each *bucket) bool {
	return each.header.fixed.is && !b.remote()
}

// readWindow corrects the bucket of a fixed window by a header of the present window. The remainder only falls until the window ends, so that
// the smallest one counts all requests whose headers have come. It may count the others or not.
func (b *buckets) readWindow(now time.Time, t *Ticket, r *limits.Reading) {
	d := r.Dimension
	each, left := b.each[d], float64(r.Remaining)
	each.shown, each.header.seen, each.header.capRead, each.probe = true, true, true, probe{}
	each.author, each.doubt, each.mark = 0, nil, 0
	each.cap = float64(r.Limit)
	level := each.header.fixed.least - b.unproduced(t, d)
	for _, other := range b.lane.gate.sorted {
		if other == b.lane || other.buckets.each[d] == each {
			level -= float64(other.flight.unread) * max(other.buckets.mean[d], 1)
		}
	}
	b.correct(now, d, limits.Correction{Mark: b.book.budgets[d].spent, Lo: level, Hi: level, Left: timeLeft(now, each.header.fixed.ends())})
	b.share(now, t, d, left)
	if l := b.lane; l.turning && left > 0 {
		l.cool.probing, l.turning = false, false
	}
}

// bare reports whether rejections alone have shown that a limit is a fixed window.
func (b *buckets) bare(each *bucket) bool { return b.windowed(each) && !each.header.seen }

// shut notes that a request found a fixed window used up: it is whole again when it ends. A window that should have been over is not. It
// returns false if the rejection comes too early for a window that only rejections have shown: it is none.
func (b *buckets) shut(now time.Time, t *Ticket, o *limits.Outcome, d limits.Dimension) bool {
	each, bare := b.each[d], b.bare(b.each[d])
	f, bud := &each.header.fixed, b.book.budgets[d]
	if t.sent.Before(bud.ended) {
		return true
	}
	ends, level := bud.ends, b.book.level(now, d)
	switch used := each.cap - level; {
	case bare && b.lane.turning && t.epoch == b.lane.cool.epoch, !ends.After(now): // no header said so
		f.postpone(now)
		ends = now.Add(max(f.late, o.Wait))
	case bare && (level > t.cost[d]+taken*each.cap || used < float64(f.limit)/2):
		if f.not, f.is = true, false; used < 3*t.cost[d] { // a bucket that refills slowly
			each.Value = 0
		}
		each.cap = max(1, startCap*each.rate())
		b.bound(now, d, math.Inf(-1), 0)
		return false
	case bare:
		each.setWindow(min(each.cap, used), bud.period)
		each.probe.excess, each.trust = 0, min(4*each.trust, maxSpan)
	}
	each.rejected, each.mark = now, 0
	b.correct(now, d, limits.Correction{Mark: bud.spent, Lo: math.Inf(-1), Hi: 0, Left: timeLeft(now, ends)})
	return true
}

// setWindow sets the amount of a window.
func (b *bucket) setWindow(n float64, period time.Duration) {
	b.cap = max(1, n)
	b.Value = b.cap * window(b.Dimension) / period.Seconds()
}

// turned reports, once for each window, whether it has ended by expectation only: the next request shows whether it has. After a window that
// ended as expected, the next end is certain. A window of which no header speaks is tested for more, like other measured limits.
func (b *buckets) turned(now time.Time) (turned bool) {
	for _, each := range b.perMinute() {
		bud := b.book.budgets[each.Dimension]
		if bud.period == 0 || !bud.over {
			continue
		}
		bud.over = false
		turned = turned || !each.header.fixed.exact
		if p := &each.probe; b.bare(each) && now.Sub(each.rejected) > each.trust {
			p.excess = min(max(2*p.excess, firstExcess), 1)
			each.setWindow(math.Ceil(each.cap*(1+p.excess)), bud.period)
			b.bound(now, each.Dimension, each.cap, each.cap)
		}
	}
	return turned
}

// timeLeft is the time until an instant; 0 if there is none.
func timeLeft(now, at time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return at.Sub(now)
}
