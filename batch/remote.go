package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Remote has calls made elsewhere, such as by workers on other hosts. It must be safe for concurrent use.
type Remote interface {
	// Do has a call made, with all its tries, and returns what came of it. The task is its own: it may let go of the body,
	// which nobody else keeps. Its context ends when the run is abandoned. It fails with an error that wraps
	// ErrWithdrawn for a call that nobody began and nobody will; any other error ends the run. In both cases nothing is
	// recorded, and the call is left to do.
	Do(ctx context.Context, t *Task) (*Answer, error)

	// Recorded is told of lines whose results are safe, on the disk or as Config.Sync has it: whatever is kept of them
	// elsewhere may go.
	Recorded(numbers []int)
}

// ErrWithdrawn is the error of a call that was taken back before anybody began it.
var ErrWithdrawn = errors.New("the request was withdrawn")

// The bounds of what is outstanding at a Remote.
const (
	DefaultWindow = 4096      // calls, each of which takes some 10 KB: as many as many hosts have open together
	windowBytes   = 128 << 20 // of their requests
)

// far is a call at a Remote.
type far struct {
	halted <-chan struct{} // closed when the run makes no more calls
	answer *Answer
	err    error
}

// remote is what a Batch keeps of its Remote.
type remote struct {
	Remote
	batch  *Batch
	window window
	safe   recordings
}

// newRemote returns what cfg says of a Remote; nil without one.
func newRemote(b *Batch) *remote {
	if b.cfg.Remote == nil {
		return nil
	}
	return &remote{Remote: b.cfg.Remote, batch: b, window: window{calls: b.cfg.Window, bytes: windowBytes}}
}

// workers bounds how many items of a lane are handled at once.
func (b *Batch) workers() int {
	switch {
	case b.remote != nil:
		return b.cfg.Window // which all lanes share
	case b.batches != nil && !b.cfg.mayGoLive():
		return recorders
	}
	return b.cfg.Workers
}

// synced returns what is told of the journal's syncs; nil if nobody asks.
func (b *Batch) synced() func(end int64) {
	if b.remote == nil {
		return nil
	}
	b.remote.safe.always = b.cfg.Sync == work.SyncNone
	return b.remote.synced
}

// account makes the account at p one whose calls are made elsewhere: it needs neither key nor Scheduler.
func (r *remote) account(a *account) {
	a.handler = r.batch.cached(r.batch.guard.Bound(work.Routed(r.send(), r.attempt(a))), a.who)
}

// send returns what waits for room in the window, where a Scheduler would wait for a permit, and hands the call over.
//
// Thousands of goroutines wait at once: what is on their stacks counts. So this and attempt are functions that are made, since a
// method as a value has another frame around it, and the waiting has a function of its own.
func (r *remote) send() work.Route {
	return func(ctx context.Context, item work.Item, _ sluice.Call, try func(context.Context, *sluice.Permit) sluice.Outcome) (tally sluice.Tally, err error) {
		c := item.Data.(*call)
		size := len(c.body)
		if err := r.window.enter(ctx, size); err != nil {
			return tally, err
		}
		defer r.window.leave(size)
		c.far = &far{halted: ctx.Done()}
		o := try(ctx, nil)
		switch f := c.far; {
		case f.answer == nil && f.err == nil: // it was not handed over, since the run ends
			return tally, fmt.Errorf("%w: %w", context.Canceled, o.Err)
		case f.err != nil:
			return tally, f.err
		}
		if tally = c.far.answer.Tally; o.Kind != sluice.OK {
			err = &sluice.CallError{Outcome: o, Tally: tally}
		}
		return tally, err
	}
}

// attempt returns what hands a call of an account over and waits for what comes of it.
func (r *remote) attempt(of *account) work.Attempt {
	return func(ctx context.Context, _ *sluice.Permit, item work.Item) (result work.Result, o sluice.Outcome) {
		f := r.wait(ctx, &item)
		if o.Kind = sluice.Network; f.err != nil {
			o.Err, o.Unsent, o.Abandoned = f.err, true, true
			return result, o
		}
		a := f.answer
		result.Status, result.RequestID, result.FinishReason, result.Payload = a.Status, a.RequestID, a.FinishReason, a.Payload
		r.learn(&item, a)
		r.charge(&result, of, &item, a)
		o.Kind, o.Scope, o.Usage, o.HasUsage = a.Kind, a.Scope, a.Tally.Usage, a.Tally.HasUsage
		if a.Kind != sluice.OK {
			o.Err = errors.New(a.Message)
		}
		return result, o
	}
}

