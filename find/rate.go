package find

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
)

const (
	leastGrants = 12
	mostGrants  = 40
	fineMargin  = 0.025 // a rate that is known so well is known well enough
	usualPace   = 20.0  // calls a second: refusals cost nothing, and tell more when they come often
	fastestPace = 400.0
	silence     = 5 * time.Second // without a grant: asks less often
	slowest     = 500 * time.Millisecond
	slowestWait = 8 * time.Second  // without any grant ever: perhaps refusals are charged, too
	longestRate = 4 * time.Minute  // of measuring
	shortRate   = 75 * time.Second // when a few grants have to do
)

// loop asks for calls at a pace, whatever becomes of them.
type loop struct {
	s    *search
	sh   *shape
	room int // open at once

	mu    sync.Mutex
	calls []*call
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
	room := max(4, s.seen)
	if s.slots.Known() {
		room = max(1, int(s.slots.Value))
	}
	return &loop{s: s, sh: sh, room: room}
}

// send makes a call, unless there are as many open as may be. It does not wait.
func (l *loop) send(ctx context.Context) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.openLocked() >= l.room {
		return false
	}
	c := &call{sent: time.Now()}
	l.calls = append(l.calls, c)
	l.wg.Go(func() {
		r, err := l.s.p.once(ctx, l.sh)
		l.mu.Lock()
		defer l.mu.Unlock()
		c.reply, c.over = r, true
		if err != nil && l.err == nil {
			l.err = err
		}
	})
	return true
}

func (l *loop) openLocked() (n int) {
	for i := len(l.calls) - 1; i >= 0 && i >= len(l.calls)-2000; i-- {
		if !l.calls[i].over {
			n++
		}
	}
	return n
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
			all = append(all, shot{c.sent, true})
		case c.accepted() || c.refused():
			all = append(all, shot{c.sent, c.accepted()})
		}
	}
	return all
}

// end waits for the calls that are open, and learns from all.
func (l *loop) end() error {
	l.wg.Wait()
	for _, c := range l.calls {
		l.s.learn(l.sh, c.reply)
	}
	return l.err
}

// measure finds the refill of the bucket that refuses calls of a shape. per is what such a call is charged with, 0 for
// one request. found is false when so many calls pass in a row that it was no bucket; row 0 is what the answer needs in a
// minute.
func (s *search) measure(ctx context.Context, d sluice.Dimension, sh *shape, per float64, row int) (found bool, err error) {
	s.enter(PhaseRate, "how fast %s are refilled", d)
	r, found, err := s.askAll(ctx, sh, question{least: leastGrants, row: row})
	if err != nil || !found {
		return found, err
	}
	if r.perSecond == 0 { // nothing passes while one asks
		charged := false
		if r, charged, err = s.bisect(ctx, sh); err != nil {
			return true, err
		}
		if charged {
			s.note("refused calls count against the limit, too: a client that asks again at once gets nothing")
		} else if r, found, err = s.askAll(ctx, sh, question{least: leastGrants, row: row, patient: true}); err != nil || !found {
			return found, err
		}
	}
	if r.perSecond == 0 {
		s.note("calls are refused, and none passed in %s: their rate could not be measured", longestRate/2)
		return true, nil
	}
	s.believe(d, r, per)
	return true, nil
}

