package gate

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

const (
	paceShared = 0.99                 // share of a rate that a shared ledger grants: requests do not arrive in the order of the grants
	pacePaced  = 0.98                 // share of a configured limit that is used after a rejection within it, without bursts
	minDrain   = 3.0                  // minimum pace, as a multiple of the rate, at which a bucket of unknown content is emptied
	drainTime  = 4.0                  // seconds in which a bucket of configured size is emptied
	drainGrain = 5 * time.Millisecond // a request that is due within it is sent at once

	startCap = 1.0  // minimum size, in seconds of refill, of a bucket that was found empty
	maxCap   = 60.0 // initial size, in seconds of refill, of a bucket of unknown size

	drainAlone  = 3 * time.Second        // time for which requests wait before the pace of emptying doubles
	drainDouble = 2 * time.Second        // time in which that pace doubles
	firstDoubt  = 5 * time.Second        // time after the first unforeseen rejection in which headers raise no level
	firstStated = 4 * time.Second        // minimum trust in a stated rate that a further rejection confirms
	minTrust    = 500 * time.Millisecond // minimum trust in a measured rate
	maxSpan     = 5 * time.Minute        // maximum trust, and the maximum time over which a rate is measured
	growEvery   = 100 * time.Millisecond // interval in which the excess grows
	firstExcess = 0.02                   // initial excess, as a share of the rate
	maxExcess   = 100                    // maximum excess, as a share of the rate
	doubleEvery = 500 * time.Millisecond // time in which the excess doubles
)

// bucket is the model of one of the provider's rate limits: its limit, its size, and the evidence for both. The level is in the
// Book. Lanes that share a limit share its bucket.
type bucket struct {
	limits.Limit               // Value is 0 while it is unknown
	ceiling      float64       // the configured limit; 0 is none
	promise      promise       // it, with its period; none if it is per day
	paced        bool          // a request was rejected within it: the provider counts in another way
	trust        time.Duration // time after a rejection in which the limit is not exceeded
	cap          float64       // the level of a full bucket

	drain  drain
	shown  bool // responses have shown the level
	header headerView
	probe  probe

	rejected time.Time    // arrival of the last rejection that corrected the level
	mark     float64      // amount spent before the last correction of the level by a rejection; 0 after a header
	author   uint64       // the only item, by Ticket.item, whose rejections are evidence for it; 0 is several, or none
	before   limits.Limit // the limit before those rejections
	empty    emptied      // the rejection with which measuring started
	last     emptied      // the last rejection
	doubt    *doubt       // about the last correction of the level by a rejection; nil is none
}

// drain sends requests one by one: see bucket.spaced.
type drain struct {
	pace float64   // multiple of the rate at which a bucket of unknown content is emptied
	next time.Time // when the next request may be sent
}

// probe exceeds a rate of which no header speaks.
type probe struct {
	at     time.Time // when the excess grows next
	excess float64   // share of the rate
}

// perDay reports whether a limit refers to a day instead of a minute.
func perDay(d limits.Dimension) bool { return d.Window() > time.Minute }

// window returns the time in seconds to which a limit refers.
func window(d limits.Dimension) float64 {
	if perDay(d) {
		return 86400
	}
	return 60
}

// rate is the provider's refill per second.
func (b *bucket) rate() float64 { return b.Value / window(b.Dimension) }

// whole lets a configured window be used at once.
func (b *bucket) whole() {
	if k := &b.promise; k.n > 0 && k.period != b.Dimension.Window() && b.Source == limits.SourceConfigured {
		b.cap, b.drain.pace = k.n, math.Inf(1)
	}
}

// spaced returns the pace in units per second at which requests are sent one by one: a bucket of unknown content is emptied at it, and after
// a rejection within a configured limit that limit is used at it, unless headers show the level. 0 is none.
func (b *bucket) spaced() float64 {
	switch {
	case b.paced && !b.header.seen:
		return pacePaced * b.ceiling / window(b.Dimension)
	case b.Value > 0 && !b.shown:
		return b.rate() * b.drain.pace
	}
	return 0
}

// believe updates the limit by evidence, and reports whether the limit changed. Evidence that is older than the known one changes
// nothing. A configured limit replaces one that the provider stated only if it is lower. The size changes with the limit unless a header
// showed it.
func (b *bucket) believe(l limits.Limit) (changed bool) {
	configured, stated := l.Source == limits.SourceConfigured, b.Source == limits.SourceHeader || b.Source == limits.SourceRejection
	switch {
	case b.Value == 0:
	case configured && stated && l.Value >= b.Value, !configured && l.At.Before(b.At):
		return false
	case l.Value == b.Value && !configured:
		b.At = l.At
		if b.Source != limits.SourceConfigured {
			b.Source, b.Confidence = l.Source, max(b.Confidence, l.Confidence)
		}
		return false
	case !b.header.capRead:
		b.cap *= l.Value / b.Value
	}
	b.Limit = l
	b.cap = min(b.cap, max(1, l.Value))
	b.drain.next = time.Time{} // requests that wait do so at the new rate
	return true
}

