package sluice

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// Do calls fn until an attempt succeeds or no retry can succeed. Do acquires a permit for each attempt. Do returns the number of attempts, the
// waiting times and the token usage of the call.
//
// fn makes one attempt, without retries, and returns the outcome. Do releases the permit after each attempt. If Outcome.Open is true, Do
// returns immediately, and the reader of the response body releases the permit.
//
// If Do gives up on the call, or if fn panics (kind Internal), Do returns a *CallError. If the call exceeds an entire limit, the error wraps
// ErrTooLarge. If the wait for a permit ends early, Do returns the context's error, ErrClosed, ErrWithdrawn or a *SlotTimeoutError.
func (s *Scheduler) Do(ctx context.Context, c Call, fn func(context.Context, *Permit) Outcome) (Tally, error) {
	t := Tally{}
	var y try
	amended := 0
	for {
		y.attempts, y.throttles = t.Attempts-amended, t.Throttles
		p, err := s.acquire(ctx, &c, &y)
		t.Queued += y.waited
		t.Cooldown += y.paused
		if err != nil {
			return t, err
		}
		o := s.attempt(ctx, p, fn)
		if o.Open {
			t.Attempts++
			p.Answered(o.Readings)
			return t, nil
		}
		d, latency := p.release(&o, c.GivenUp)
		t.Latency = latency
		if o.HasUsage {
			t.Usage, t.HasUsage = t.Usage.Add(o.Usage), true
		}
		switch {
		case d.Throttle && o.Unsent: // the pause is not about an attempt of this call
		case d.Throttle:
			if t.Throttles++; t.Throttles == 1 {
				y.throttled = time.Now()
			}
		case !o.Unsent || d.Action != gate.Done:
			t.Attempts++
		}
		if o.Kind == Overloaded {
			y.overloads++
		}
		if o.Amended {
			amended++
		}
		switch d.Action {
		case gate.Done:
			return t, nil
		case gate.GiveUp:
			return t, &CallError{Outcome: o, Tally: t}
		}
		if ctx.Err() != nil {
			return t, ctx.Err()
		}
		if err := s.backoff(ctx, c.Withdrawn, d.Wait, &t); err != nil {
			return t, err
		}
	}
}

// attempt runs fn and makes an outcome of its panic. Where fn ends its goroutine, it gives the permit back.
func (s *Scheduler) attempt(ctx context.Context, p *Permit, fn func(context.Context, *Permit) Outcome) (o Outcome) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if r := recover(); r != nil {
			o = Outcome{Kind: Internal, Err: &PanicError{Value: r, Stack: debug.Stack()}}
			return
		}
		p.Release(Outcome{Kind: Internal}) // runtime.Goexit, as in t.FailNow
	}()
	o = fn(ctx, p)
	returned = true
	return o
}

// backoff waits on its own before a call's next attempt.
func (s *Scheduler) backoff(ctx context.Context, withdrawn <-chan struct{}, wait time.Duration, t *Tally) error {
	if wait <= 0 {
		return nil
	}
	start := time.Now()
	s.retrying.Add(1)
	defer func() {
		s.retrying.Add(-1)
		t.Backoff += time.Since(start)
	}()
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-withdrawn:
		return ErrWithdrawn
	case <-s.closed:
		return ErrClosed
	}
}

// PanicError is the error for an attempt that panicked.
type PanicError struct {
	Value any    // value passed to panic
	Stack []byte // stack trace of the goroutine that panicked, as formatted by debug.Stack
}

// Error returns the panic value and the stack trace.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }
