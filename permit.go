package sluice

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
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
	sent    atomic.Bool
	given   atomic.Bool // back
	holder  Holder      // nil: nobody is told
}

// Holder is told what becomes of a permit by whoever causes it, under no lock. It must be quick.
type Holder interface {
	// Sent is called once for a call that leaves: when Permit.Sent says so, or else when its permit is given back, unless it
	// is as Unsent.
	Sent(p *Permit)
	// Released is called once, after Sent and before anybody else may have the slot, with what the call used, if that is
	// known.
	Released(p *Permit, used Usage)
}

// HeldBy tells h of what becomes of the permit from now on. It is for whoever acquired it, before others know it.
func (p *Permit) HeldBy(h Holder) { p.holder = h }

// Holder is who HeldBy said, or nil.
func (p *Permit) Holder() Holder { return p.holder }

// WasSent reports whether the call has left.
func (p *Permit) WasSent() bool { return p.sent.Load() }

// Orphan says that whoever answered for the permit is gone. Others may still release it. If nobody can, since nobody has it
// any more, it is given back when the garbage collector finds that out: the slot is not lost.
func (p *Permit) Orphan() {
	twin := &Permit{s: p.s, ticket: p.ticket, id: p.id, attempt: p.attempt, call: p.call, lane: p.lane, holder: p.holder}
	runtime.AddCleanup(p, forgotten, twin)
}

// forgotten gives back a permit by its twin, if that was not done.
func forgotten(twin *Permit) {
	twin.s.mu.Lock()
	held := twin.heldLocked()
	twin.s.mu.Unlock()
	if held {
		twin.TryRelease(Outcome{Abandoned: true})
	}
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
	p.tellSent()
}

// tellSent tells the holder once.
func (p *Permit) tellSent() {
	if p.sent.CompareAndSwap(false, true) && p.holder != nil {
		p.holder.Sent(p)
	}
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

// TryRelease is Release that returns false where the permit was given back already.
func (p *Permit) TryRelease(o Outcome) bool {
	_, _, ok := p.tryRelease(&o)
	return ok
}

// release also tells how long it was since the call was sent.
func (p *Permit) release(o *Outcome) (gate.Decision, time.Duration) {
	d, latency, ok := p.tryRelease(o)
	if !ok {
		panic(fmt.Sprintf("sluice: permit %d (call %q, lane %q) released twice", p.id, p.call, p.lane))
	}
	return d, latency
}

func (p *Permit) tryRelease(o *Outcome) (d gate.Decision, latency time.Duration, ok bool) {
	if !p.given.CompareAndSwap(false, true) {
		return d, 0, false
	}
	s := p.s
	if o.Kind == Network && (errors.Is(o.Err, context.Canceled) || errors.Is(o.Err, context.DeadlineExceeded)) {
		o.Abandoned = true
	}
	if p.holder != nil {
		if !o.Unsent {
			p.tellSent()
		}
		used := Usage{}
		if o.HasUsage {
			used = o.Usage
		}
		p.holder.Released(p, used)
	}
	s.mu.Lock()
	now := time.Now()
	latency = now.Sub(p.ticket.Sent())
	d = s.gate.Release(now, p.ticket, o)
	s.recycleLocked(p.ticket)
	s.unlockAndFlush()
	return d, latency, true
}
