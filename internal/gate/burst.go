package gate

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

const (
	leastIdle    = time.Second     // time without a request after which the next one begins a burst
	longestBurst = 5 * time.Second // maximum time until the first rejection for which a window is taken to begin with the burst
	leastWindow  = 5               // minimum of requests in a window that is found by rejections
)

// instants are the ages of a burst at which probes are sent: the usual lengths of windows, and some between them for windows of the clock.
var instants = [...]time.Duration{time.Second, 2 * time.Second, 3 * time.Second, 5 * time.Second, 8 * time.Second, 10 * time.Second,
	12 * time.Second, 15 * time.Second, 20 * time.Second, 30 * time.Second, time.Minute}

// burst is the requests since the last silence. If all of them are accepted, and none for some time after them, they have used up a fixed
// window, though no header speaks of it.
type burst struct {
	opened  time.Time     // departure of the first one
	latest  time.Time     // departure of the newest one
	before  float64       // amount that was accepted before
	known   bool          // the window began with it
	probes  int           // probes that were rejected since the first rejection
	refused time.Time     // departure of the last rejected request
	period  time.Duration // length of the window that the last silence suggested
	n       float64       // the amount of that window
}

// sent notes the departure of a request outside of a pause. accepted is the amount that was accepted before it.
func (u *burst) sent(now time.Time, accepted float64) {
	if now.Sub(u.latest) >= leastIdle {
		u.opened, u.before = now, accepted
	}
	u.latest = now
}

// rejected notes a rejection that starts a pause. again is whether its request was a probe.
func (u *burst) rejected(now, sent time.Time, again bool) {
	if u.refused = sent; again {
		u.probes++
		return
	}
	u.probes, u.known = 0, now.Sub(u.opened) <= longestBurst
}

// next returns the time until the next probe: at least wait, and until an age at which a window may end.
func (u *burst) next(now time.Time, wait time.Duration) time.Duration {
	if !u.known {
		return wait
	}
	age := now.Sub(u.opened)
	for _, each := range instants {
		late := min(each/64, firstLate) + turnMargin // the first request opens the window when it arrives, and may have been slow
		if left := each + late - age; left >= wait {
			if left <= max(time.Second, age) {
				return left
			}
			break
		}
	}
	return wait
}

// silenceOver takes in that the first probe of a pause was accepted: a fixed window may have ended.
func (l *lane) silenceOver(now time.Time, t *Ticket) {
	const d = limits.Requests
	b, u := &l.buckets, &l.cool.burst
	each, last, before := b.each[d], *u, t.own[d]-t.cost[d]
	u.opened, u.latest, u.before, u.probes = t.sent, t.sent, before, 0
	f := &each.header.fixed
	switch n := before - last.before; {
	case b.bare(each):
		if l.turning {
			l.turning, l.cool.probing = false, !f.exact
			f.exact = true
		}
	case !last.known, n < leastWindow, f.not, b.remote(), each.header.seen, each.ceiling > 0, each.Value > 0 && each.Source != limits.SourceMeasured:
	default:
		lo := last.refused.Sub(last.opened)
		u.n, u.period = n, usual(lo, maxSpan, lo)
		again := u.period == last.period && math.Abs(n-last.n) <= taken*n
		if u.period > 0 && (last.probes > 1 || again) {
			b.window(now, t, n, u.period, last)
		}
	}
}

// window believes a fixed window of n requests, of which t is the first one. The one before began with a burst, and was not over when the last
// probe was sent. One request tests that it is used up.
func (b *buckets) window(now time.Time, t *Ticket, n float64, period time.Duration, last burst) {
	const d = limits.Requests
	each := b.each[d]
	f := &each.header.fixed
	*f = fixed{is: true, untested: true, limit: int64(n), period: period, stated: t.sent.Add(period)}
	if last.opened.Add(period).After(t.sent) { // it is one of the clock
		f.stated = last.refused.Add(period)
	}
	each.believe(limits.Limit{Dimension: d, Value: n * window(d) / period.Seconds(), Source: limits.SourceMeasured, At: t.sent, Confidence: confidenceOf(minTrust)})
	each.cap, each.shown, each.empty, each.last, each.probe = n, true, emptied{}, emptied{}, probe{}
	each.trust, each.rejected = 2*period, now
	level := n - t.cost[d]
	b.correct(now, d, limits.Correction{Mark: t.mark[d], Lo: level, Hi: level, Left: timeLeft(now, f.stated)})
	b.changed(now, d)
}