// wait has a call made, and returns what came of that.
func (r *remote) wait(ctx context.Context, item *work.Item) *far {
	c := item.Data.(*call)
	t := &Task{
		ID: item.ID, Number: int(item.Seq), Hash: item.Hash, Model: item.Lane, Endpoint: c.endpoint, Body: c.body, Bound: c.bound, Again: item.Again,
		Withdrawn: c.far.halted,
	}
	c.body = nil // the Remote has it now, in whatever form
	answer, err := r.Do(ctx, t)
	if c.far.answer = answer; err != nil {
		c.far.answer, c.far.err = nil, r.fault(ctx, err)
	}
	return c.far
}

// fault is the error of an item that nobody made the call of: one by which nothing is recorded. What is not the run's own
// end is what the run ends with.
func (r *remote) fault(ctx context.Context, err error) error {
	if !errors.Is(err, ErrWithdrawn) && ctx.Err() == nil {
		r.batch.Stop(err)
	}
	return fmt.Errorf("%w: %w", context.Canceled, err)
}

// learn corrects the estimates of an item's model by each attempt's usage, on average.
func (r *remote) learn(item *work.Item, a *Answer) {
	if n := a.Tally.Attempts - a.Unmetered; a.Tally.HasUsage && n > 0 {
		r.batch.learn(item, item.Cost, sluice.Usage{Input: a.Tally.Usage.Input / n, Output: a.Tally.Usage.Output / n})
	}
}

// charge completes a result by its cost: that of the upstream that answered, if there are several, since only the worker knows its price;
// or else by the price that is known here, or else there.
func (r *remote) charge(result *work.Result, of *account, item *work.Item, a *Answer) {
	if a.Upstream != "" {
		result.Data = &provider.Upstream{Name: a.Upstream}
	}
	p := of.price(item.Lane)
	if a.Upstream != "" || p == nil {
		result.Cost, result.HasCost, result.Estimated, result.Unpriced = a.Cost, a.HasCost, a.Estimated, a.Unpriced
		return
	}
	bill := bill{Cost: p.Cost(a.Tally.Usage), known: a.Tally.HasUsage}
	if a.Unmetered > 0 {
		bill.estimate(r.batch.estimateAt(item, item.Cost, a.Unmetered, p, sluice.Usage{}))
	}
	bill.complete(result)
}

// window bounds what is outstanding, in order: nobody is overtaken for ever by smaller calls.
type window struct {
	calls int
	bytes int64

	mu      sync.Mutex
	open    int
	size    int64
	waiters []*opening
}

// opening is one who waits for room.
type opening struct {
	size  int64
	ready chan struct{} // closed when there is
}

// enter waits until there is room for a call of that size. One has room whatever its size.
func (w *window) enter(ctx context.Context, size int) error {
	me := &opening{size: int64(size), ready: make(chan struct{})}
	w.mu.Lock()
	w.waiters = append(w.waiters, me)
	w.admitLocked()
	w.mu.Unlock()
	select {
	case <-me.ready:
		return nil
	case <-ctx.Done():
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for i, other := range w.waiters {
		if other == me {
			w.waiters = append(w.waiters[:i], w.waiters[i+1:]...)
			w.admitLocked()
			return context.Cause(ctx)
		}
	}
	return nil // its turn came just then
}

// leave gives a call's room back.
func (w *window) leave(size int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open--
	w.size -= int64(size)
	w.admitLocked()
}

func (w *window) admitLocked() {
	for len(w.waiters) > 0 {
		next := w.waiters[0]
		if w.open > 0 && (w.open >= w.calls || w.size+next.size > w.bytes) {
			return
		}
		w.waiters = w.waiters[1:]
		w.open++
		w.size += next.size
		close(next.ready)
	}
}

// recordings are results that are in the journal, until they are safe. The zero value is ready.
type recordings struct {
	mu     sync.Mutex
	end    int64 // lines below it are safe
	open   []recording
	always bool // as soon as they are written
}

// recording is the result of a line, and where it is.
type recording struct {
	number int
	offset int64
}

// add takes in a result that is in the journal, and says whether it is safe already.
func (s *recordings) add(number int, offset int64) (safe bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if safe = s.always || offset < s.end; !safe {
		s.open = append(s.open, recording{number, offset})
	}
	return safe
}

// reach is told up to where the journal is safe, and returns the lines whose results now are.
func (s *recordings) reach(end int64) (numbers []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end = end
	kept := s.open[:0]
	for _, one := range s.open {
		if one.offset < end {
			numbers = append(numbers, one.number)
		} else {
			kept = append(kept, one)
		}
	}
	s.open = kept
	return numbers
}

// recorded is told of each result that is in the journal.
func (r *remote) recorded(result *work.Result) {
	if r.safe.add(int(result.Seq), result.Offset) {
		r.Recorded([]int{int(result.Seq)})
	}
}

// synced is told up to where the journal is safe.
func (r *remote) synced(end int64) {
	if numbers := r.safe.reach(end); len(numbers) > 0 {
		r.Recorded(numbers)
	}
}
