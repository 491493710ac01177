package gate

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// met returns the limit that a rejection is about. It is the named one, unless another had much less room when the request was sent.
// If none is named, it is the one with the least room, if that was less than for two such requests. Otherwise it is AnyDimension.
func (b *buckets) met(t *Ticket, o *limits.Outcome) limits.Dimension {
	d := o.Dimension
	if d == limits.AnyDimension {
		d = exhausted(o.Readings)
	}
	if d == limits.Concurrency {
		return limits.AnyDimension
	}
	if d >= limits.NumDimensions {
		d = limits.AnyDimension
	}
	if b.each[d].Value == float64(o.Limit) && o.Used > 0 && o.Used <= o.Limit && o.Used+o.Requested > o.Limit {
		return d // its figures explain it
	}
	room, tight, shown := t.room, limits.AnyDimension, limits.AnyDimension
	for i := range o.Readings { // they show the instant of the rejection
		if r := &o.Readings[i]; r.Dimension < limits.NumDimensions && b.each[r.Dimension].header.seen && r.Remaining < r.Limit {
			room[r.Dimension] = float32(max(0.01, float64(r.Remaining-r.Slack)/max(1, t.cost[r.Dimension])))
			switch {
			case room[r.Dimension] < 2:
				shown = r.Dimension
			case r.Dimension == d: // it names a limit that it shows to have room
				d = limits.AnyDimension
			}
		}
	}
	for e := limits.Requests; e < limits.NumDimensions; e++ {
		if room[e] > 0 && (tight == limits.AnyDimension || room[e] < room[tight]) {
			tight = e
		}
	}
	if o.Limit > 0 && !b.plausible(t, d, float64(o.Limit)) {
		d = limits.AnyDimension
	}
	switch {
	case d != limits.AnyDimension && room[d] == 0 && shown != limits.AnyDimension: // it names an unknown limit, and shows a known one without room
		return shown
	case d != limits.AnyDimension && !(room[d] > 5*room[tight] && room[d] > 2):
		return d
	case tight != limits.AnyDimension && room[tight] < 2:
		return tight
	}
	return limits.AnyDimension
}

// plausible reports whether a limit may be that low, by the cost of t and the amounts that were accepted before it.
func (b *buckets) plausible(t *Ticket, d limits.Dimension, limit float64) bool {
	if d == limits.AnyDimension || perDay(d) {
		return true
	}
	switch d {
	case limits.Tokens:
		if limit < max(b.each[limits.InputTokens].Value, b.each[limits.OutputTokens].Value) {
			return false
		}
		fallthrough
	case limits.InputTokens: // a larger request would never fit
		if limit < float64(t.Call.Cost.Input) {
			return false
		}
	}
	return limit >= b.each[d].Value/5 && limit >= t.cost[d]/5 && limit >= b.largest[d] &&
		t.own[d] <= limit*(1.1+t.sent.Sub(b.opened).Seconds()/window(d))+3*t.cost[d]
}

// exhausted returns the dimension of the only reading without remaining units.
func exhausted(readings []limits.Reading) (found limits.Dimension) {
	for i := range readings {
		if r := &readings[i]; r.Remaining == 0 && r.Limit > 0 {
			if found != limits.AnyDimension {
				return limits.AnyDimension
			}
			found = r.Dimension
		}
	}
	return found
}

// explain applies a rejection that only a rate limit can explain, and reports whether one does, and which.
func (b *buckets) explain(now time.Time, t *Ticket, o *limits.Outcome) (d limits.Dimension, ok bool) {
	d = b.met(t, o)
	if b.explained >= maxExplained {
		if d != limits.AnyDimension && b.each[d].Source == limits.SourceMeasured && !b.remote() { // it has not filled up meanwhile
			b.bound(now, d, math.Inf(-1), 0)
		}
		return limits.AnyDimension, false
	}
	if d == limits.AnyDimension {
		d = b.suspect(now, t)
	}
	if d == limits.AnyDimension {
		return d, false
	}
	row := b.explained
	if t.sent.After(b.explainedAt) { // otherwise it was sent before the correction
		b.explainedAt = now
		row++
	}
	ok = b.emptied(now, t, o, d)
	b.explained = row
	return d, ok
}

