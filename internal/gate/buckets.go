package gate

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

const (
	maxExplained = 5                     // maximum of rejections in a row that are explained by a limit
	slowRefill   = 5.0                   // seconds of refill for a request from which on a stated limit has to agree with a stated wait
	manyTimes    = 3.0                   // multiple of a configured limit above which headers may state another one
	sure         = 0.85                  // minimum confidence in a learned limit that makes a larger request hopeless
	wakeMargin   = time.Millisecond / 10 // delay of a wake-up, so that the bucket has enough by then
)

// buckets are the rate limits of a lane, with the evidence for them.
type buckets struct {
	lane     *lane // for its events, and for the corrections that it sends
	each     [limits.NumDimensions]*bucket
	book     *Book // the levels; with a remote ledger those of its last reply
	reserves reserves
	compared [limits.NumDimensions]compared
	opened   time.Time

	spent      limits.Vector // total that this gate spent since the lane was opened, rejected requests included
	rejected   limits.Vector // total cost of rejected requests
	mean       limits.Vector // moving average of the cost of a request
	largest    limits.Vector // largest cost that was accepted
	openOutput float64       // reserved for the output of requests in flight

	explained   int           // rejections in a row that a limit explained
	explainedAt time.Time     // arrival of the last rejection that counted for explained
	debt        limits.Vector // total cost of the requests that were rejected since one was accepted
	charged     bool          // the provider charges rejected requests
	tally       tally

	successes [32]success // the last ones
	success   int         // index of the oldest one
}

// open sets up the limits that are configured or known from the start.
func (b *buckets) open(now time.Time, configured, start limits.Limits) {
	for d := range b.each {
		b.each[d] = &bucket{Limit: limits.Limit{Dimension: limits.Dimension(d)}}
	}
	for d := range rates {
		b.configure(now, d, configured)
		if s := limitOf(start, d); s > 0 {
			b.start(now, limits.Limit{Dimension: d, Value: s, Source: limits.SourceStart, At: now})
		}
	}
}

// configure sets the configured limit of a dimension, and reports whether the limit changed; 0 is none.
func (b *buckets) configure(now time.Time, d limits.Dimension, configured limits.Limits) (changed bool) {
	each, ceiling, k := b.each[d], limitOf(configured, d), promiseOf(configured, d)
	if !b.remote() {
		b.book.configure(now, d, k)
	}
	if ceiling == each.ceiling && k == each.promise {
		return false
	}
	each.promise, each.paced = k, false
	each.ceiling, each.author, each.doubt = ceiling, 0, nil
	if ceiling == 0 {
		if each.Source == limits.SourceConfigured {
			each.Source = limits.SourceStart
		}
		return false
	}
	switch fresh := each.Value == 0; {
	case !each.believe(each.configured()):
		if b.remote() { // its guard is there
			b.resize(now, d)
		}
		return false
	case fresh:
		b.fill(now, d)
	case !b.remote() && perDay(d): // a used part of a day stays used, and a day more of debt at most
		level := each.cap - min(b.book.used(now, d), 2*each.cap)
		b.bound(now, d, level, level)
	default:
		each.whole()
		b.resize(now, d)
	}
	return true
}

// start believes a limit from the start, unless a lower one is configured or one is published.
func (b *buckets) start(now time.Time, l limits.Limit) {
	if each := b.each[l.Dimension]; (each.ceiling == 0 || each.ceiling > l.Value) && each.Source != limits.SourcePublished {
		each.Limit = l
		b.fill(now, l.Dimension)
	}
}

// publish believes the limits that the provider publishes for the lane, unless one is configured or a response has shown one.
func (b *buckets) publish(now time.Time) {
	for d := range rates {
		each, value := b.each[d], b.published(d)
		if value > 0 && each.ceiling == 0 && !(each.Source.Observed() && !each.At.Before(b.opened)) {
			b.believe(now, nil, limits.Limit{Dimension: d, Value: value, Source: limits.SourcePublished, At: now, Confidence: 1})
		}
	}
}

// published is the limit that the provider publishes for the lane; 0 if it publishes none.
func (b *buckets) published(d limits.Dimension) float64 {
	return limitOf(b.lane.gate.cfg.Published[b.lane.name], d)
}

// fill gives a new bucket its initial size and level: the configured size, or maxCap until a rejection shows the size. If its limit is the
// shared one, the lane uses the shared bucket.
func (b *buckets) fill(now time.Time, d limits.Dimension) {
	if b.same(d) {
		b.partake(now, d, nil)
		return
	}
	each, burst := b.each[d], maxCap
	each.drain.pace = minDrain
	if configured := b.lane.gate.cfg.burst(); configured > 0 {
		burst = configured
		each.drain.pace = max(minDrain, 1+burst/drainTime)
	}
	if each.Source == limits.SourceMeasured { // by an earlier process: stray rejections may have been the reason
		each.drain.pace = max(each.drain.pace, each.few())
	}
	if perDay(d) { // a day's allowance is there from the start
		burst, each.shown = window(d), true
	}
	each.cap = max(1, each.rate()*burst)
	each.whole()
	if b.remote() { // the level of a bucket that other members use stays
		b.correct(now, d, limits.Correction{Mark: b.book.budgets[d].spent, Lo: math.Inf(-1), Hi: math.Inf(1), Start: each.cap})
	} else {
		b.bound(now, d, each.cap, each.cap)
	}
}

// bound corrects the present level of a bucket to be between two values, and applies the bucket's rate and size.
func (b *buckets) bound(now time.Time, d limits.Dimension, lo, hi float64) {
	b.correct(now, d, limits.Correction{Mark: b.book.budgets[d].spent, Lo: lo, Hi: hi})
}

// resize applies a bucket's rate and size.
func (b *buckets) resize(now time.Time, d limits.Dimension) {
	b.bound(now, d, math.Inf(-1), math.Inf(1))
}

// remote reports whether the levels are in a ledger that other processes share.
func (b *buckets) remote() bool { return b.lane.gate.cfg.Remote }

// perMinute returns the buckets of limits per minute.
func (b *buckets) perMinute() []*bucket { return b.each[limits.Requests:limits.RequestsPerDay] }

// draining returns how long a request has to wait because requests are sent one by one, and for how long by a configured limit.
func (b *buckets) draining(now time.Time) (longest delay, firm time.Duration) {
	for _, each := range b.perMinute() {
		if each.spaced() == 0 {
			continue
		}
		wait := each.drain.next.Sub(now.Add(drainGrain))
		if longest = longest.or(delay{wait, each.Dimension}); each.paced {
			firm = max(firm, wait)
		}
	}
	return longest, firm
}

// emptying returns how long it takes to send requests of that total cost one by one.
func (b *buckets) emptying(now time.Time, cost *limits.Vector) (longest time.Duration) {
	for _, each := range b.perMinute() {
		if pace := each.spaced(); pace > 0 {
			longest = max(longest, max(0, each.drain.next.Sub(now))+seconds(cost[each.Dimension]/pace))
		}
	}
	return longest
}

// drained notes that a request takes its cost from buckets that are used one by one (sign 1), or gives an amount back (sign -1). The
// provider may count a rejected request, so that it is not given back to a configured limit.
func (b *buckets) drained(now time.Time, cost *limits.Vector, sign float64) {
	for _, each := range b.perMinute() {
		pace, rejected := each.spaced(), sign < 0 && each.paced && each.Dimension == limits.Requests
		if pace > 0 && cost[each.Dimension] != 0 && !rejected {
			if each.drain.next.Before(now) {
				each.drain.next = now
			}
			each.drain.next = each.drain.next.Add(seconds(sign * cost[each.Dimension] / pace))
		}
	}
}

// burst is the configured size of buckets in seconds of refill; 0 if none is configured.
func (c *Config) burst() float64 { return max(c.Limits.Burst, c.Start.Burst).Seconds() }

// limitOf returns a dimension's limit, per minute or day.
func limitOf(l limits.Limits, d limits.Dimension) float64 {
	w := l.In(d)
	return float64(w.N) * d.Window().Seconds() / w.Period.Seconds()
}

// correct applies a correction, with the bucket's rate and size, to the book and to a remote ledger.
func (b *buckets) correct(now time.Time, d limits.Dimension, c limits.Correction) {
	each := b.each[d]
	c.Dimension, c.Lane, c.Rate, c.Cap = d, b.lane.name, (1+each.probe.excess)*each.rate(), each.cap
	if b.remote() && each.probe.excess == 0 {
		c.Rate *= paceShared
	}
	if b.remote() && each.ceiling > 0 { // every member would exceed it
		c.Rate = min(c.Rate, paceShared*each.ceiling/window(d))
	}
	if b.windowed(each) {
		c.Period = each.header.fixed.period
	}
	c.Limit, c.LimitPeriod, c.Burst = each.promise.n, each.promise.period, each.promise.burst.Seconds()
	if perDay(d) {
		c.Limit = each.ceiling
	}
	b.lane.gate.correct(now, b.lane, c)
}

