package pool

import (
	"context"
	"errors"
	"time"

	"github.com/sluice-llm/sluice"
)

// Do makes a call for the member like Scheduler.Do. Each attempt of fn has its own permit, and the member has no permit
// between attempts. Do releases the permit after each attempt. If Outcome.Open is true, the reader of the response body
// releases the permit. The context passed to fn ends when ctx ends or a time limit is reached, and otherwise not before
// the permit is released. Do returns the same errors as Member.Acquire and Scheduler.Do.
func (m *Member) Do(ctx context.Context, c sluice.Call, fn func(context.Context, *sluice.Permit) sluice.Outcome) (sluice.Tally, error) {
	if err := m.ask(&c); err != nil {
		return sluice.Tally{}, err
	}
	w := doing{m: m, fn: fn, waits: true}
	ctx, w.cancel = m.timeLimit(ctx)
	whole := false
	defer func() {
		if !whole { // an Observer panicked, or fn ended its goroutine
			w.fn = nil
			w.end(0, false)
		}
	}()
	tally, err := m.pool.cfg.Scheduler.Do(ctx, c, w.try)
	whole = true
	w.fn = nil // which may have the permit of an open answer, that nobody else may have any more
	if err == nil && w.cancel == nil {
		return tally, nil
	}
	_, gaveUp := errors.AsType[*sluice.CallError](err)
	w.end(tally.Wait(), err != nil && !gaveUp)
	if w.refused != nil {
		return tally, w.refused
	}
	return tally, m.failed(ctx, err)
}

// doing is one Do, and holds the permits of its tries.
type doing struct {
	m       *Member
	fn      func(context.Context, *sluice.Permit) sluice.Outcome
	cancel  context.CancelFunc // nil: there is no limit of time
	refused error              // why a try was not made that had a permit
	since   time.Time          // when the wait for the next try began; zero before the first

	// Guarded by the pool's mu.
	again bool // it will wait for another try, or give up
	waits bool // it is counted as one that waits
	out   bool // it has a permit
	ended bool
}

// try is one attempt.
func (w *doing) try(ctx context.Context, p *sluice.Permit) sluice.Outcome {
	if w.refused = w.granted(p); w.refused != nil {
		return sluice.Outcome{Kind: sluice.BadRequest, Err: w.refused, Unsent: true}
	}
	o := w.fn(ctx, p)
	if !o.Open && (o.Kind.Throttle() || o.Kind.Transient()) {
		w.since = time.Now()
		w.m.pool.mu.Lock()
		w.again = true
		w.m.pool.mu.Unlock()
	}
	return o
}

// granted ends the wait for a try.
func (w *doing) granted(p *sluice.Permit) error {
	waited := p.Waited()
	if !w.since.IsZero() { // the time in between counts too
		waited = time.Since(w.since)
	}
	w.m.pool.mu.Lock()
	defer w.m.pool.mu.Unlock()
	if !w.waits { // a try that was not foreseen
		w.m.waitLocked()
	}
	err := w.m.grantedLocked(waited, p, w)
	w.waits, w.again, w.out = false, false, err == nil
	return err
}

// Sent records that an attempt was sent.
func (w *doing) Sent(_ *sluice.Permit, at time.Time) { w.m.sent(at) }

// Released records that an attempt gave its permit back.
func (w *doing) Released(p *sluice.Permit, left bool, _ sluice.Kind, used sluice.Usage) {
	w.m.pool.mu.Lock()
	w.m.releasedLocked(p, left, used)
	w.out = false
	if w.again {
		w.waits = true
		w.m.waitLocked()
	}
	over := w.ended
	w.m.pool.mu.Unlock()
	if over && w.cancel != nil {
		w.cancel()
	}
}

// end is the end of Do: a wait that it is still in is over, and counts where that is why it failed.
func (w *doing) end(waited time.Duration, counts bool) {
	m := w.m
	if !w.since.IsZero() {
		waited = time.Since(w.since)
	}
	m.pool.mu.Lock()
	if w.waits {
		w.waits = false
		if counts {
			m.endWaitLocked(waited)
		} else {
			m.waiting--
			m.pool.total.waiting--
		}
	}
	w.ended = true
	over := !w.out // else it is over with the open answer
	m.pool.mu.Unlock()
	if over && w.cancel != nil {
		w.cancel()
	}
}
