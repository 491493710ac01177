package gate

import (
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// doubt is a rejection that lowered the level, while it is not certain that the bucket was empty.
type doubt struct {
	before     bucket    // without the rejection
	sent, till time.Time // departure and arrival of the rejection
	cost, drop float64   // cost of its request, and the amount by which it lowered the level
	accepted   float64   // accepted amount of requests that were sent meanwhile
	latest     time.Time // departure of the last of them
}

// disproved counts an accepted request, and reports whether more was accepted than an empty bucket allows.
func (q *doubt) disproved(sent time.Time, cost, rate float64) bool {
	if !sent.After(q.sent) || sent.After(q.till) {
		return false
	}
	q.accepted += cost
	if sent.After(q.latest) { // responses arrive in any order
		q.latest = sent
	}
	return q.accepted > 3*q.cost+1.5*rate*q.latest.Sub(q.sent).Seconds()
}

// success is a request that was accepted.
type success struct {
	sent time.Time
	cost limits.Vector
}

// disprove takes corrections of levels back if more than an empty bucket holds was accepted just after the rejection. A limit that a
// rejection stated, or that no response has shown since the lane was opened, is forgotten if more than it allows was accepted.
func (b *buckets) disprove(now time.Time, t *Ticket) {
	b.successes[b.success] = success{t.sent, t.cost}
	b.success = (b.success + 1) % len(b.successes)
	for _, each := range b.perMinute() {
		old := each.Source.Observed() && each.At.Before(b.opened)
		if (each.Source == limits.SourceRejection || old) && !b.plausible(t, each.Dimension, each.Value) {
			b.replace(now, each, each.configured(), each.header.ignored)
		}
		if q := each.doubt; q != nil && q.disproved(t.sent, t.cost[each.Dimension], each.rate()) {
			level := b.book.level(now, each.Dimension) + q.drop
			*each = q.before
			b.bound(now, each.Dimension, level, level)
		}
	}
}

// replace forgets all evidence for a limit, and believes another one, or none. Headers that state the ignored limit are about something else.
func (b *buckets) replace(now time.Time, each *bucket, by limits.Limit, ignored float64) {
	if j := b.lane.gate.joints[by.Dimension]; j != nil && j.bucket == each {
		b.lane.gate.separate(now, by.Dimension, b)
		each = b.each[by.Dimension]
	}
	*each = bucket{Limit: by, ceiling: each.ceiling, promise: each.promise, header: headerView{ignored: ignored}}
	if each.Value > 0 {
		b.fill(now, by.Dimension)
	} else {
		b.resize(now, by.Dimension)
	}
	b.changed(now, by.Dimension)
}

// configured returns the configured limit of a bucket. Its value is 0 if there is none.
func (b *bucket) configured() limits.Limit {
	if b.ceiling == 0 {
		return limits.Limit{Dimension: b.Dimension}
	}
	return limits.Limit{Dimension: b.Dimension, Value: b.ceiling, Source: limits.SourceConfigured, Confidence: 1}
}

// suspect returns the limit that a rejection shows to be used up although its level shows room; AnyDimension if there is none. It is a
// window that rejections alone have shown; or the measured rate, if no other request was in flight; or a limit of which headers state several
// times as much as configured, as they may refer to a day.
func (b *buckets) suspect(now time.Time, t *Ticket) limits.Dimension {
	if each := b.each[limits.Requests]; b.bare(each) || t.open == 1 && each.Source == limits.SourceMeasured && !b.remote() {
		return limits.Requests
	}
	for _, each := range b.perMinute() {
		if each.ceiling > 0 && each.Source == limits.SourceHeader && each.Value > manyTimes*each.ceiling && !b.remote() {
			b.replace(now, each, each.configured(), each.header.stated)
			return each.Dimension
		}
	}
	return limits.AnyDimension
}

// acquit forgets the limits for which the rejections of an item that is at fault itself are the only evidence.
func (b *buckets) acquit(now time.Time, t *Ticket) {
	for _, each := range &b.each {
		if each.author == t.item() && !b.remote() {
			b.replace(now, each, each.before, each.header.ignored)
		}
	}
}