// mirror takes over the levels of a remote ledger.
func (b *buckets) mirror(now time.Time, r *limits.Reply) {
	for d, bud := range &b.book.budgets {
		bud.refill(now)
		if len(r.Marks) > 0 {
			bud.spent = r.Marks[len(r.Marks)-1][d]
		}
		if r.Levels != nil {
			bud.level = min(r.Levels[d], bud.cap)
		}
	}
}

// cost sets the amount that a request is expected to be charged, and the amount that configured limits count for it.
func (b *buckets) cost(c limits.Cost, cost, guarded *limits.Vector) {
	*cost = b.reserves.cost(c)
	*guarded = b.reserves.most(c, cost)
}

// weigh multiplies a cost by the charge per unit. It adds at most the refill of that time in seconds.
func (b *buckets) weigh(cost *limits.Vector, most float64) {
	for _, each := range b.perMinute() {
		if each.header.weight.more > 0 {
			cost[each.Dimension] += min(cost[each.Dimension]*each.header.weight.more, most*each.rate())
		}
	}
}

// spend counts a request that is granted, and stamps it.
func (b *buckets) spend(now time.Time, t *Ticket) {
	b.lane.flight.recent.enter(now, &b.spent, t)
	total := &b.lane.gate.total
	for d, c := range &t.cost {
		b.spent[d] += c
		b.mean[d] += 0.1 * (c - b.mean[d])
		if t.own[d] = b.spent[d] - b.rejected[d]; b.counts(limits.Dimension(d)) {
			total[d] += c
			t.total[d] = total[d]
		} else {
			t.total[d] = total[d] + t.own[d]
		}
	}
	t.moment.end = b.spent
	b.count(t, b.reserves.sent(t.Call.Cost))
	t.tallied = b.tally.total
	b.reserveOutput(t.cost[limits.OutputTokens])
	t.openOutput = b.openOutput
}

// reserveOutput adds an amount to the reserved output of requests in flight.
func (b *buckets) reserveOutput(output float64) {
	b.reserves.open = b.lane.flight.open
	b.openOutput = max(0, b.openOutput+output)
	if b.lane.flight.open == 0 {
		b.openOutput = 0 // no residue of rounding
	}
	if !b.remote() && b.reserves.charge == limits.ChargeActual {
		b.book.setDue(b.openOutput)
	}
}

// enlarge notes the cost of an accepted request, if it is the largest one.
func (b *buckets) enlarge(t *Ticket) {
	for d, c := range &t.cost {
		if c > b.largest[d] { // faster than max
			b.largest[d] = c
		}
	}
}

// larger reports whether a request is more than twice as large as all that were accepted.
func (b *buckets) larger(t *Ticket) bool {
	for d, c := range &t.cost {
		if c > 2*b.largest[d] {
			return true
		}
	}
	return false
}

// slow reports whether a bucket may refill by the cost of a request for longer than longestAlone, by the amounts that were accepted.
func (b *buckets) slow(now time.Time, t *Ticket) bool {
	for d, c := range &t.cost {
		if c*float64(now.Sub(b.opened)) > (b.spent[d]-b.rejected[d])*float64(longestAlone) {
			return true
		}
	}
	return false
}

// observe takes in the headers of the response to t.
func (b *buckets) observe(now time.Time, t *Ticket, readings []limits.Reading) {
	if len(readings) > 0 {
		b.lane.flight.read(t)
	}
	for _, r := range readings {
		if r.Dimension < limits.Requests || r.Dimension >= limits.NumDimensions || r.Limit <= 0 || r.Remaining < 0 {
			continue
		}
		r.Remaining = min(r.Remaining, r.Limit)
		b.read(now, t, &r)
	}
	for _, each := range b.each {
		each.header.fade(t.sent)
	}
	if b.lane.gate.joined {
		for d := range rates {
			if b.each[d].Value == 0 {
				b.same(d)
			}
		}
	}
}

// believe takes in a limit that the response to t states, and returns its bucket.
func (b *buckets) believe(now time.Time, t *Ticket, l limits.Limit) *bucket {
	d, each := l.Dimension, b.each[l.Dimension]
	switch fresh := each.Value == 0; {
	case !each.believe(l):
		return each
	case fresh:
		b.fill(now, d)
	default:
		b.resize(now, d)
	}
	b.partake(now, d, t)
	b.changed(now, d)
	return b.each[d]
}

