package find

import (
	"context"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
)

const (
	leastGrants  = 12
	mostGrants   = 40
	fineMargin   = 0.025 // a rate that is known so well is known well enough
	usualPace    = 20.0  // requests per second: rejections cost nothing, and tell more when they come often
	fastestPace  = 400.0
	leastRefused = 0.1             // of requests that come faster than a bucket refills: no bucket rejects fewer
	silence      = 5 * time.Second // without a grant: rejected requests may be charged
	slowest      = 500 * time.Millisecond
	longestRate  = 4 * time.Minute  // of measuring
	shortRate    = 75 * time.Second // when a few grants have to do
)

// measure measures the refill of the bucket that rejects requests of a shape. found is false when so many are accepted in a
// row that it was no bucket.
func (s *search) measure(ctx context.Context, d limits.Dimension, sh *shape, q question) (found bool, err error) {
	s.enter(PhaseRate, "measuring the refill rate of %s", d)
	q.least, q.patient = leastGrants, s.forgiving
	r, found, err := s.ask(ctx, sh, q)
	if err != nil || !found {
		return found, err
	}
	if r.perSecond == 0 && !s.forgiving { // no request is accepted under the loop
		charges := false
		if r, charges, err = s.byGaps(ctx, sh); err != nil {
			return true, err
		}
		if charges {
			s.note("rejected requests also count against the limit, so a client that retries immediately never succeeds")
		} else {
			q.patient, s.forgiving = true, true
			if r, found, err = s.ask(ctx, sh, q); err != nil || !found {
				return found, err
			}
		}
		s.h.limits[d].tedious = charges || r.clumped
	}
	if r.perSecond == 0 {
		s.note("requests are rejected, and none succeeded in %s: the rate could not be measured", longestRate/2)
		return true, nil
	}
	s.h.believe(d, r, s.h.takes(d, sh), sh)
	s.p.log("%s: %.1f per minute, measured with %d accepted requests", d, s.h.limits[d].Value, r.grants)
	return true, nil
}

// question is when an inquiry ends.
type question struct {
	least   int     // grants
	row     int     // accepted requests in a row that prove that there is no bucket; 0: a minute's worth of what the answer needs
	patient bool    // it continues although no request is accepted
	pace    float64 // at which requests were rejected: a slower loop may find a bucket refilled; 0: unknown
}

// ask sends requests at a pace until the rate of their grants is known well enough. found is false when so many are accepted
// in a row that no bucket can have rejected any before. A rate of zero states that none is accepted.
func (s *search) ask(ctx context.Context, sh *shape, q question) (r refilled, found bool, err error) {
	now := time.Now()
	i := inquiry{h: s.h, loop: s.loop(sh), q: q, began: now, grantedAt: now, changedAt: now, pace: max(q.pace, usualPace)}
	end := goOn
	for err == nil && end == goOn {
		if err = i.next(ctx); err == nil {
			end = i.look()
			i.adapt()
		}
	}
	if ended := s.end(i.loop); ended != nil {
		err = ended
	}
	return i.rate, end == measured, err
}

// inquiry is a loop whose pace follows what it sees.
type inquiry struct {
	h    *hypotheses
	loop *loop
	q    question

	began     time.Time
	grantedAt time.Time // the last grant, or so
	changedAt time.Time // the pace
	pace      float64   // requests per second
	gap       time.Duration

	shots []shot
	rate  refilled // by these
	sized int      // shots that the rate was last computed from
	row   int      // shots in a row, until now, that were accepted,
	miss  int      // or rejected
	first bool     // none was rejected yet
}

// next sends a request when it is due.
func (i *inquiry) next(ctx context.Context) error {
	if i.gap == 0 {
		i.gap = seconds(1 / i.pace)
	}
	if err := wake.In(ctx, i.gap, nil); err != nil {
		return err
	}
	if _, err := i.loop.check(); err != nil {
		return err
	}
	if !i.loop.send(ctx) { // they wait for one another, not for a bucket
		i.loop.room = min(2*i.loop.room, i.loop.most)
		i.grantedAt = time.Now()
	}
	return nil
}

// verdict is the end of an inquiry.
type verdict int

const (
	goOn     verdict = iota
	measured         // the rate is known; 0: no request is accepted
	noBucket         // rejects these requests
)

// look takes in the requests that are over.
func (i *inquiry) look() verdict {
	i.take(i.loop.known(i.h.m.longestRefusal()))
	if len(i.shots) > i.sized+i.sized/50 { // all anew each time would be quadratic
		i.sized, i.rate = len(i.shots), refill(i.shots)
	}
	took, quiet := time.Since(i.began), time.Since(i.grantedAt)
	if i.h.settled(&i.rate, i.q.least, took) {
		if refusedSince(i.shots) >= leastRefused {
			return measured
		} else if i.rate.grants >= 2*mostGrants {
			return noBucket
		}
	}
	switch {
	case i.fast() && float64(i.row) > i.plenty():
		return noBucket
	case !i.q.patient && quiet > silence, quiet > longestRate/2:
		i.rate = refilled{}
		return measured
	case took > longestRate:
		return measured
	}
	return goOn
}

// take counts the new shots.
func (i *inquiry) take(shots []shot) {
	for _, one := range shots[len(i.shots):] {
		switch {
		case one.granted:
			i.grantedAt, i.gap = one.at, 0
			i.row, i.miss = i.row+1, 0
		case one.failed:
			i.row++
		default:
			i.row, i.miss = 0, i.miss+1
		}
	}
	i.first = i.row == len(shots)
	i.shots = shots
}

