package find

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
)

// loop asks for calls at a pace, whatever becomes of them.
type loop struct {
	s    *search
	sh   *shape
	room int // open at once

	wg sync.WaitGroup

	mu    sync.Mutex
	calls []*call
	open  int
	lost  int  // calls in a row, at last, that failed
	full  int  // and that were answered by a server without capacity
	stuck bool // full was too many once
	err   error
	shots []shot // of the first calls, as far as their fate is known
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

// known are the calls whose fate is known, but for those after one that is not. One that is open for longer than any refusal
// took was accepted. The slice only ever grows.
func (l *loop) known() []shot {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, sure := time.Now(), l.s.longestRefusal()
	for _, c := range l.calls[len(l.shots):] {
		switch {
		case !c.over && now.Sub(c.sent) < sure:
			return l.shots
		case !c.over:
			l.shots = append(l.shots, shot{at: c.sent, granted: true})
		default:
			l.shots = append(l.shots, shot{c.sent, c.accepted(), !c.accepted() && !c.refused()})
		}
	}
	return l.shots
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