// countRejected adds the cost of a rejected request to the totals.
func (b *buckets) countRejected(t *Ticket) {
	for d, c := range &t.cost {
		b.debt[d] += c
		b.rejected[d] += c
	}
}

// endRow ends a row of rejections, if t was sent after the last of them.
func (b *buckets) endRow(t *Ticket) {
	if t.sent.After(b.explainedAt) {
		b.explained, b.debt = 0, limits.Vector{}
	}
}

// emptied corrects a bucket that had no room for t, and reports whether that is possible. The first rejection after a correction shows the
// level. A rejection of a request that was sent before the correction shows the same again.
func (b *buckets) emptied(now time.Time, t *Ticket, o *limits.Outcome, d limits.Dimension) bool {
	each := b.each[d]
	switch {
	case each.rejected.IsZero() && !each.header.seen && !perDay(d):
		each.author, each.before = t.item(), each.Limit
	case each.author != t.item():
		each.author = 0
	}
	if b.windowed(each) && b.shut(now, t, o, d) {
		return true
	}
	stated := b.stated(now, t, o, d)
	g := b.lane.gate
	if each = b.each[d]; g.joints[d] == nil && len(g.sorted) > 1 && each.Value > 0 && each.Value == limitOf(g.cfg.Account, d) && !each.header.seen {
		g.join(now, d, b, nil) // the limit that is configured for all lanes together may be the provider's
	}
	cost := max(1, t.cost[d])
	passed, from, level, exact := b.evidence(t, o, d, cost)
	full := b.book.level(now, d)
	if d == limits.Tokens && exact && !each.header.seen {
		b.findCharge(now, t, level)
	}
	again := !t.sent.After(each.rejected)
	if again && !exact {
		return true
	}
	doubts := &doubt{before: *each, sent: t.sent, till: now, cost: cost}
	each.paced = each.paced || each.ceiling > 0 && each.Value >= each.ceiling && g.cfg.burst() == 0
	for i := range b.successes {
		if s := &b.successes[(b.success+i)%len(b.successes)]; !exact && doubts.disproved(s.sent, s.cost[d], each.rate()) {
			return true
		}
	}
	if !again {
		if each.header.seen {
			each.header.unforeseen(now, each.cap >= 10*cost && b.book.level(now, d) > 1.5*cost)
		}
		waited := t.sent.Sub(each.last.at).Seconds() * each.rate()
		if !each.last.at.IsZero() && each.Value > 0 && passed-each.last.spent < cost && waited > 1.5*max(cost, b.debt[d]) {
			return false // it had room by then, even if rejected requests were charged
		}
		used := each.cap - b.book.level(now, d)
		if b.unproduced(t, d) > 0 {
			used -= b.openOutput
		}
		if each.measure(emptied{t.sent, passed, b.rejected[d]}, cost, used, stated, b.charged) {
			b.changed(now, d)
		}
		each.shown, each.rejected = true, now
		each.probe = probe{at: now.Add(each.trust)}
	}
	each.mark = from
	b.correct(now, d, limits.Correction{Mark: from, Lo: level, Hi: level})
	each.doubt = nil
	if drop := full - b.book.level(now, d); !again && !b.remote() && drop > cost {
		doubts.before.doubt, doubts.drop = nil, drop
		each.doubt = doubts
	}
	return true
}

// evidence returns what t's rejection shows of a bucket: its level once the amount from was charged, whether the response states
// it exactly, and the amount that was accepted before.
func (b *buckets) evidence(t *Ticket, o *limits.Outcome, d limits.Dimension, cost float64) (passed, from, level float64, exact bool) {
	from = t.mark[d]
	passed = from
	switch {
	case b.charged:
	case b.remote():
		passed -= b.rejected[d]
	default:
		from -= t.cost[d]
		passed = from
	}
	level, exact = b.level(t, d, o, cost)
	switch {
	case exact && o.Wait > 0: // the level of now
		from = b.book.budgets[d].spent
		if b.unproduced(t, d) > 0 {
			level -= b.openOutput // it will be charged
		}
	case !exact:
		level -= b.unproduced(t, d) / 2 // about half of it was charged by then
		from += t.later(d, &b.spent)    // these requests may have arrived before it
	}
	return passed, from, level, exact
}