// changed reports a limit that has changed.
func (b *buckets) changed(now time.Time, d limits.Dimension) {
	b.lane.changed(now, d, b.each[d].Value, b.each[d].Source)
}

// report reports the configured limits of a new lane.
func (b *buckets) report(now time.Time) {
	for _, each := range b.each {
		if each.Source == limits.SourceConfigured {
			b.changed(now, each.Dimension)
		}
	}
}

// unproduced returns the output, reserved when t was sent, that the headers of its response may not count yet.
func (b *buckets) unproduced(t *Ticket, d limits.Dimension) float64 {
	if b.reserves.charge != limits.ChargeActual || d != limits.Tokens && d != limits.OutputTokens && d != limits.TokensPerDay {
		return 0
	}
	return t.openOutput
}

// room notes the number of requests like t for which each bucket has room, t included; 0 is unknown.
func (b *buckets) room(t *Ticket) {
	for d, each := range &b.each {
		if each.Value == 0 || t.cost[d] == 0 {
			continue
		}
		room, excess := b.book.budgets[each.Dimension].level/t.cost[d], each.probe.excess
		switch {
		case !each.shown: // less than any other, in the order of their rates
			t.room[d] = float32(min(1, each.rate()/t.cost[d]/1e4))
		case excess > 0 && room < 1: // the rate is exceeded as a test
			t.room[d] = float32(min(1, each.rate()/t.cost[d]/1e4/excess))
		default:
			t.room[d] = float32(max(1, 1+room))
		}
	}
}

// retest lets measured rates be exceeded at once: rejections of single items may have been taken for a limit.
func (b *buckets) retest(now time.Time) {
	for _, each := range b.each {
		each.retest(now)
	}
}

// exceed raises the pace of the bucket that holds requests back.
func (b *buckets) exceed(now time.Time, bound limits.Dimension) {
	if bound.Window() != time.Minute {
		return
	}
	each := b.each[bound]
	empty := each.Source != limits.SourceConfigured && b.book.level(now, bound) < 2*max(1, b.mean[bound])
	if each.exceed(now, empty) {
		b.resize(now, bound)
	}
}

// refill returns the time in which one unit of a limit flows in; 0 if the limit is unknown.
func (b *buckets) refill(d limits.Dimension) time.Duration {
	if each := b.each[d]; each.Value > 0 {
		return seconds(1 / each.rate())
	}
	return 0
}

// shown reports whether headers show a level.
func (b *buckets) shown() bool {
	return slices.ContainsFunc(b.perMinute(), func(each *bucket) bool { return each.header.seen })
}

// limited reports whether a limit per minute is known.
func (b *buckets) limited() bool {
	for _, each := range b.perMinute() {
		if b.limit(each.Dimension) > 0 {
			return true
		}
	}
	return false
}

// guessed reports whether no limit per minute is known but by rejections without figures, and the highest rate of those per second: 0 if no
// limit is known.
func (b *buckets) guessed() (rate float64, is bool) {
	for _, each := range b.perMinute() {
		switch {
		case each.Value > 0 && each.Source == limits.SourceMeasured && !each.header.fixed.exact:
			rate = max(rate, each.rate())
		case b.limit(each.Dimension) > 0:
			return 0, false
		}
	}
	return rate, true
}

// limit returns the lower one of the lane's and the account's limit; 0 if neither is known.
func (b *buckets) limit(d limits.Dimension) float64 {
	own, g := b.each[d].Value, b.lane.gate
	if !g.account.on {
		return own
	}
	shared := limitOf(g.cfg.Account, d)
	if own == 0 || shared == 0 {
		return own + shared
	}
	return min(own, shared)
}

// feeds returns the maximum of requests in flight of that latency (in seconds) that can be of use: twice the number by Little's law,
// and those that the levels hold.
func (b *buckets) feeds(now time.Time, latency float64) float64 {
	bound := 1e9
	for d, each := range &b.each {
		cost := b.mean[d]
		if each.Dimension == limits.Requests {
			cost = 1
		}
		if each.Value == 0 || cost == 0 {
			continue
		}
		bound = min(bound, (2*latency*(1+each.probe.excess)*each.rate()+max(0, b.book.level(now, each.Dimension)))/cost)
	}
	return bound
}

