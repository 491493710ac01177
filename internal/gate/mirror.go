package gate

import (
	"math"
	"time"
)

const (
	paceHeaders = 0.99 // part of a rate that is used while headers correct the mirror,
	paceBlind   = 0.97 // and after a refusal while nothing does: 1.0 costs throttles on buckets of one
	paceUntried = 0.99 // before that refusal

	dripPace = 1.25                    // a bucket that nothing is known of is given the rest of its first second at this pace,
	dripTime = 3200 * time.Millisecond // until then: (1 s − 0.2 s) / (1.25 − 1)

	startLevel = 0.2 // a bucket starts with so many seconds of refill,
	startCap   = 1.0 // and is believed to hold so many

	lateMargin    = 100 * time.Millisecond // a call may have reached the provider so much later than it was sent,
	longestMargin = 10 * time.Second       // and what a refusal makes of that margin at most
	earlyMargin   = 20 * time.Millisecond  // or others sent so much after it before it
	wakeMargin    = 100 * time.Microsecond // a budget is asked again so much after it should suffice

	firstMeasureHold = 5 * time.Second // a measured rate is left alone so long at first
	growEvery        = 100 * time.Millisecond
	longestSpan      = 5 * time.Minute // over which it is measured

	longestMinute = 600 * time.Second // a budget that refills more slowly is a day's, not a minute's
)

// Source says where a limit is known from.
type Source string

// Sources of a limit.
const (
	SourceTold     Source = "told"
	SourceStart    Source = "start"
	SourceHeader   Source = "header"
	SourceRefusal  Source = "refusal"
	SourceMeasured Source = "measured"

	// Two that the gate itself never gives.
	SourceRegistry Source = "registry"          // published for the account's tier
	SourceAtLeast  Source = "verified-at-least" // so much was used without a refusal
)

// mirror is what is believed of one of the provider's buckets. Its level is the ledger's.
type mirror struct {
	limit   float64 // per window; 0 is unknown
	ceiling float64 // told: never above
	cap     float64
	capRead bool // a header showed it
	pace    float64
	source  Source
	at      time.Time // when the newest call was sent whose answer stated the limit
	hold    time.Duration
	growAt  time.Time // a measured rate grows from then on
	dripEnd time.Time // the first second's burst is being given out until then; zero: it is not
}

// window is the time in which a limit's whole budget refills.
func (d Dimension) window() float64 {
	if d == RequestsPerDay || d == TokensPerDay {
		return 86400
	}
	return 60
}

// rate is the provider's refill per second.
func (m *mirror) rate(d Dimension) float64 { return m.limit / d.window() }

// limitOf picks a dimension's limit.
func limitOf(l Limits, d Dimension) float64 {
	return float64([NumDimensions]int{
		Requests: l.RPM, Tokens: l.TPM, InputTokens: l.ITPM, OutputTokens: l.OTPM, RequestsPerDay: l.RPD, TokensPerDay: l.TPD,
		Concurrency: l.Concurrent,
	}[d])
}

// openBudgets sets up the budgets whose limits are told or believed from the start.
func (l *lane) openBudgets(now time.Time, told, start Limits) {
	for d := Requests; d < NumDimensions; d++ {
		m := &l.mirrors[d]
		m.ceiling = limitOf(told, d)
		if m.ceiling > 0 {
			m.limit, m.source = m.ceiling, SourceTold
			l.fill(now, d)
		}
		if s := limitOf(start, d); s > 0 {
			l.start(now, d, s)
		}
	}
}

// start believes a limit from the start, unless a lower one is told.
func (l *lane) start(now time.Time, d Dimension, limit float64) {
	m := &l.mirrors[d]
	if m.ceiling > 0 && m.ceiling <= limit {
		return
	}
	m.limit, m.source = limit, SourceStart
	l.fill(now, d)
}

// fill gives a budget that was just set up what its bucket is believed to hold.
func (l *lane) fill(now time.Time, d Dimension) {
	m := &l.mirrors[d]
	m.pace = paceUntried
	burst, level := startCap, startLevel
	if b := l.gate.cfg.burst(); b > 0 {
		burst, level = b, b
	}
	if d.window() > 60 { // a day's budget is there from the start
		burst, level = d.window(), d.window()
	}
	m.cap = max(1, m.rate(d)*burst)
	at := max(1, m.rate(d)*level)
	if l.book == nil { // others may have been there before: it is not for each of them to give out the burst
		l.correct(now, d, Correction{Mark: l.sums[d], Lo: math.Inf(-1), Hi: math.Inf(1), Start: at})
		return
	}
	if level < burst {
		m.pace, m.dripEnd, l.dripping = dripPace, now.Add(dripTime), true
	}
	l.correct(now, d, Correction{Mark: l.sums[d], Lo: at, Hi: at})
}

// burst is how many seconds of refill a bucket holds, where that is told; 0 where it is not.
func (c *Config) burst() float64 { return max(c.Limits.Burst, c.Start.Burst).Seconds() }