// exceed raises the pace of a bucket that holds requests back, and reports whether the rate changed. A bucket of unknown content is emptied
// faster: at once if an earlier process measured the rate. A known rate is exceeded as soon as the trust after the last rejection is over. So
// is the rate of a bucket of unknown content that should be empty.
func (b *bucket) exceed(now time.Time, empty bool) bool {
	if b.Value == 0 || b.header.seen || b.header.fixed.is || now.Before(b.probe.at) {
		return false
	}
	alone, double, first := drainAlone, drainDouble, firstExcess
	if b.Source == limits.SourceMeasured {
		alone, double = 0, doubleEvery
	}
	if b.probe.at.IsZero() {
		b.probe.at = now.Add(alone)
		return false
	}
	elapsed := min(now.Sub(b.probe.at)+growEvery, time.Second)
	b.probe.at = now.Add(growEvery)
	if !b.shown {
		if !empty {
			b.drain.pace *= math.Exp2(elapsed.Seconds() / double.Seconds())
			return false
		}
		first = max(first, b.few())
	}
	if b.Source == limits.SourcePublished { // it needs no test: a rejection would show that it is too high
		return false
	}
	b.probe.excess = min(max(b.probe.excess, first)*math.Exp2(elapsed.Seconds()/doubleEvery.Seconds()), maxExcess)
	return true
}

// few is the multiple of the rate at which a few requests per second are sent.
func (b *bucket) few() float64 { return startSlots / b.rate() }

// trusted sets the trust in the limit after a rejection that agrees with it, and the confidence of one that was learned from rejections.
func (b *bucket) trusted(at time.Time, trust time.Duration) {
	b.trust = trust
	if b.Source == limits.SourceMeasured || b.Source == limits.SourceRejection {
		b.At, b.Confidence = at, confidenceOf(trust)
	}
}

// maxTrust is the maximum trust. A configured limit is tested rarely, because its guard never sends more.
func (b *bucket) maxTrust() time.Duration {
	if b.ceiling > 0 && b.Value >= b.ceiling {
		return 24 * time.Hour
	}
	return maxSpan
}

// retest has a measured rate tested at once.
func (b *bucket) retest(now time.Time) {
	if b.Source == limits.SourceMeasured {
		b.trust, b.probe.at, b.empty = minTrust, now, emptied{}
	}
}

// emptied is the instant at which a rejected request was sent that found a bucket empty, and the totals spent and rejected before.
type emptied struct {
	at              time.Time
	spent, rejected float64
}

// rates bounds a rate by the amount that a bucket had between two rejections, rejected requests included if they are charged.
func (e *emptied) rates(next emptied, cost float64, charged bool) (low, high float64) {
	span := next.at.Sub(e.at).Seconds()
	if charged {
		cost = max(cost, next.rejected-e.rejected)
	}
	return (next.spent - e.spent) / span, (next.spent - e.spent + cost) / span
}

// measure notes that a request of that cost found the bucket empty, and reports whether the limit changed. The amount accepted between two
// such rejections bounds the rate. used is the amount that the model has as missing from a full bucket. A limit that agrees with the bounds
// is trusted for longer.
func (b *bucket) measure(at emptied, cost, used float64, stated, charged bool) (changed bool) {
	span, passed := at.at.Sub(b.empty.at), at.spent-b.empty.spent
	if b.empty.at.IsZero() || span > maxSpan {
		if !b.shown && passed > 0 { // the whole content was used
			b.cap = max(1, startCap*b.rate(), used)
			if b.Value > 0 {
				b.cap = min(b.cap, max(1, b.Value))
			}
		}
		b.trust, b.empty, b.last = minTrust, at, at
		return false
	}
	low, high := b.empty.rates(at, cost, charged)
	if recent, most := b.last.rates(at, cost, charged); at.spent-b.last.spent >= 3*cost && (recent > high || most < low) { // it has changed
		low, high, b.empty = recent, most, b.last
	}
	b.last = at
	rate := b.rate()
	switch {
	case b.header.seen: // it shows the limit
	case stated:
		b.trusted(at.at, min(max(4*b.trust, firstStated), maxSpan))
	case rate >= 0.99*low && (rate <= 1.01*high || b.probe.excess > 0):
		b.trusted(at.at, min(max(4*b.trust, span), b.maxTrust()))
	case passed < cost || passed < 3*cost && rate > 0: // too little: another limit may have been met
	default:
		b.trust = max(minTrust, span/2)
		limit := (low + cost/2/span.Seconds()) * window(b.Dimension)
		if charged {
			limit = high * window(b.Dimension)
		}
		b.believe(limits.Limit{Dimension: b.Dimension, Value: limit, Source: limits.SourceMeasured, At: at.at, Confidence: confidenceOf(b.trust)})
		b.cap = max(1, startCap*b.rate(), b.cap)
		return true
	}
	return false
}

// trustUnit is the time for which a limit of confidence 1/2 is not exceeded.
const trustUnit = 500 * time.Millisecond

// confidenceOf returns the confidence of a limit that is not exceeded for that time after it was met: time ÷ (time + 0.5 s).
func confidenceOf(trust time.Duration) float64 {
	return trust.Seconds() / (trust + trustUnit).Seconds()
}
