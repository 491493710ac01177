package gate

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice/internal/planted"
	"github.com/sluice-llm/sluice/limits"
)

const (
	startSlots  = 8                      // initial limit
	firstHold   = 2 * time.Second        // initial time in which a rejected concurrency is not tried
	longestHold = 300 * time.Second      // maximum time in which a rejected concurrency is not tried
	maxCuts     = 3                      // cuts in a row, without an accepted request between them, after which a rejection is about something else
	crowdRounds = 2                      // rejections, one after the other, that show that overloaded responses are about the concurrency
	slowAnswer  = 1.5                    // seconds that responses take, from which on a rejected concurrency is tested at a distance: pauses are shorter
	evenly      = 0.9                    // that distance, as a share of the mean time between departures
	leastGap    = 100 * time.Millisecond // minimum of that distance: shorter ones are as long as a rejection takes
	fewer       = 0.6                    // share of an accepted number, below which a rejection is not about concurrency
)

// slots finds the concurrency that the provider allows. A configured concurrency is not exceeded.
type slots struct {
	limit   float64
	ceiling int  // the configured concurrency; 0 is none
	refused bool // a rejection has set the limit
	rate    bool // rejections that name no limit are about a rate

	bad   int           // lowest concurrency that was rejected; 0 is none
	hold  time.Duration // time for which bad is not tested
	until time.Time     // end of that time

	cutAt  time.Time // instant of the last cut; requests that were sent before it are no evidence against the new limit
	cutBy  uint64    // the item whose rejection led to the last cut
	cuts   int       // cuts in a row, without an accepted request between them
	cutLen float64   // the limit before the last cut, which is restored if a rate limit turns out to be the cause
	passed int       // maximum of requests in flight when a request was sent that was accepted since the last cut
	grewAt time.Time // when the limit grew last

	linger linger
	queue  queue
	crowd  crowd
	full   int // after a rejection no more are sent until a request that was sent later is accepted; 0 is none
}

// crowd is the evidence of overloaded responses that come at once while other requests are in flight: they may be about the number of those.
type crowd struct {
	least  int       // the lowest number in flight that was rejected
	rounds int       // rejections of requests that were sent after the one before
	since  time.Time // the last one
	passed bool      // a request was accepted that was sent after the first one, with fewer in flight
}

// newSlots starts at a configured concurrency or at a start value. A higher concurrency than the start value is not tested at once, because
// an earlier process found the value by rejections.
func newSlots(now time.Time, configured, start int) slots {
	s := slots{limit: startSlots, ceiling: configured, hold: firstHold}
	if start > 0 {
		s.limit, s.bad = float64(start), start+1
		s.hold, s.until = longestHold/2, now.Add(longestHold/2)
	}
	if configured > 0 {
		s.limit = float64(configured)
	}
	return s
}

// recall starts at the concurrency that rejections showed to an earlier process. One more is tested at once.
func (s *slots) recall(l limits.Limit) {
	if s.ceiling == 0 {
		s.limit, s.bad, s.refused, s.cutAt = max(1, math.Floor(l.Value)), int(l.Value)+1, true, l.At
	}
}

// n returns the maximum of requests in flight.
func (s *slots) n() int {
	n := int(s.limit)
	if s.full > 0 {
		n = min(n, s.full)
	}
	if planted.Every("slot too few", 1) {
		n--
	}
	if planted.Every("slot too many", 1) {
		n++
	}
	return max(1, n)
}

// lingered reports whether ended requests explain a rejection for the concurrency: see linger.explain. They do not if a rejection has cut the
// limit since the request was sent.
func (s *slots) lingered(now time.Time, t *Ticket, named bool, accepted time.Time) bool {
	return s.ceiling > 0 && s.bad == 0 && !t.sent.Before(s.cutAt) && s.linger.explain(now, t, s.ceiling, named, accepted)
}

// testGap returns the time between departures while the rejected concurrency is tested; 0 is none. A bucket that has room for one request
// rejects a second one right after it, like a provider that allows one at once.
func (s *slots) testGap() time.Duration {
	gap := seconds(evenly * s.queue.mean / float64(s.bad-1))
	if s.bad < 2 || s.limit < float64(s.bad) || s.ceiling > 0 || s.queue.mean < slowAnswer || gap < leastGap {
		return 0
	}
	return gap
}

