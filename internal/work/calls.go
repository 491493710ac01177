package work

import (
	"context"
	"errors"
	"sync"

	"github.com/sluice-llm/sluice"
)

// Attempt makes one exchange: it must not retry. The Result of the last attempt is the item's.
type Attempt func(ctx context.Context, permit *sluice.Permit, item Item) (Result, sluice.Outcome)

// Route sends a call through the Do of a Scheduler of its choice, perhaps several in turn. try is to be called as Do's function, and not
// twice at once.
type Route func(ctx context.Context, item Item, call sluice.Call, try func(context.Context, *sluice.Permit) sluice.Outcome) (sluice.Tally, error)

// Calls is a Handler that makes one call per item. An attempt that panics fails its item with Internal. When the Runner drains, open
// calls finish, and calls that wait for a permit are not made. Use NewCalls.
type Calls struct {
	CallsConfig
	states sync.Pool // *callState
}

// CallsConfig describes a Calls. It needs an Attempt, and a Scheduler or a Route.
type CallsConfig struct {
	// Scheduler sends all calls. An outcome that no call can survive stops the Runner before its permit is released.
	Scheduler *sluice.Scheduler

	// Route sends the calls if Scheduler is nil. Such an outcome stops the Runner only if Route returns it.
	Route Route

	Attempt Attempt
	Ration  Ration // nil lets all in
}

// NewCalls returns a Calls.
func NewCalls(cfg CallsConfig) *Calls {
	if (cfg.Scheduler == nil) == (cfg.Route == nil) || cfg.Attempt == nil {
		panic("work: Calls needs an Attempt, and a Scheduler or a Route")
	}
	c := &Calls{CallsConfig: cfg}
	c.states.New = func() any {
		st := &callState{calls: c}
		st.try, st.givenUp = st.run, st.fail // bound once, so that a call allocates no closure
		return st
	}
	return c
}

// callState is one call while it goes through Do.
type callState struct {
	calls  *Calls
	ctx    context.Context // of the handler, not of the wait; lives for one call only
	worker *worker         // nil outside a Runner
	item   Item
	result Result
	turn   Turn // nil without a Ration
	try    func(context.Context, *sluice.Permit) sluice.Outcome

	givenUp func(sluice.Outcome)
}

// Handle makes the call of an item.
func (c *Calls) Handle(ctx context.Context, item Item) (Result, error) {
	st := c.states.Get().(*callState)
	st.ctx, st.item = ctx, item
	w, _ := ctx.Value(placeKey{}).(*worker)
	wait := ctx
	if st.worker = w; w != nil {
		wait = w.runner.wait
	}
	w.enter(waiting)
	tally, err := c.rationed(wait, st)

	result := st.result
	result.Tally = tally
	st.ctx, st.worker, st.item, st.result, st.turn = nil, nil, Item{}, Result{}, nil
	c.states.Put(st)
	w.enter(sending)
	return result, err
}

// rationed makes a call when the Ration lets it in.
func (c *Calls) rationed(wait context.Context, st *callState) (all sluice.Tally, _ error) {
	if c.Ration == nil {
		return c.do(wait, st)
	}
	st.turn = c.Ration.Turn(&st.item)
	for {
		ctx, err := st.turn.Enter(wait)
		if err != nil {
			return all, err
		}
		tally, again, err := c.enter(ctx, st)
		if again {
			tally.Attempts = max(0, tally.Attempts-1)
		}
		if all = all.Add(tally); !again {
			return all, err
		}
		if st.worker != nil {
			st.worker.settle() // those that it waits for may wait for it
		}
	}
}

// enter makes a call that the Ration let in.
func (c *Calls) enter(ctx context.Context, st *callState) (tally sluice.Tally, again bool, err error) {
	left := false
	defer func() {
		if !left { // the attempt ended the goroutine
			st.turn.Leave()
		}
	}()
	tally, err = c.do(ctx, st)
	left = true
	return tally, st.turn.Leave(), err
}

// do is the call, with all its tries.
func (c *Calls) do(wait context.Context, st *callState) (sluice.Tally, error) {
	item := &st.item
	call := sluice.Call{ID: item.ID, Lane: item.Lane, Cost: item.Cost,
		Withdrawn: item.Withdrawn, GivenUp: st.givenUp}
	if c.Scheduler == nil {
		return c.Route(wait, st.item, call, st.try)
	}
	return c.Scheduler.Do(wait, call, st.try)
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
	w.enter(sending)
	if st.turn != nil && !st.turn.Send() {
		return sluice.Outcome{Kind: sluice.Network, Unsent: true, Abandoned: true, Err: errNoRoom}
	}
	st.result, o = st.calls.Attempt(st.ctx, permit, st.item)
	if st.turn != nil {
		st.turn.Sent(&st.result, &o)
	}
	if o.Kind != sluice.OK && !o.Kind.Transient() {
		w.enter(waiting)
	}
	if w != nil {
		w.runner.held.attempted(w.runner, st.item.ID, &o)
	}
	if o.Kind.Fatal() && w != nil && st.calls.Scheduler != nil { // else the route may know another way
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
	case st.calls.Scheduler == nil, o.Amended:
		return false
	case o.Final:
		return true
	}
	return !o.Kind.Throttle() && (!o.Kind.Transient() || permit.Last())
}
