package provider

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/sluice-llm/sluice"
)

// routed is one call on its way. It waits at one upstream at a time; one goroutine drives it, and others may end its wait.
type routed struct {
	upstreams *Upstreams
	ctx       context.Context // of the call; lives as long as it
	call      sluice.Call
	fn        func(context.Context, *sluice.Permit, Via) sluice.Outcome
	ways      []way
	offered   []offer // used again

	tried     uint64 // upstreams that failed it, by index, since all of them last had
	spent     int    // attempts
	throttles int
	inRow     int  // of those, at the present upstream
	unsent    bool // the permit was given back there, as the upstream was left out
	tally     sluice.Tally

	// Guarded by Upstreams.mu:
	at         way
	move       context.CancelFunc // ends the wait
	from       time.Time          // it waits since, after its own wait for another attempt
	waits      bool
	prev, next *routed // of those that wait
}

// choose returns where the call goes; false if all are left out.
func (r *routed) choose() (way, bool) {
	q, ok := r.upstreams.best(r.offers(r.tried))
	if !ok {
		r.tried = 0
		q, ok = r.upstreams.best(r.offers(0))
	}
	return q.way, ok
}

// visit makes the call at one upstream until it is over or moves. A move ends the wait: Do returns then, also after an
// attempt, once its permit is given back.
func (r *routed) visit(at way) (again bool, err error) {
	u := r.upstreams
	wait, move := context.WithCancel(r.ctx)
	defer move()
	u.join(r, at, move)
	defer u.leave(r) // also when an attempt ends the goroutine
	call := r.call
	call.Lane = at.lane
	tally, err := at.up.Scheduler.Do(wait, call, r.try)
	u.leave(r)
	unsent := r.unsent
	if unsent {
		tally.Attempts-- // Do counts what was not sent
	}
	r.unsent, r.inRow = false, 0
	r.tally = r.tally.Add(tally)

	failure, failed := errors.AsType[*sluice.CallError](err)
	switch {
	case err == nil:
		return false, nil
	case unsent:
		return true, nil
	case failed && failure.Kind.Fatal() && !failure.Final:
		return true, nil
	case errors.Is(err, sluice.ErrTooLarge) && r.elsewhere():
		return true, nil
	case failed:
		return false, &sluice.CallError{Outcome: failure.Outcome, Tally: r.tally}
	case r.ctx.Err() != nil:
		return false, r.ctx.Err()
	case wait.Err() != nil:
		u.look() // what moved this call may hold others as well
		return true, nil
	}
	return false, err
}

// elsewhere notes that the present upstream is of no use to the call, and reports whether another one may be.
func (r *routed) elsewhere() bool {
	r.tried |= 1 << r.at.up.index
	return len(r.offers(r.tried)) > 0
}

// try is one attempt, under a permit of the upstream that the call waited for.
func (r *routed) try(_ context.Context, permit *sluice.Permit) sluice.Outcome {
	via, ok := r.upstreams.depart(r)
	if !ok { // the upstream was left out meanwhile
		r.unsent = true
		r.move()
		return sluice.Outcome{Kind: sluice.Network, Unsent: true, Err: context.Canceled}
	}
	up := r.at.up
	up.sent.Add(1)
	o := r.fn(r.ctx, permit, via)
	if o.Kind.Throttle() {
		up.throttles.Add(1)
	}
	r.judge(permit.Attempt(), via, &o)
	return o
}

// judge decides where the call goes on, if it does, after what is for the Scheduler its attempt of that number. It says so in
// the outcome, and may lengthen its wait, which is the call's own.
func (r *routed) judge(attempt int, via Via, o *sluice.Outcome) {
	switch {
	case o.Open || o.Final || o.Kind == sluice.OK || r.ctx.Err() != nil: // it is over, or will be
	case o.Kind.Fatal():
		r.upstreams.refuse(r.at.up, via.Key, o)
		o.Elsewhere = len(r.offers(0)) > 0
	case o.TooLarge:
		o.Elsewhere = r.elsewhere()
	case o.Kind.Throttle():
		if r.throttles++; r.throttles > r.upstreams.cfg.MaxThrottles {
			o.Final = true
			return
		}
		r.throttled(o)
	case o.Kind.Transient():
		if r.spent++; r.spent >= r.upstreams.cfg.Attempts {
			o.Final = true
			return
		}
		r.failed(attempt, o)
	}
}

// failed moves a call whose attempt failed to an upstream that has not failed it, or has it wait for its next attempt.
func (r *routed) failed(attempt int, o *sluice.Outcome) {
	// What the model answers, and what a command does, is the same wherever it is served.
	if o.Kind != sluice.InvalidOutput && o.Kind != sluice.CommandFailed {
		r.tried |= 1 << r.at.up.index
		if q, ok := r.upstreams.best(r.offers(r.tried)); ok && q.delay <= Patience {
			r.move()
			return
		}
		r.tried = 1 << r.at.up.index
	}
	if attempt < r.spent { // which it does not know of
		o.Wait = max(o.Wait, backoff(r.spent))
	}
	r.upstreams.stay(r, o.Wait)
}

const (
	windowWait = 15 * time.Minute // how long a usage window is taken to last where nobody says
	leastWait  = time.Second      // how long a throttled call is taken to wait at least
	mostTimes  = 3                // throttles in a row by the cheapest upstream, before another one is dearer, but sooner
)

// throttled moves a call to an upstream that takes it sooner than this one, which throttled it, may. Where all have, it waits
// here: the lane pauses as it has to.
func (r *routed) throttled(o *sluice.Outcome) {
	u := r.upstreams
	wait := o.Wait
	if !o.Until.IsZero() {
		wait = max(wait, time.Until(o.Until))
	}
	if o.Kind == sluice.UsageWindow && wait <= 0 {
		wait = windowWait
	}
	r.inRow++
	r.tried |= 1 << r.at.up.index
	q, ok := u.best(r.offers(r.tried))
	long := max(wait, leastWait)
	if u.cfg.Prefer == PreferCost && r.inRow < mostTimes && wait <= Patience {
		ok = false
	}
	if ok && q.delay <= long {
		r.move()
		return
	}
	r.tried = 1 << r.at.up.index
	u.stay(r, 0)
}

// backoff is a random part of 0.2 s, doubled with each attempt.
func backoff(attempts int) time.Duration {
	const unit, longest = 200 * time.Millisecond, 30 * time.Second
	return rand.N(min(unit<<min(attempts-1, 20), longest))
}
