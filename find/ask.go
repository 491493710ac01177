package find

import (
	"context"
	"math"
	"time"
)

const (
	leastGrants  = 12
	mostGrants   = 40
	fineMargin   = 0.025 // a rate that is known so well is known well enough
	usualPace    = 20.0  // calls a second: refusals cost nothing, and tell more when they come often
	fastestPace  = 400.0
	leastRefused = 0.1             // of calls that come faster than a bucket is refilled: it is no bucket that refuses fewer
	silence      = 5 * time.Second // without a grant: perhaps refused calls are charged
	slowest      = 500 * time.Millisecond
	longestRate  = 4 * time.Minute  // of measuring
	shortRate    = 75 * time.Second // when a few grants have to do
)

// question is when an open loop knows enough.
type question struct {
	least   int     // grants
	row     int     // so many in a row: no bucket; 0: a minute's worth of what the answer needs
	patient bool    // goes on although nothing passes
	pace    float64 // at which calls were refused: a slower loop may find a bucket filled again; 0: not known
}

// ask runs an open loop until the rate of its grants is known well enough. found is false when so many calls passed in a
// row that no bucket can be what refused before. A rate of zero says that nothing passes.
func (s *search) ask(ctx context.Context, sh *shape, q question) (r refilled, found bool, err error) {
	now := time.Now()
	i := inquiry{search: s, loop: s.newLoop(sh), q: q, began: now, grantedAt: now, changedAt: now, pace: max(q.pace, usualPace)}
	for err == nil {
		if err = i.next(ctx); err != nil {
			break
		}
		if end := i.look(); end != goOn {
			found = end != noBucket
			if end == measured {
				r = i.rate
			}
			break
		}
		i.adapt()
	}
	if ended := i.loop.end(); ended != nil {
		err = ended
	}
	return r, found, err
}

// inquiry is an open loop that is watched. Its pace follows what it sees.
type inquiry struct {
	*search
	loop *loop
	q    question

	began     time.Time
	grantedAt time.Time // the last grant, or so
	changedAt time.Time // the pace
	pace      float64   // calls a second
	gap       time.Duration

	shots []shot
	rate  refilled // by these
	sized int      // as many shots as the rate was last computed from
	row   int      // shots in a row that passed at last,
	miss  int      // or were refused
	first bool     // none was refused yet
}

// next makes a call when it is time to.
func (i *inquiry) next(ctx context.Context) error {
	if i.gap == 0 {
		i.gap = seconds(1 / i.pace)
	}
	if err := sleep(ctx, i.gap); err != nil {
		return err
	}
	if _, err := i.loop.going(); err != nil {
		return err
	}
	if !i.loop.send(ctx) { // so many are open: they wait for one another, not for a bucket
		i.loop.widen()
		i.grantedAt = time.Now()
	}
	return nil
}

// verdict is what an inquiry has come to.
type verdict int

const (
	goOn verdict = iota
	measured
	noBucket // refuses these calls
	nothing  // passes
)

// look takes in what became of the calls.
func (i *inquiry) look() verdict {
	i.take(i.loop.known())
	if len(i.shots) > i.sized+i.sized/50 { // all anew each time would be quadratic
		i.sized, i.rate = len(i.shots), refill(i.shots)
	}
	took := time.Since(i.began)
	if i.enough(&i.rate, i.q.least, took) {
		if refusedSince(i.shots) >= leastRefused {
			return measured
		} else if i.rate.grants >= 2*mostGrants {
			return noBucket
		}
	}
	quiet := time.Since(i.grantedAt)
	switch {
	case i.fast() && float64(i.row) > i.plenty():
		return noBucket
	case !i.q.patient && quiet > silence, quiet > longestRate/2:
		return nothing
	case took > longestRate:
		return measured
	}
	return goOn
}

// take counts the shots that are new.
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

// fast reports whether the loop asks for so much that a bucket which bounds the answer would refuse some.
func (i *inquiry) fast() bool {
	times := 3.0
	if i.q.row > 0 {
		times = 2
	}
	return i.pace >= min(times*i.need(), fastestPace)
}

// plenty is how many calls that pass in a row show that there is no bucket.
func (i *inquiry) plenty() float64 {
	switch {
	case i.q.row > 0:
		return max(20, float64(i.q.row))
	case i.first && !i.q.patient: // none was empty even at first
		return max(60, 10*i.need())
	}
	return max(20, 66*i.need()) // a minute's worth, at one go
}

// adapt sets the pace for what comes.
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

// refusedSince is the share of refused calls since the first that was granted after one.
func refusedSince(shots []shot) float64 {
	n, refused, met := 0, 0, false
	for _, one := range shots {
		no := !one.granted && !one.failed
		met = met || no
		if one.granted && met || n > 0 {
			n++
		}
		if no && n > 0 {
			refused++
		}
	}
	return float64(refused) / float64(max(1, n))
}

// enough reports whether a rate is known so well that more grants would not change the answer.
func (s *search) enough(r *refilled, least int, took time.Duration) bool {
	switch {
	case r.grants < least:
		return r.grants >= 4 && took > shortRate && !r.clumped
	case r.clumped:
		return r.margin < fineMargin
	case r.grants < mostGrants*min(r.failed, 3):
		return false // one that failed and was counted is to weigh little
	case r.grants >= 2*mostGrants:
		return true
	case r.grants >= mostGrants && r.margin <= fineMargin:
		return true
	}
	low, high := r.perSecond*(1-r.margin), r.perSecond*(1+r.margin)
	latency := s.latency.mean()
	return r.margin <= fineMargin && math.Floor(low*latency) == math.Floor(high*latency)
}