// disproves reports whether an accepted request in flight, since which that many requests have ended, shows that a rate was met instead of the
// concurrency. The item whose rejection was taken for it must have been accepted, because it may be at fault.
func (s *slots) disproves(t *Ticket, ended int) bool {
	gap := s.testGap()
	if gap == 0 || s.cutBy != 0 || t.state != held || t.sent.Before(s.cutAt) || t.open-ended < s.bad {
		return false
	}
	return t.prev == nil || t.sent.Sub(t.prev.sent) >= gap/2
}

// accepted notes an accepted request, since which that many requests have ended: they may have ended before it arrived. It reports whether a
// rate was met instead of the concurrency.
func (s *slots) accepted(t *Ticket, ended int) (rate bool) {
	if t.item() == s.cutBy {
		s.cutBy = 0
	}
	if rate = s.disproves(t, ended); rate {
		s.restore()
		s.rate = true
	}
	if t.sent.After(s.cutAt) {
		s.passed, s.cuts = max(s.passed, t.open-ended), 0
	}
	s.linger.accepted(t, s.ceiling)
	if c := &s.crowd; c.rounds > 0 && t.sent.After(c.since) {
		if c.passed = true; t.open >= c.least {
			*c = crowd{}
		}
	}
	if s.full > 0 && t.sent.After(s.cutAt) && t.sent.After(s.crowd.since) {
		s.full = 0
	}
	return rate
}

// crowded notes an overloaded response that came at once while other requests were in flight, and reports whether such responses are about
// something else. After crowdRounds of them with more in flight than were accepted meanwhile, they have shown the concurrency.
func (s *slots) crowded(now time.Time, t *Ticket) (other bool) {
	c := &s.crowd
	if c.rounds == 0 || t.open < c.least {
		c.least = t.open
	}
	if t.sent.After(c.since) {
		c.rounds++
		c.since = now
	}
	s.full = max(1, t.open-1)
	switch {
	case c.rounds < crowdRounds:
		return false
	case c.passed:
		s.refuse(now, t, 0, true, c.least-1)
	}
	other = !c.passed
	s.full, *c = 0, crowd{}
	return other
}

// saturated reports whether that many requests in flight test the limit.
func (s *slots) saturated(open int) bool { return float64(open) >= 0.8*math.Floor(s.limit) }

// tested reports whether an accepted request tested the limit, so that the limit may grow.
func (s *slots) tested(t *Ticket) bool {
	atCeiling := s.ceiling > 0 && s.limit >= float64(s.ceiling)
	return !atCeiling && t.saturated && t.sent.After(s.cutAt) && !s.queue.full()
}

// grow raises the limit after a request that tested it. usual is the usual time until a rejection, bound the maximum of requests that can be
// of use.
func (s *slots) grow(now time.Time, t *Ticket, usual time.Duration, bound float64) {
	if s.bad > 0 && t.open >= s.bad { // the rejected concurrency is accepted now
		s.bad, s.hold = 0, firstHold
	}
	if s.bad > 0 && s.limit+1 >= float64(s.bad) { // just below: test it at intervals
		if !now.Before(s.until) {
			s.limit = float64(s.bad)
		}
		return
	}
	step := s.limit // doubled once per proof
	if t.sent.Before(s.grewAt) && !s.refused {
		return
	}
	if s.refused {
		// A tenth per half the time of a rejection, in small steps: each step may be rejected.
		tenth := max(1, s.limit/10)
		step = min(max(1, tenth/2), math.Floor(2*tenth*now.Sub(s.grewAt).Seconds()/usual.Seconds()))
		if step < 1 {
			return
		}
	}
	next := min(s.limit+step, bound)
	if s.bad > 0 {
		next = min(next, float64(s.bad-1))
	}
	if s.ceiling > 0 {
		next = min(next, float64(s.ceiling))
	}
	if next > s.limit {
		s.limit, s.grewAt = next, now
	}
}

