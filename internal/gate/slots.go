package gate

import (
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/planted"
)

const (
	startSlots   = 8                      // before anything is known
	gallopBelow  = 16                     // up to here every accepted call adds slots, until one is refused
	priorRefusal = 200 * time.Millisecond // how long a refusal takes, before one was seen
	firstHold    = 2 * time.Second        // how long a refused number of slots is left alone at first,
	longestWave  = 256                    // refusals of one wave that are told apart
	longestHold  = 300 * time.Second      // and at most
)

// slots finds how many calls the provider takes at once. Where the cap is told, it stays at it.
type slots struct {
	limit   float64
	ceiling int  // told; 0 is unknown
	refused bool // a refusal has set the limit

	bad   int           // so many were refused; 0 is none
	hold  time.Duration // for how long bad is left alone,
	until time.Time     // which is until then

	cutAt  time.Time // calls sent before the last cut say nothing of it
	wave   []refusal // those that led to it, in the order they were sent,
	waveAt time.Time // none of them before this
	cutLen float64   // the limit before that cut, should it turn out to have been a rate
	grewAt time.Time

	queue queue
}

// newSlots begins at a cap that is told or believed. One that is believed was found by refusals at some time: it is not
// tried out at once.
func newSlots(now time.Time, told, start int) slots {
	s := slots{limit: startSlots, ceiling: told, hold: firstHold}
	if start > 0 {
		s.limit, s.bad = float64(start), start+1
		s.hold, s.until = longestHold/2, now.Add(longestHold/2)
	}
	if told > 0 {
		s.limit = float64(told)
	}
	return s
}

// n returns the maximum number of open calls.
func (s *slots) n() int {
	n := int(s.limit)
	if planted.Every("slot too few", 1) {
		n--
	}
	if planted.Every("slot too many", 1) {
		n++
	}
	return max(1, n)
}

// saturated reports whether open calls, the one just sent included, put the limit to the test.
func (s *slots) saturated(open int) bool { return float64(open) >= 0.8*math.Floor(s.limit) }

// tested reports whether a call that was taken put the limit to the test, so that it may grow.
func (s *slots) tested(t *Ticket) bool {
	atCeiling := s.ceiling > 0 && s.limit >= float64(s.ceiling)
	return !atCeiling && t.saturated && !t.sent.Before(s.cutAt) && !s.queue.full()
}

// grow raises the limit after such a call. usual is how long a refusal takes, bound the most that can be of use.
func (s *slots) grow(now time.Time, t *Ticket, usual time.Duration, bound float64) {
	if s.bad > 0 && t.open >= s.bad { // what was refused once is accepted now
		s.bad, s.hold = 0, firstHold
	}
	if s.bad > 0 && s.limit+1 >= float64(s.bad) { // just below: test it once in a while
		if !now.Before(s.until) {
			s.limit = float64(s.bad)
		}
		return
	}
	step := 1.0
	if s.limit >= gallopBelow || s.refused {
		// A tenth per half the time of a refusal, but few at once: a jump of many would be refused as many times.
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

// refuse cuts the limit after a call was refused that had been sent with open calls in flight. stated is the cap by
// the provider's own words; 0 when it does not say.
func (s *slots) refuse(now time.Time, t *Ticket, stated int) {
	if t.sent.Before(s.cutAt) {
		s.join(t, stated)
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
	if s.refused && t.open == s.bad { // the same number twice: it is the cap, so test it less often
		s.hold = min(s.hold*3, longestHold)
	} else if s.refused {
		s.hold = min(s.hold*2, longestHold)
	}
	s.limit = max(1, min(s.limit, limit))
	s.refused = true
	s.bad = int(s.limit) + 1
	s.wave, s.waveAt = append(s.wave[:0], refusal{t.sent, t.open}), s.cutAt
	s.cutAt, s.until = now, now.Add(s.hold)
}

// join takes in another refusal of the wave that led to the last cut. Each call counted as open those of the wave that
// were sent before it, though they were refused.
func (s *slots) join(t *Ticket, stated int) {
	if stated > 0 || t.sent.Before(s.waveAt) || len(s.wave) >= longestWave {
		return
	}
	at := len(s.wave)
	for at > 0 && s.wave[at-1].sent.After(t.sent) {
		at--
	}
	s.wave = slices.Insert(s.wave, at, refusal{t.sent, t.open})
	for before, r := range s.wave {
		if limit := float64(r.open - 1 - before); limit < s.limit && limit >= 0.8*s.cutLen {
			s.limit, s.bad = limit, int(limit)+1
		}
	}
}

// refusal is a refused call: when it was sent, and how many were open then.
type refusal struct {
	sent time.Time
	open int
}

// disproved reports whether the refusal of t shows that the last cut was not about slots at all.
func (s *slots) disproved(t *Ticket) bool {
	return s.refused && !t.sent.Before(s.cutAt) && t.open < s.bad
}

// restore takes the last cut back.
func (s *slots) restore() {
	s.limit = max(s.limit, s.cutLen)
	s.bad, s.refused, s.hold = 0, false, firstHold
}

// queue finds a server that does not refuse but lets calls wait: answers then take longer the more are open.
type queue struct {
	base, mean float64 // seconds; of answers with few open, and of late
	baseN      int
	windowAt   time.Time
	windowN    int
	rate       float64 // answers per second over the last window
	before     float64 // the limit before it was lowered,
	beforeRate float64 // and the rate then
	judgeAt    time.Time
}

// full reports whether answers have become so slow that more open calls would only wait.
func (q *queue) full() bool { return q.baseN >= 4 && q.mean > 1.4*q.base }

// answered learns from an answer that took lat with open calls in flight when it was sent.
func (s *slots) answered(now time.Time, lat time.Duration, open int) {
	q := &s.queue
	l := lat.Seconds()
	if open <= startSlots && q.baseN < 64 {
		q.baseN++
		q.base += (l - q.base) / float64(q.baseN)
	}
	if q.mean == 0 {
		q.mean = l
	}
	q.mean += 0.2 * (l - q.mean)
	q.windowN++
	if q.windowAt.IsZero() {
		q.windowAt, q.windowN = now, 0
	}
	if span := now.Sub(q.windowAt); span >= max(time.Second, seconds(2*q.base)) {
		q.rate = float64(q.windowN) / span.Seconds()
		q.windowAt, q.windowN = now, 0
		s.judge(now)
	}
}

// judge lowers the limit to what the server really serves at once, and takes that back if fewer answers come.
func (s *slots) judge(now time.Time) {
	q := &s.queue
	if q.before > 0 {
		if now.Before(q.judgeAt) {
			return
		}
		if q.rate < 0.85*q.beforeRate {
			s.limit = max(s.limit, q.before)
		}
		q.before = 0
		return
	}
	if s.ceiling > 0 || q.baseN < 4 || q.mean <= 1.5*q.base {
		return
	}
	if to := math.Ceil(1.25*q.rate*q.base) + 1; to < s.limit {
		q.before, q.beforeRate = s.limit, q.rate
		q.judgeAt = now.Add(seconds(4 * q.base))
		s.limit = max(1, to)
	}
}
