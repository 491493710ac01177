package sluice

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/internal/planted"
	"github.com/sluice-llm/sluice/limits"
)

// Permit gives one attempt a concurrency slot and reserves the cost of the call. Release each permit exactly once.
type Permit struct {
	s       *Scheduler
	ticket  *gate.Ticket // used again for another call once it is released: id tells
	id      uint64
	attempt int
	last    bool   // of the call
	call    string // for who releases twice
	lane    string
	granted time.Time
	waited  time.Duration
	sent    atomic.Uint32
	given   atomic.Bool // back
	holder  Holder      // nil: nobody is told
}

// What is known of a call's departure.
const (
	notSent = iota
	wasSent // Sent said so
	settled // the permit came back without
)

// Holder receives notifications when a permit's request is sent and when the permit is released. Holder methods run without a lock of the Scheduler
// and must return quickly.
type Holder interface {
	// Sent is called once if the request is sent: by Permit.Sent, or otherwise during the release. If Permit.Sent is not
	// called, at is the time at which the permit was granted.
	Sent(p *Permit, at time.Time)
	// Released is called once, before another call can receive the slot. left reports whether the request was sent.
	// used is the usage that the response stated, or zero.
	Released(p *Permit, left bool, kind Kind, used Usage)
}

// SetHolder sets the holder that receives notifications about the permit. Call SetHolder before other goroutines use the permit.
func (p *Permit) SetHolder(h Holder) { p.holder = h }

// Holder returns the holder of the permit, or nil if SetHolder was not called.
func (p *Permit) Holder() Holder { return p.holder }

// Waited returns the waiting time of the call for this permit.
func (p *Permit) Waited() time.Duration { return p.waited }

// ReleaseIfLost makes the garbage collector release the permit after the program drops all references to the permit.
func (p *Permit) ReleaseIfLost() {
	twin := &Permit{s: p.s, ticket: p.ticket, id: p.id, attempt: p.attempt, call: p.call, lane: p.lane,
		granted: p.granted, waited: p.waited, holder: p.holder}
	runtime.AddCleanup(p, forgotten, twin)
}

// forgotten gives back a permit by its twin, if that was not done.
func forgotten(twin *Permit) {
	twin.s.mu.Lock()
	held := twin.heldLocked()
	if held && twin.ticket.Left { // which the holder knows
		twin.sent.Store(wasSent)
	}
	twin.s.mu.Unlock()
	if held {
		twin.TryRelease(Outcome{Abandoned: true})
	}
}

// Attempt returns the number of this attempt, starting at 1. Rate-limited attempts are not counted.
func (p *Permit) Attempt() int { return p.attempt }

// Last reports whether this is the last attempt of the call. A rate-limited last attempt may still be retried.
func (p *Permit) Last() bool { return p.last }

// heldLocked reports whether the permit was not given back yet.
func (p *Permit) heldLocked() bool { return p.ticket.ID == p.id && p.ticket.Granted() }

// Sent records the current time as the send time of the request. If Sent is not called, the send time is the time at which the permit was granted.
func (p *Permit) Sent() {
	s := p.s
	s.mu.Lock()
	now := time.Now()
	if p.heldLocked() {
		p.ticket.Left = true
		s.gate.Sent(now, p.ticket)
	}
	s.mu.Unlock()
	if p.sent.CompareAndSwap(notSent, wasSent) && p.holder != nil {
		p.holder.Sent(p, now)
	}
}

// Answered reports the limits in the headers of a successful response before its body arrives. The later Release may report the same limits again.
func (p *Permit) Answered(readings []limits.Reading) {
	s := p.s
	s.mu.Lock()
	if p.heldLocked() {
		s.gate.Answered(time.Now(), p.ticket, readings)
	}
	s.unlockAndFlush()
}

// Release frees the slot of the permit and reports the outcome of the attempt. A second Release of the same permit panics.
func (p *Permit) Release(o Outcome) { p.release(&o, nil) }

// TryRelease releases the permit like Release. If the permit was already released, TryRelease returns false.
func (p *Permit) TryRelease(o Outcome) bool {
	_, _, ok := p.tryRelease(&o, nil)
	return ok
}

// release also tells how long it was since the call was sent.
func (p *Permit) release(o *Outcome, givenUp func(Outcome)) (gate.Decision, time.Duration) {
	d, latency, ok := p.tryRelease(o, givenUp)
	if !ok {
		panic(fmt.Sprintf("sluice: permit %d (call %q, lane %q) released twice", p.id, p.call, p.lane))
	}
	return d, latency
}

func (p *Permit) tryRelease(o *Outcome, givenUp func(Outcome)) (d gate.Decision, latency time.Duration, ok bool) {
	if !p.given.CompareAndSwap(false, true) {
		return d, 0, false
	}
	s := p.s
	if o.Kind == Network && (errors.Is(o.Err, context.Canceled) || errors.Is(o.Err, context.DeadlineExceeded)) {
		o.Abandoned = true
	}
	p.tellReleased(o)
	if planted.Every("permit leaked", 1000) {
		return d, 0, true
	}
	s.mu.Lock()
	now := time.Now()
	latency = now.Sub(p.ticket.Sent())
	d = s.gate.Release(now, p.ticket, o)
	if givenUp != nil && d.Action == gate.GiveUp {
		givenUp(*o)
	}
	s.recycleLocked(p.ticket)
	s.unlockAndFlush()
	runtime.KeepAlive(p) // else it could be found forgotten, and be released again, before it was
	return d, latency, true
}

func (p *Permit) tellReleased(o *Outcome) {
	said := !p.sent.CompareAndSwap(notSent, settled)
	if p.holder == nil {
		return
	}
	left := said || !o.Unsent
	if left && !said {
		p.holder.Sent(p, p.granted)
	}
	used := Usage{}
	if o.HasUsage {
		used = o.Usage
	}
	p.holder.Released(p, left, o.Kind, used)
}