// exceeded returns the limit into which a request can never fit, by a lower bound of its charge, or nil. A limit that only headers state counts
// for requests that were rejected.
func (b *buckets) exceeded(t *Ticket) *limits.Limit {
	if b.reserves.charge != limits.ChargeDeclared {
		return nil
	}
	for _, d := range [...]limits.Dimension{limits.Tokens, limits.OutputTokens, limits.TokensPerDay} {
		each := b.each[d]
		limit := each.Value
		if each.Source == limits.SourceConfigured && each.promise.n > 0 {
			limit = each.promise.n
		}
		if limit > 0 && float64(t.Call.Cost.MaxOutput) > limit && (each.Source == limits.SourceConfigured ||
			each.Source != limits.SourceMeasured && (each.Source != limits.SourceHeader || t.Throttles > 0) && each.Confidence >= sure && !each.At.Before(b.opened)) {
			return &each.Limit
		}
	}
	return nil
}

// void takes back the charge of a request that was rejected or not sent, also from the marks of requests that were sent after it.
func (b *buckets) void(now time.Time, t *Ticket) {
	refund := t.cost
	for d, each := range &b.each {
		if each.mark > 0 && t.mark[d] <= each.mark { // the level was corrected since
			each.mark -= t.cost[d]
			refund[d] = 0
		}
	}
	b.book.void(now, &t.cost, &refund)
	for u := b.lane.flight.tail; u != nil && u.mark[limits.Requests] > t.mark[limits.Requests]; u = u.prev {
		u.mark, u.own = u.mark.Minus(&t.cost), u.own.Minus(&t.cost)
		u.tallied.replace(t.part, rules{})
	}
	if !t.sent.After(b.tally.since.at) {
		b.tally.since.total.replace(t.part, rules{})
	}
	t.tallied.replace(t.part, rules{})
	b.count(t, rules{})
	g := b.lane.gate
	for d, c := range &t.cost {
		if b.counts(limits.Dimension(d)) {
			g.total[d] -= c
		}
	}
	for _, other := range g.sorted {
		for u := other.flight.tail; u != nil && !u.sent.Before(t.moment.at); u = u.prev {
			for d, c := range &t.cost {
				if (other == b.lane || b.counts(limits.Dimension(d))) && u.total[d] > t.total[d] {
					u.total[d] -= c
				}
				if other != b.lane && other.buckets.book.budgets[d] == b.book.budgets[d] && u.mark[d] > t.mark[d] {
					u.mark[d] -= c
				}
			}
		}
	}
}

// unused returns the amount that a request was charged beyond its usage. It is negative if the request used more.
func (b *buckets) unused(t *Ticket, o *limits.Outcome) (refund limits.Vector) {
	switch {
	case o.HasUsage:
		used := b.reserves.charged(t.Call.Cost, o.Usage)
		for _, d := range [...]limits.Dimension{limits.Tokens, limits.InputTokens, limits.OutputTokens, limits.TokensPerDay} {
			refund[d] = t.cost[d] - used[d]*b.each[d].header.weight.factor()
		}
	case o.Kind != limits.OK && b.reserves.charge == limits.ChargeActual: // nothing was produced
		out := t.cost[limits.OutputTokens]
		refund[limits.OutputTokens], refund[limits.Tokens], refund[limits.TokensPerDay] = out, out, out
	}
	return refund
}

// snapshot returns the state of the known limits. A configured limit that is below the provider's is the one that binds.
func (b *buckets) snapshot(now time.Time) []limits.BucketSnapshot {
	out := []limits.BucketSnapshot{}
	for d, each := range &b.each {
		if each.Value == 0 {
			continue
		}
		s := limits.BucketSnapshot{Dimension: each.Dimension, Limit: int64(each.Value), Source: each.Source, Shared: b.remote(),
			Level: b.book.level(now, each.Dimension), Cap: each.cap, Spent: b.spent[d],
			Claims: limits.Claims{Configured: int64(each.ceiling), Published: int64(b.published(each.Dimension))}}
		if each.Source.Observed() {
			s.Claims.Observed = s.Limit
		}
		if g := b.book.guards[d]; g != nil && each.ceiling > 0 && each.ceiling < each.Value {
			s.Limit, s.Source, s.Level, s.Cap = int64(each.ceiling), limits.SourceConfigured, min(s.Level, g.left(now)), min(s.Cap, cmp.Or(g.size(), g.n))
		}
		out = append(out, s)
	}
	return out
}