// stated believes the limit that a rejection states, and reports whether it is plausible.
func (b *buckets) stated(now time.Time, t *Ticket, o *limits.Outcome, d limits.Dimension) bool {
	refill := t.cost[d] / float64(o.Limit) * window(d)
	switch {
	case o.Limit <= 0 || d != o.Dimension || !b.plausible(t, d, float64(o.Limit)):
		return false
	case o.Wait > 0 && refill > slowRefill+5*o.Wait.Seconds(): // a request would wait far longer than the rejection states
		return false
	}
	if o.Requested > 0 {
		b.reserves.requested(d, o.Requested, t.Call.Cost)
	}
	if !b.each[d].header.seen {
		b.believe(now, t, limits.Limit{Dimension: d, Value: float64(o.Limit), Source: limits.SourceRejection, At: t.sent,
			Confidence: confidenceOf(firstStated)})
	}
	return true
}

// level returns the level of a bucket at a rejection, by the figures of the rejection, and whether they are exact. Without figures it is
// below the request. A stated wait is the time in which the missing part flows in. A stated use counts only if it explains the rejection. If
// rejections are charged, each one lowers the level.
func (b *buckets) level(t *Ticket, d limits.Dimension, o *limits.Outcome, cost float64) (level float64, exact bool) {
	each, own := b.each[d], 0.0
	if b.explained > 0 && t.sent.After(each.rejected) && !t.sent.Before(b.lane.cool.stated) && (!b.lane.cool.stated.IsZero() || each.Value > 0 && each.Source != limits.SourceMeasured) { // it had waited for its turn: earlier rejections were charged
		b.charged = true
	}
	if b.charged {
		own = cost
	}
	switch {
	case o.Wait > 0 && o.Wait%time.Second != 0 && d == o.Dimension:
		rate := min(each.rate(), b.book.budgets[d].rate) // the ledger refills no faster than a configured limit
		level = max(cost, float64(o.Requested)) - rate*o.Wait.Seconds() - own
		return max(level, -60*rate), true
	case o.Used+o.Requested > o.Limit && o.Used > 0 && d == o.Dimension:
		return max(float64(o.Limit-o.Used), -each.Value) - own, true
	case b.explained > 0 && b.charged:
		return max(-b.debt[d], -max(each.cap, cost)), false
	}
	return -own, false
}

// about returns a rejection with the limit that it is about, as far as that is known before it is explained.
func (l *lane) about(t *Ticket, o *limits.Outcome) *limits.Outcome {
	known := *o
	switch {
	case l.far(t, o):
		known.Dimension, known.Limit, known.Used, known.Requested, known.Readings = limits.AnyDimension, 0, 0, 0, nil
	case l.slots.rate && o.Kind == limits.RateLimit && o.Dimension == limits.AnyDimension:
		known.Dimension = limits.Requests
	default:
		return o
	}
	return &known
}

// far reports whether a rejection says that a limit stays used up for longer than longWait, while no other item was rejected since a request
// was accepted. Then only its wait counts, which is tested.
func (l *lane) far(t *Ticket, o *limits.Outcome) bool {
	if n := len(l.rejected.pending); n > 1 || n == 1 && l.rejected.pending[t.item()].IsZero() {
		return false
	}
	for i := range o.Readings {
		if r := &o.Readings[i]; r.Remaining == 0 && r.Limit > 0 && r.Dimension < limits.NumDimensions {
			each := l.buckets.each[r.Dimension]
			return r.Reset > longWait && !(each.header.seen && each.Value == float64(r.Limit))
		}
	}
	return perDay(o.Dimension) || o.Dimension != limits.AnyDimension && o.Wait > longWait
}