// question is when an open loop knows enough.
type question struct {
	least   int  // grants
	row     int  // so many in a row: no bucket; 0: a minute's worth of what the answer needs
	patient bool // goes on although nothing passes
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

// believe takes a measured rate for a limit.
func (s *search) believe(d sluice.Dimension, r refilled, per float64) {
	if per == 0 {
		per = 1
	}
	s.limits[d] = Finding{Value: r.perSecond * 60 * per, Source: sluice.SourceMeasured, Margin: max(r.margin, 0.25/float64(r.grants)), At: time.Now()}
	s.grants[d] = max(1, int(math.Round(1/(2*r.margin))))
	s.log("%s: %.1f a minute, by %d grants", d, s.limits[d].Value, r.grants)
}

// ask runs an open loop until the rate of its grants is known well enough. found is false when so many calls passed in a
// row that no bucket can be what refused before.
func (s *search) ask(ctx context.Context, l *loop, q question) (r refilled, found bool, err error) {
	began, lastChange := time.Now(), time.Now()
	pace, gap := usualPace/2, time.Duration(0)
	var lastGrant time.Time
	for {
		if gap == 0 {
			gap = seconds(1 / pace)
		}
		if err := sleep(ctx, gap); err != nil {
			return r, true, err
		}
		l.send(ctx)
		shots := l.shots()
		if n := len(shots); n > 0 && shots[n-1].granted {
			lastGrant, gap = shots[n-1].at, 0
		}
		r = refill(shots)
		if s.enough(&r, q.least, time.Since(began)) {
			return r, true, nil
		}
		fast, enough := pace >= min(3*s.need(), fastestPace), 66*s.need()
		if q.row > 0 {
			fast, enough = pace >= min(3*s.need(), usualPace), float64(q.row)
		}
		if row := float64(sinceRefusal(shots)); fast && row > max(20, enough) {
			return r, false, nil // a minute's worth, at one go
		} else if !fast && row > max(20, 2*pace) && time.Since(lastChange) > time.Second {
			pace, lastChange, gap = 2*pace, time.Now(), 0
		} else if r.grants >= 3 {
			pace = min(max(1.5*r.perSecond, min(5*r.perSecond, usualPace)), fastestPace)
		}
		quiet := time.Since(latest(began, lastGrant))
		switch {
		case !q.patient && quiet > slowestWait && lastGrant.IsZero(), quiet > longestRate/2:
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

// sinceRefusal is how many calls in a row passed at last.
func sinceRefusal(shots []shot) (n int) {
	for i := len(shots) - 1; i >= 0 && shots[i].granted; i-- {
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
	case r.grants >= 2*mostGrants:
		return true
	case r.grants >= mostGrants && r.margin <= fineMargin:
		return true
	}
	low, high := r.perSecond*(1-r.margin), r.perSecond*(1+r.margin)
	latency := s.latency.mean()
	return r.margin <= fineMargin && math.Floor(low*latency) == math.Floor(high*latency)
}

// bisect finds the rate of a bucket that charges refused calls as well: an open loop keeps it empty for ever. After a
// refusal it holds nothing, so that a call passes exactly if the gap before it was long enough. charged is false if two
// calls pass at once then: it was a storm, or a window that has begun anew.
func (s *search) bisect(ctx context.Context, sh *shape) (r refilled, charged bool, err error) {
	s.enter(PhaseRate, "how long a pause lets one call pass")
	low, high := time.Duration(0), 50*time.Millisecond
	for {
		first, second, err := s.after(ctx, sh, high)
		if err != nil || second {
			return r, false, err
		}
		if first {
			// Once more: a bucket that lets one in after such a pause does so again.
			if first, second, err = s.after(ctx, sh, high); err != nil || second {
				return r, false, err
			}
			if first {
				break
			}
		}
		if low, high = high, 2*high; high > time.Minute {
			return r, false, nil // not even one a minute
		}
	}
	for float64(high-low) > fineMargin*float64(high) {
		gap := (low + high) / 2
		first, _, err := s.after(ctx, sh, gap)
		if err != nil {
			return r, true, err
		}
		if first {
			high = gap
		} else {
			low = gap
		}
	}
	mean := (low + high).Seconds() / 2
	return refilled{perSecond: 1 / mean, grants: leastGrants, margin: (high - low).Seconds() / 2 / mean}, true, nil
}

// after makes a call after a pause, and another at once. Unless both pass, the last was refused, and the bucket is empty.
func (s *search) after(ctx context.Context, sh *shape, gap time.Duration) (first, second bool, err error) {
	if err := sleep(ctx, gap); err != nil {
		return false, false, err
	}
	for _, passed := range []*bool{&first, &second} {
		r, err := s.p.once(ctx, sh)
		if err != nil {
			return first, second, err
		}
		s.learn(sh, r)
		if *passed = r.accepted(); !*passed {
			break
		}
	}
	return first, second, nil
}
