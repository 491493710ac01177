package find

import (
	"context"
	"time"
)

const (
	firstGap    = 50 * time.Millisecond
	longestGap  = 8 * time.Second
	shortestGap = time.Millisecond // whatever refuses calls now and then, but lets them come so soon, is no bucket
	control     = 20               // calls in a row, none of which passes if refused ones are charged
	mostEmpty   = 64               // calls at once that a bucket lets in which is said to be empty
)

// byGaps finds the rate of a bucket that charges refused calls as well: an open loop keeps it empty for ever. After a
// refusal it holds nothing, so that a call passes exactly if the gap before it was long enough. ok is false if it is
// something else: many pass at once, after a storm or in a window that has begun anew, or one passes as well while others
// are refused.
func (s *search) byGaps(ctx context.Context, sh *shape) (r refilled, ok bool, err error) {
	s.enter(PhaseRate, "how long a pause lets one call pass")
	g := gaps{loop: s.newLoop(sh), burst: 2}
	g.room = max(g.room, 4)
	defer func() {
		if ended := g.end(); ended != nil {
			err = ended
		}
	}()
	low, high := time.Duration(0), firstGap
	for began, passed := time.Now(), 0; passed < 2; {
		one, err := g.try(ctx, high)
		if err != nil || g.burst > mostEmpty || time.Since(began) > longestRate/3 {
			return r, false, err
		}
		if one {
			passed++ // once more: a bucket that lets one in after such a pause does so again
		} else {
			low, high, passed = high, min(2*high, longestGap), 0
		}
	}
	if slow, err := g.passesAnyway(ctx, 2*high); err != nil || slow {
		return r, false, err
	}
	for float64(high-low) > fineMargin*float64(high) {
		gap := (low + high) / 2
		one, err := g.try(ctx, gap)
		if err != nil || gap < shortestGap {
			return r, false, err
		}
		if one {
			high = gap
		} else {
			low = gap
		}
	}
	// Whoever asks too often here gets nothing: the rate is the one that surely passes.
	return refilled{perSecond: 1 / high.Seconds(), grants: leastGrants, margin: float64(high-low) / float64(high)}, true, nil
}

// gaps are pauses of an open loop.
type gaps struct {
	*loop
	burst int // so many at once meet a refusal
}

// try empties the bucket and reports whether a call passes after the gap.
func (g *gaps) try(ctx context.Context, gap time.Duration) (passed bool, err error) {
	for g.burst <= mostEmpty {
		first := len(g.calls)
		for range g.burst {
			g.send(ctx)
		}
		if err := sleep(ctx, gap); err != nil {
			return false, err
		}
		last := len(g.calls)
		g.send(ctx)
		if err := sleep(ctx, g.s.longestRefusal()); err != nil {
			return false, err
		}
		if g.refusedAmong(first, last) > 0 {
			return g.refusedAmong(last, len(g.calls)) == 0, nil
		}
		g.burst *= 2
	}
	return false, nil
}

// passesAnyway reports whether a call passes among many that come without a pause.
func (g *gaps) passesAnyway(ctx context.Context, during time.Duration) (bool, error) {
	for range g.burst {
		g.send(ctx)
	}
	first := len(g.calls)
	for range control {
		if err := sleep(ctx, during/control); err != nil {
			return false, err
		}
		g.send(ctx)
	}
	if err := sleep(ctx, g.s.longestRefusal()); err != nil {
		return false, err
	}
	return g.refusedAmong(first, len(g.calls)) < len(g.calls)-first, nil
}

// refusedAmong is how many of these calls were refused.
func (l *loop) refusedAmong(from, to int) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.calls[from:to] {
		if c.over && c.refused() {
			n++
		}
	}
	return n
}