// fast reports whether the pace is so high that a bucket which bounds the answer would reject some requests.
func (i *inquiry) fast() bool {
	times := 3.0
	if i.q.row > 0 {
		times = 2
	}
	return i.pace >= min(times*i.h.need(), fastestPace)
}

// plenty returns the number of accepted requests in a row that prove that there is no bucket.
func (i *inquiry) plenty() float64 {
	switch {
	case i.q.row > 0:
		return max(20, float64(i.q.row))
	case i.first && !i.q.patient: // the bucket was not empty even at first
		return max(60, 10*i.h.need())
	}
	return max(20, 66*i.h.need()) // a minute's worth, in one go
}

// adapt sets the pace of the next requests.
func (i *inquiry) adapt() {
	now := time.Now()
	switch {
	case !i.fast() && float64(i.row) > max(20, 2*i.pace) && now.Sub(i.changedAt) > time.Second:
		i.pace, i.changedAt, i.gap = 2*i.pace, now, 0
	case i.pace > usualPace && i.miss > int(i.pace/4): // a quarter of a second
		i.pace, i.gap = max(usualPace, i.pace/2), 0
	case i.rate.grants >= 3:
		i.pace = min(max(1.5*i.rate.perSecond, min(5*i.rate.perSecond, usualPace)), fastestPace)
	}
	if now.Sub(i.grantedAt) > silence {
		i.gap = min(slowest, i.gap*3/2)
	}
}

const (
	firstGap    = 50 * time.Millisecond
	longestGap  = 8 * time.Second
	shortestGap = time.Millisecond // a cause that rejects requests, but accepts them so soon again, is no bucket
	control     = 20               // requests in a row that are all rejected if rejected ones are charged
	mostEmpty   = 64               // requests at once that an empty bucket accepts at most
)

// byGaps measures the rate of a bucket that charges rejected requests too, and which a loop therefore keeps empty. After a
// rejection it holds nothing, so that a request is accepted exactly if the gap before it was long enough. ok is false if the
// cause is another: many are accepted at once, after a storm or in a new window, or one is accepted although others are
// rejected.
func (s *search) byGaps(ctx context.Context, sh *shape) (r refilled, ok bool, err error) {
	s.enter(PhaseRate, "measuring the shortest pause after which one request succeeds")
	g := gaps{loop: s.loop(sh), m: s.m, burst: 2}
	g.room = max(g.room, 4)
	low, high, err := g.bracket(ctx)
	if err == nil && high > 0 {
		low, high, err = g.bisect(ctx, low, high)
	}
	if ended := s.end(g.loop); ended != nil {
		err = ended
	}
	if err != nil || high == 0 {
		return r, false, err
	}
	// A client that asks too often here gets nothing: the rate is the one that is accepted for certain.
	return refilled{perSecond: 1 / high.Seconds(), grants: leastGrants, margin: float64(high-low) / float64(high)}, true, nil
}

// gaps are pauses of a loop.
type gaps struct {
	*loop
	m     *measurements
	burst int // requests at once of which one is rejected
}

// bracket returns a gap that is too short and one that is long enough; 0: the cause of the rejections is another.
func (g *gaps) bracket(ctx context.Context) (low, high time.Duration, err error) {
	high = firstGap
	for began, passed := time.Now(), 0; passed < 2; {
		one, err := g.try(ctx, high)
		if err != nil || g.burst > mostEmpty || time.Since(began) > longestRate/3 {
			return 0, 0, err
		}
		if one {
			passed++ // once more: a bucket that accepts one after such a pause does so again
		} else {
			low, high, passed = high, min(2*high, longestGap), 0
		}
	}
	if anyway, err := g.passesAnyway(ctx, 2*high); err != nil || anyway {
		return 0, 0, err
	}
	return low, high, nil
}

// bisect narrows the two gaps.
func (g *gaps) bisect(ctx context.Context, low, high time.Duration) (_, _ time.Duration, err error) {
	for float64(high-low) > fineMargin*float64(high) {
		gap := (low + high) / 2
		one, err := g.try(ctx, gap)
		switch {
		case err != nil || gap < shortestGap:
			return 0, 0, err
		case one:
			high = gap
		default:
			low = gap
		}
	}
	return low, high, nil
}

// try empties the bucket and reports whether a request is accepted after the gap.
func (g *gaps) try(ctx context.Context, gap time.Duration) (passed bool, err error) {
	for g.burst <= mostEmpty {
		first := len(g.calls)
		if err := g.fire(ctx, g.burst, gap); err != nil {
			return false, err
		}
		last := len(g.calls)
		if err := g.fire(ctx, 1, g.m.longestRefusal()); err != nil {
			return false, err
		}
		if g.refused(first, last) > 0 {
			return g.refused(last, len(g.calls)) == 0, nil
		}
		g.burst *= 2
	}
	return false, nil
}

// passesAnyway reports whether a request is accepted among many that come without a pause.
func (g *gaps) passesAnyway(ctx context.Context, during time.Duration) (bool, error) {
	if err := g.fire(ctx, g.burst, 0); err != nil {
		return false, err
	}
	first := len(g.calls)
	for range control {
		if err := wake.In(ctx, during/control, nil); err != nil {
			return false, err
		}
		g.send(ctx)
	}
	err := wake.In(ctx, g.m.longestRefusal(), nil)
	return g.refused(first, len(g.calls)) < len(g.calls)-first, err
}

// fire sends requests at once, and waits.
func (g *gaps) fire(ctx context.Context, n int, then time.Duration) error {
	for range n {
		g.send(ctx)
	}
	return wake.In(ctx, then, nil)
}