// correct sends a correction with the mirror's rate and cap to the ledger.
func (l *lane) correct(now time.Time, d Dimension, c Correction) {
	m := &l.mirrors[d]
	c.Dimension, c.Lane, c.Rate, c.Cap = d, l.name, m.pace*m.rate(d), m.cap
	l.gate.correct(now, l, c)
}

// observe takes in what the headers of the answer to t say.
func (l *lane) observe(now time.Time, t *Ticket, readings []Reading) {
	for i := range readings {
		r := readings[i]
		if r.Dimension < Requests || r.Dimension >= NumDimensions || r.Limit <= 0 || r.Remaining < 0 {
			continue
		}
		r.Remaining = min(r.Remaining, r.Limit)
		if r.Dimension.window() == 60 && r.period() > longestMinute {
			r.Dimension += RequestsPerDay - Requests
			if r.Dimension > TokensPerDay {
				continue
			}
		}
		l.read(now, t, r)
	}
}

// period is at least so long, by what a budget has left and when it is full again; 0 when nothing follows. A provider
// may round the reset up to whole seconds without our knowing.
func (r *Reading) period() time.Duration {
	used := r.Limit - r.Remaining
	if used <= 0 || r.Reset <= time.Second {
		return 0
	}
	return seconds((r.Reset - time.Second).Seconds() * float64(r.Limit) / float64(used))
}

// read corrects one budget by one reading. A reading is an interval: the answer tells how much was left at some
// instant between the request's departure and now, and what else was under way at that time is known only to within
// the margins.
func (l *lane) read(now time.Time, t *Ticket, r Reading) {
	d := r.Dimension
	m := &l.mirrors[d]
	if !t.sent.Before(m.at) {
		l.believe(now, d, float64(r.Limit), SourceHeader)
		m.at = t.sent
	}
	m.pace, m.dripEnd = paceHeaders, time.Time{}
	rate, left, slack := m.rate(d), float64(r.Remaining), float64(r.Slack)/2
	least := max(0, r.Reset-r.ResetSlack).Seconds() // until the bucket is full
	switch {
	case r.Reset == 0:
		m.cap = max(m.cap, min(m.limit, left), 1)
	case left > slack || !m.capRead: // rounded numbers leave it open by how much the bucket is larger
		most := left + slack + rate*max(0, r.Reset).Seconds()
		m.cap, m.capRead = max(1, min(max(m.cap, left-slack+rate*least), most, m.limit)), true
	}
	age := now.Sub(t.sent)
	lo := min(m.cap, left-slack+rate*max(0, age-l.margin).Seconds()) - t.sooner(d) - l.unproduced(t, d)
	hi := left + slack + 1 + rate*age.Seconds() + t.later(d, &l.sums)
	if l.reserves.charge == ChargeActual && left <= slack {
		// Output may have left a debt. The remainder does not show it, but the time until the bucket is full does.
		lo = math.Inf(-1)
		hi = min(hi, m.cap-rate*least+rate*age.Seconds()+t.later(d, &l.sums))
	}
	if m.ceiling > 0 && float64(r.Limit) > m.ceiling { // our own bucket is the narrower one
		lo = math.Inf(-1)
	}
	l.correct(now, d, Correction{Mark: t.mark[d], Lo: lo, Hi: hi})
}

// believe sets a limit, unless a ceiling is below it.
func (l *lane) believe(now time.Time, d Dimension, limit float64, source Source) {
	m := &l.mirrors[d]
	if m.ceiling > 0 {
		limit = min(limit, m.ceiling)
	}
	if limit == m.limit {
		if m.source != SourceTold {
			m.source = source
		}
		return
	}
	fresh := m.limit == 0
	m.limit, m.source = limit, source
	m.cap = min(m.cap, max(1, limit))
	if fresh {
		m.pace = paceBlind
		m.cap = max(1, startCap*m.rate(d))
	}
	l.changed(now, d, limit, source)
}

// changed tells of a limit that is another now.
func (l *lane) changed(now time.Time, d Dimension, limit float64, source Source) {
	l.gate.note(Event{Type: EventLimitsChanged, At: now, Lane: l.name, Dimension: d, Limit: int64(limit), Source: source})
}

// tellOfLimits tells of the limits that were told to a lane that is new: nothing may ever meet them.
func (l *lane) tellOfLimits(now time.Time) {
	for d := Requests; d < NumDimensions; d++ {
		if m := &l.mirrors[d]; m.source == SourceTold {
			l.changed(now, d, m.limit, SourceTold)
		}
	}
	if l.slots.ceiling > 0 {
		l.changed(now, Concurrency, float64(l.slots.ceiling), SourceTold)
	}
}

// unproduced is the output of calls open when t was sent that its answer's headers may not count yet.
func (l *lane) unproduced(t *Ticket, d Dimension) float64 {
	if l.reserves.charge != ChargeActual || d != Tokens && d != OutputTokens && d != TokensPerDay {
		return 0
	}
	return t.openOutput
}