// refuse cuts the limit after a rejection. open is the number of requests that are left in flight. The rejection may have named the
// concurrency, and stated it; 0 is none.
func (s *slots) refuse(now time.Time, t *Ticket, open int, named bool, stated int) {
	if stated == 0 {
		s.full = max(1, open)
	}
	if t.sent.Before(s.cutAt) {
		if named && stated == 0 && open > 0 && float64(open) < s.limit { // rejected with others: the provider accepts as many as are in flight
			s.limit, s.bad, s.passed = float64(open), open+1, open
		}
		return
	}
	s.cutLen = s.limit
	limit := float64(t.open - 1)
	switch {
	case stated > 0:
		limit = float64(stated)
	case s.bad > 0 && t.open < s.bad-1:
		limit = math.Floor(min(s.limit, float64(t.open)) * 0.8)
	}
	switch again := s.refused && now.Sub(s.cutAt) > s.hold/2; {
	case again && t.open == s.bad: // the same number twice: it is the limit, so test it less often
		s.hold = min(s.hold*3, longestHold)
	case again:
		s.hold = min(s.hold*2, longestHold)
	}
	s.limit = max(1, min(s.limit, limit))
	s.refused = true
	s.cuts++
	s.bad = int(s.limit) + 1
	s.passed = int(s.limit)
	s.cutAt, s.cutBy, s.until = now, t.item(), now.Add(s.hold)
}

// disproved reports whether the rejection of t shows that the last cut was not about concurrency: clearly more were accepted since.
func (s *slots) disproved(t *Ticket) bool {
	return s.refused && !t.sent.Before(s.cutAt) && t.open < s.bad && float64(t.open) <= fewer*float64(s.passed)
}

// restore undoes the last cut.
func (s *slots) restore() {
	s.limit = max(s.limit, s.cutLen)
	s.bad, s.refused, s.hold, s.full = 0, false, firstHold, 0
}

// queue detects a server that lets requests wait instead of rejecting them. The latency then grows with the concurrency.
type queue struct {
	base       float64   // mean latency with few requests in flight, in seconds
	mean       float64   // moving average of the latency, in seconds
	baseN      int       // weight of base
	windowAt   time.Time // start of the window over which the rate is measured
	windowN    int       // responses in the window
	rate       float64   // responses per second over the last window
	before     float64   // the limit before it was lowered
	beforeRate float64   // the rate before it was lowered
}

// full reports whether the latency shows that more requests in flight would only wait.
func (q *queue) full() bool { return q.baseN >= 4 && q.mean > 1.4*q.base }

// answered learns from a response that took that many seconds, with open requests in flight when the request was sent.
func (s *slots) answered(now time.Time, latency float64, open int) {
	q := &s.queue
	if open <= startSlots {
		q.baseN = min(q.baseN+1, 64)
		q.base += (latency - q.base) / float64(q.baseN)
	}
	if q.mean == 0 {
		q.mean = latency
	}
	q.mean += 0.2 * (latency - q.mean)
	switch span := now.Sub(q.windowAt); {
	case q.windowAt.IsZero():
		q.windowAt = now
	case span < 0: // the requests of before are still in flight
	case span < max(time.Second, seconds(q.mean)):
		q.windowN++
	default:
		q.windowN++
		q.rate = float64(q.windowN) / span.Seconds()
		q.windowAt, q.windowN = now, 0
		s.judge(now)
	}
}

// judge lowers the limit to the concurrency that the server really has, and undoes that if the rate of responses falls.
func (s *slots) judge(now time.Time) {
	q := &s.queue
	if q.before > 0 {
		if q.rate < 0.85*q.beforeRate {
			s.limit, q.base = max(s.limit, q.before), q.mean // responses take that long without a queue
		}
		q.before = 0
		return
	}
	if s.ceiling > 0 || q.baseN < 4 || q.mean <= 1.5*q.base {
		return
	}
	if to := math.Ceil(1.25*q.rate*q.base) + 1; to < s.limit {
		q.before, q.beforeRate = s.limit, q.rate
		q.windowAt = now.Add(seconds(q.mean))
		s.limit = max(1, to)
	}
}
