package sluice

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// Permit is a slot and its cost, held while one attempt runs. Release it exactly once.
type Permit struct {
	s       *Scheduler
	ticket  *gate.Ticket // used again for another call once it is released: id tells
	id      uint64
	attempt int
	call    string // for who releases twice
	lane    string
}

// Attempt is the number of the attempt that this permit is for, from 1. A throttled try does not count.
func (p *Permit) Attempt() int { return p.attempt }

// heldLocked reports whether the permit was not given back yet.
func (p *Permit) heldLocked() bool { return p.ticket.ID == p.id && p.ticket.Granted() }

// Sent marks the instant at which the request leaves. Without it, that is when the permit was granted.
func (p *Permit) Sent() {
	s := p.s
	s.mu.Lock()
	if p.heldLocked() {
		s.gate.Sent(time.Now(), p.ticket)
	}
	s.mu.Unlock()
}

// Answered tells what the head of a good answer says before its body has come, which may take long. Release may tell
// it again.
func (p *Permit) Answered(readings []Reading) {
	s := p.s
	s.mu.Lock()
	if p.heldLocked() {
		s.gate.Answered(time.Now(), p.ticket, readings)
	}
	s.unlockAndFlush()
}

// Release gives the permit back with what the attempt came to. A second Release panics and names the permit.
func (p *Permit) Release(o Outcome) { p.release(&o) }

// release also tells how long it was since the call was sent.
func (p *Permit) release(o *Outcome) (gate.Decision, time.Duration) {
	s := p.s
	if o.Kind == Network && (errors.Is(o.Err, context.Canceled) || errors.Is(o.Err, context.DeadlineExceeded)) {
		o.Abandoned = true
	}
	s.mu.Lock()
	if !p.heldLocked() {
		s.mu.Unlock()
		panic(fmt.Sprintf("sluice: permit %d (call %q, lane %q) released twice", p.id, p.call, p.lane))
	}
	now := time.Now()
	latency := now.Sub(p.ticket.Sent())
	d := s.gate.Release(now, p.ticket, o)
	s.recycleLocked(p.ticket)
	s.unlockAndFlush()
	return d, latency
}
