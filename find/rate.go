package find

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
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

// loop asks for calls at a pace, whatever becomes of them.
type loop struct {
	s    *search
	sh   *shape
	room int // open at once

	mu    sync.Mutex
	calls []*call
	open  int
	lost  int  // calls in a row, at last, that failed
	full  int  // and that were answered by a server without capacity
	stuck bool // full was too many once
	wg    sync.WaitGroup
	err   error
}

// call is one of a loop. reply is set when it is over.
type call struct {
	sent time.Time
	over bool
	reply
}

func (s *search) newLoop(sh *shape) *loop {
	return &loop{s: s, sh: sh, room: s.room()}
}

// room is how many calls may surely be open, or may be tried.
func (s *search) room() int {
	if s.slots.Known() {
		return max(1, min(int(s.slots.Value), s.cfg.MaxWorkers))
	}
	return min(max(4, s.seen), s.cfg.MaxWorkers)
}

// send makes a call, unless there are as many open as may be. It does not wait.
func (l *loop) send(ctx context.Context) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.open >= l.room {
		return false
	}
	c := &call{sent: time.Now()}
	l.calls = append(l.calls, c)
	l.open++
	l.wg.Go(func() {
		r, err := l.s.p.probe(ctx, l.sh)
		l.mu.Lock()
		defer l.mu.Unlock()
		c.reply, c.over = r, true
		l.open--
		l.settleLocked(&c.reply, err)
	})
	return true
}

// hopeless is how many calls in a row fail where it is of no use to go on.
const hopeless = 16

// settleLocked takes the end of a call into account.
func (l *loop) settleLocked(r *reply, err error) {
	switch {
	case err != nil:
		l.err = cmp.Or(l.err, err)
	case r.accepted() || r.refused():
		l.lost, l.full = 0, 0
	case r.outcome.Kind == sluice.Overloaded:
		l.full++
		l.stuck = l.stuck || l.full >= hopeless
	default:
		l.lost++
		if l.lost >= hopeless && l.err == nil {
			l.err = fmt.Errorf("%w: %d in a row: %w", ErrUnreliable, l.lost, r.outcome.Err)
		}
	}
}

// going fails when there is no point in sending more. crowded says that the server has no capacity.
func (l *loop) going() (crowded bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stuck, l.err
}

// widen lets more be open, if nobody knows how many may be.
func (l *loop) widen() {
	if !l.s.slots.Known() {
		l.room = min(2*l.room, l.s.cfg.MaxWorkers)
	}
}

// shots are the calls whose fate is known. One that is open for longer than any refusal took was accepted.
func (l *loop) shots() []shot {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, sure := time.Now(), l.s.longestRefusal()
	var all []shot
	for _, c := range l.calls {
		switch {
		case !c.over && now.Sub(c.sent) < sure:
			return all
		case !c.over:
			all = append(all, shot{at: c.sent, granted: true})
		default:
			all = append(all, shot{c.sent, c.accepted(), !c.accepted() && !c.refused()})
		}
	}
	return all
}

// end waits for the calls that are open, and learns from all.
func (l *loop) end() error {
	l.wg.Wait()
	replies := make([]reply, len(l.calls))
	for i, c := range l.calls {
		replies[i] = c.reply
	}
	l.s.learn(l.sh, replies...)
	return cmp.Or(l.err, failing(replies))
}

// measure finds the refill of the bucket that refuses calls of a shape. found is false when so many calls pass in a row
// that it was no bucket.
func (s *search) measure(ctx context.Context, d sluice.Dimension, sh *shape, q question) (found bool, err error) {
	s.enter(PhaseRate, "how fast %s are refilled", d)
	q.least, q.patient = leastGrants, s.forgiving
	r, found, err := s.askAll(ctx, sh, q)
	if err != nil || !found {
		return found, err
	}
	if r.perSecond == 0 && !s.forgiving { // nothing passes while one asks
		charges := false
		if r, charges, err = s.byGaps(ctx, sh); err != nil {
			return true, err
		}
		if charges {
			s.note("refused calls count against the limit, too: a client that asks again at once gets nothing")
		} else {
			q.patient, s.forgiving = true, true
			if r, found, err = s.askAll(ctx, sh, q); err != nil || !found {
				return found, err
			}
		}
		s.tedious[d] = charges || r.clumped
	}
	if r.perSecond == 0 {
		s.note("calls are refused, and none passed in %s: their rate could not be measured", longestRate/2)
		return true, nil
	}
	s.believe(d, r, s.takes(d, sh))
	s.by[d] = *sh
	return true, nil
}

// believe takes a measured rate for a limit.
func (s *search) believe(d sluice.Dimension, r refilled, per float64) {
	s.limits[d] = Finding{Value: r.perSecond * 60 * per, Source: sluice.SourceMeasured, Margin: max(r.margin, 0.25/float64(r.grants)), At: time.Now()}
	s.grants[d] = max(1, int(math.Round(1/(2*r.margin))))
	s.log("%s: %.1f a minute, by %d grants", d, s.limits[d].Value, r.grants)
}

// takes is what a call of a shape takes of a budget.
func (s *search) takes(d sluice.Dimension, sh *shape) float64 {
	switch {
	case d == sluice.Requests:
		return 1
	case sh.name == "declared":
		return float64(sh.bound)
	}
	return s.perChar.mean()*float64(len(sh.prompt)+nonceChars) + s.wordOut.mean()
}

// question is when an open loop knows enough.
type question struct {
	least   int     // grants
	row     int     // so many in a row: no bucket; 0: a minute's worth of what the answer needs
	patient bool    // goes on although nothing passes
	pace    float64 // at which calls were refused: a slower loop may find a bucket filled again; 0: not known
}

// askAll is ask with a loop of its own.
func (s *search) askAll(ctx context.Context, sh *shape, q question) (refilled, bool, error) {
	l := s.newLoop(sh)
	r, found, err := s.ask(ctx, l, q)
	if ended := l.end(); ended != nil {
		err = ended
	}
	return r, found, err
}

// ask runs an open loop until the rate of its grants is known well enough. found is false when so many calls passed in a
// row that no bucket can be what refused before.
func (s *search) ask(ctx context.Context, l *loop, q question) (r refilled, found bool, err error) {
	began, lastChange := time.Now(), time.Now()
	pace, gap := max(q.pace, usualPace), time.Duration(0)
	var lastGrant time.Time
	judged := 0 // shots that were looked at
	for {
		if gap == 0 {
			gap = seconds(1 / pace)
		}
		if err := sleep(ctx, gap); err != nil {
			return r, true, err
		}
		if _, err := l.going(); err != nil {
			return r, true, err
		}
		if !l.send(ctx) { // so many are open: they wait for one another, not for a bucket
			l.widen()
			lastGrant = time.Now()
		}
		shots := l.shots()
		for ; judged < len(shots); judged++ {
			if shots[judged].granted {
				lastGrant, gap = shots[judged].at, 0
			}
		}
		r = refill(shots)
		if s.enough(&r, q.least, time.Since(began)) {
			if found = refusedSince(shots) >= leastRefused; found || r.grants >= 2*mostGrants {
				return r, found, nil
			}
		}
		fast, enough := pace >= min(3*s.need(), fastestPace), 66*s.need()
		if q.row > 0 {
			fast, enough = pace >= min(2*s.need(), fastestPace), float64(q.row)
		} else if !q.patient && len(shots) > 0 && sinceRefusal(shots) == len(shots) { // not even at first: no bucket was empty
			enough = max(60, 10*s.need())
		}
		if row := float64(sinceRefusal(shots)); fast && row > max(20, enough) {
			return r, false, nil // a minute's worth, at one go
		} else if !fast && row > max(20, 2*pace) && time.Since(lastChange) > time.Second {
			pace, lastChange, gap = 2*pace, time.Now(), 0
		} else if pace > usualPace && refusedLast(shots) > int(pace/4) { // a quarter of a second
			pace, gap = max(usualPace, pace/2), 0
		} else if r.grants >= 3 {
			pace = min(max(1.5*r.perSecond, min(5*r.perSecond, usualPace)), fastestPace)
		}
		quiet := time.Since(latest(began, lastGrant))
		switch {
		case !q.patient && quiet > silence, quiet > longestRate/2:
			return refilled{}, true, nil
		case quiet > silence:
			gap = min(slowest, gap*3/2)
		}
		if time.Since(began) > longestRate {
			return r, true, nil
		}
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// refusedLast is how many calls in a row were refused at last.
func refusedLast(shots []shot) (n int) {
	for i := len(shots) - 1; i >= 0 && !shots[i].granted; i-- {
		n++
	}
	return n
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

// sinceRefusal is how many calls in a row passed at last.
func sinceRefusal(shots []shot) (n int) {
	for i := len(shots) - 1; i >= 0 && (shots[i].granted || shots[i].failed); i-- {
		n++
	}
	return n
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
