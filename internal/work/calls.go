package work

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-llm/sluice"
)

// Attempt makes one exchange: it must not retry. The Result of the last attempt is the item's.
type Attempt func(ctx context.Context, permit *sluice.Permit, item Item) (Result, sluice.Outcome)

// Calls returns the innermost Handler: each item is one call of the Scheduler's Do. An attempt that panics fails its
// item with Internal.
//
// When the Runner drains, a call that is open goes on, and one that still waits for its turn does not. An outcome
// that no call can survive stops the Runner before its permit is released.
func Calls(s *sluice.Scheduler, attempt Attempt) Handler {
	if s == nil || attempt == nil {
		panic("work: Calls needs a scheduler and an attempt")
	}
	return newCalls(&calls{scheduler: s, attempt: attempt})
}

// Route sends a call through some Scheduler's Do, of its own choice and perhaps one after another, and returns what that
// took. try is to be called as Do's function, and not twice at once.
type Route func(ctx context.Context, item Item, call sluice.Call, try func(context.Context, *sluice.Permit) sluice.Outcome) (sluice.Tally, error)

// Routed returns an innermost Handler like that of Calls, for items that have several ways to go. What no call can survive at
// one Scheduler does not stop the Runner, but an error of that kind does which the route returns: then there is no other.
func Routed(route Route, attempt Attempt) Handler {
	if route == nil || attempt == nil {
		panic("work: Routed needs a route and an attempt")
	}
	return newCalls(&calls{route: route, attempt: attempt})
}

func newCalls(c *calls) *calls {
	c.states.New = func() any {
		st := &callState{calls: c}
		st.try, st.givenUp = st.run, st.fail // bound once, so that a call allocates no closure
		return st
	}
	return c
}

type calls struct {
	scheduler *sluice.Scheduler // of all items,
	route     Route             // or, if that is nil, of each
	attempt   Attempt
	ration    Ration    // nil lets all in
	states    sync.Pool // *callState
}

// callState is one call while it goes through Do.
type callState struct {
	calls  *calls
	ctx    context.Context // of the handler, not of the wait; lives for one call only
	worker *worker         // nil outside a Runner
	item   Item
	result Result
	turn   Turn // nil without a Ration
	aside  bool // it waits on its own before another attempt, if there is one, and is not counted as queued
	try    func(context.Context, *sluice.Permit) sluice.Outcome

	givenUp func(sluice.Outcome)
}

func (c *calls) Handle(ctx context.Context, item Item) (Result, error) {
	st := c.states.Get().(*callState)
	st.ctx, st.item = ctx, item
	st.worker, _ = ctx.Value(placeKey{}).(*worker)

	wait, done := st.worker.waitContext(ctx)
	defer done()
	w := st.worker
	if w != nil {
		w.settle() // a handler that calls again has no use for the answer before, for which others may wait
	}
	if w != nil && w.counted { // by the worker, so that no moment passes uncounted
		w.counted = false
	} else {
		w.queued(+1)
	}
	counted := true
	defer func() {
		if counted && !st.aside { // the attempt ended the goroutine
			w.queued(-1)
		}
	}()
	var (
		tally sluice.Tally
		err   error
	)
	if c.ration == nil {
		tally, err = c.do(wait, st)
	} else {
		tally, err = c.rationed(wait, st)
	}

	result := st.result
	result.Tally = tally
	aside := st.aside
	st.ctx, st.worker, st.item, st.result, st.turn, st.aside = nil, nil, Item{}, Result{}, nil, false
	c.states.Put(st)
	counted = false
	if !aside {
		w.queued(-1)
	}
	return result, err
}

// do is the call, with all its tries.
func (c *calls) do(wait context.Context, st *callState) (sluice.Tally, error) {
	item := &st.item
	call := sluice.Call{ID: item.ID, Lane: item.Lane, Tenant: item.Tenant, Priority: item.Priority, Cost: item.Cost,
		Withdrawn: item.Withdrawn, GivenUp: st.givenUp}
	if c.route != nil {
		return c.route(wait, st.item, call, st.try)
	}
	return c.scheduler.Do(wait, call, st.try)
}

// errNoRoom is the error of an attempt that a Ration did not let through.
var errNoRoom = errors.New("the attempt must wait for capacity")

// run is one attempt. It works under the handler's context: the one that Do hands on ends at a drain.
func (st *callState) run(_ context.Context, permit *sluice.Permit) (o sluice.Outcome) {
	w := st.worker
	if w.journaled(st.calls) {
		w.settle() // else a try that was taken for the last would wait for itself
		w.runner.unrecorded.send()
		defer func() {
			w.unrecorded = st.ends(permit, &o)
			w.runner.unrecorded.answered(w.unrecorded)
		}()
	}
	if err := w.halted(); err != nil {
		return sluice.Outcome{Kind: sluice.Network, Unsent: true, Abandoned: true, Err: err}
	}
	if !st.aside {
		w.queued(-1)
	}
	st.aside = true // also if the attempt panics: Do gives up then
	if st.turn != nil && !st.turn.Send() {
		return sluice.Outcome{Kind: sluice.Network, Unsent: true, Abandoned: true, Err: errNoRoom}
	}
	st.result, o = st.calls.attempt(st.ctx, permit, st.item)
	if st.turn != nil {
		st.turn.Sent(&st.result, &o)
	}
	if !o.Kind.Transient() {
		st.aside = false
		w.queued(+1)
	}
	if w != nil {
		w.runner.held.attempted(w.runner, st.item.ID, &o)
	}
	if o.Kind.Fatal() && w != nil && st.calls.route == nil { // else the route may know another way
		w.runner.halt(&StoppedError{Kind: o.Kind, ID: st.item.ID, Err: o.Err})
	}
	return o
}

// fail notes that the call failed, unless it goes on by another way.
func (st *callState) fail(o sluice.Outcome) {
	if w := st.worker; w != nil && !o.Kind.Fatal() && !o.Elsewhere {
		w.fail(&st.item, o.Kind, scopeOf(&o))
	}
}

// ends reports whether the Scheduler tries no more after that outcome. Of failures on a route, only the route knows.
func (st *callState) ends(permit *sluice.Permit, o *sluice.Outcome) bool {
	switch {
	case o.Kind == sluice.OK:
		return true
	case st.calls.route != nil, o.Amended:
		return false
	case o.Final:
		return true
	}
	return !o.Kind.Throttle() && (!o.Kind.Transient() || permit.Last())
}