// explained corrects the budget that a refusal names with its numbers, and reports whether it could.
func (l *lane) explained(now time.Time, t *Ticket, o *Outcome) bool {
	d := o.Dimension
	if d == AnyDimension {
		d = exhausted(o.Readings)
	}
	if d < Requests || d >= NumDimensions {
		return false
	}
	l.margin = min(2*l.margin, longestMargin) // the mirror stood too high
	if o.Limit > 0 && o.Requested > 0 {
		l.reserves.requested(d, o.Requested, t.Call.Cost)
		blind := l.mirrors[d].pace != paceHeaders
		if blind {
			l.mirrors[d].pace, l.mirrors[d].dripEnd = paceBlind, time.Time{}
		}
		if !t.sent.Before(l.mirrors[d].at) {
			l.believe(now, d, float64(o.Limit), SourceRefusal)
		}
		level := float64(o.Limit - o.Used)
		if blind {
			l.mirrors[d].cap = max(1, min(l.mirrors[d].limit, float64(o.Used)+level))
		}
		l.correct(now, d, Correction{Mark: t.mark[d], Lo: level, Hi: level})
		return true
	}
	for i := range o.Readings {
		if r := &o.Readings[i]; r.Remaining == 0 && r.Limit > 0 {
			return true // observe has corrected it
		}
	}
	return false
}

// exhausted is the dimension of the one reading at zero.
func exhausted(readings []Reading) Dimension {
	var found Dimension
	for i := range readings {
		if r := &readings[i]; r.Remaining == 0 && r.Limit > 0 && found != AnyDimension {
			return AnyDimension
		} else if r.Remaining == 0 && r.Limit > 0 {
			found = r.Dimension
		}
	}
	return found
}

// measure learns a request rate from refusals that say nothing: each marks an empty bucket, so what passed between the
// first and the last of them is the refill. The longer the time, the better the measure.
func (l *lane) measure(now time.Time, t *Ticket) {
	m := &l.mirrors[Requests]
	span := now.Sub(l.emptyAt)
	if l.emptyAt.IsZero() || span > longestSpan {
		l.emptyAt, l.passed = now, 0
		return
	}
	if m.source == SourceHeader || m.source == SourceTold && m.limit > 0 || l.passed < 3 || span < leastPause {
		return
	}
	m.limit = float64(l.passed) / span.Seconds() * 60
	switch {
	case l.passed < 10: // a rough measure: go on soon
		m.hold = time.Second
	case m.hold < firstMeasureHold:
		m.hold = firstMeasureHold
	default:
		m.hold = min(2*m.hold, longestHold)
	}
	m.source, m.pace = SourceMeasured, paceBlind
	m.cap, m.growAt = max(1, startCap*m.rate(Requests)), now.Add(m.hold)
	l.correct(now, Requests, Correction{Mark: t.mark[Requests], Lo: 0, Hi: 0})
	l.changed(now, Requests, m.limit, SourceMeasured)
}

// drip ends the pace at which a bucket's unknown burst is given out: after a time, or as soon as the whole burst is there.
// A call above it goes then, and leaves a debt that is paid off at the provider's own pace.
func (l *lane) drip(now time.Time) {
	if !l.dripping {
		return
	}
	l.dripping = false
	for d := Requests; d < NumDimensions; d++ {
		m := &l.mirrors[d]
		if m.dripEnd.IsZero() {
			continue
		}
		if now.Before(m.dripEnd) && !l.brim(now, d) {
			l.dripping = true
			continue
		}
		m.pace, m.dripEnd = paceUntried, time.Time{}
		l.correct(now, d, Correction{Mark: l.sums[d], Lo: math.Inf(-1), Hi: math.Inf(1)})
	}
}

// brim reports whether a budget is known to be full.
func (l *lane) brim(now time.Time, d Dimension) bool {
	if l.book == nil {
		return false
	}
	b := &l.book.budgets[d]
	b.refill(now)
	return b.level >= b.top()
}

// grow tries a little more than a measured rate, once it has held for a while: 3 % a second.
func (l *lane) grow(now time.Time) {
	m := &l.mirrors[Requests]
	if m.source != SourceMeasured || now.Before(m.growAt) {
		return
	}
	if !l.blocked || l.binding != Requests { // nothing puts the rate to the test
		m.growAt = now.Add(growEvery)
		return
	}
	m.limit *= 1 + 0.03*min(now.Sub(m.growAt)+growEvery, time.Second).Seconds()
	m.growAt = now.Add(growEvery)
	m.cap = max(1, startCap*m.rate(Requests))
	l.correct(now, Requests, Correction{Mark: l.sums[Requests], Lo: math.Inf(-1), Hi: math.Inf(1)})
}

// refill is how long a budget takes to have room for one request more.
func (l *lane) refill(d Dimension) time.Duration {
	if m := &l.mirrors[d]; m.limit > 0 {
		return seconds(1 / m.rate(d))
	}
	return 0
}
