package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
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

	// Recorded is told of lines whose results are on the disk: whatever is kept of them
	// elsewhere may go.
	Recorded(numbers []int)
}

// ErrWithdrawn is the error of a call that was taken back before anybody began it.
var ErrWithdrawn = errors.New("the request was withdrawn")

// The bounds of what is outstanding at a Remote.
const (
	DefaultWindow = 4096      // requests, each of which takes some 10 KB: as many as many hosts have open together
	windowBytes   = 128 << 20 // of the requests. A smaller one counts as its share of these
)

// far is a call at a Remote.
type far struct {
	halted <-chan struct{} // closed when the run makes no more calls
	answer *Answer
	err    error
}

// remote has the requests of a run made by its Remote.
type remote struct {
	direct
	Remote
	window *semaphore.Weighted // of windowBytes, in order: no request is overtaken for ever by smaller ones
	safe   recordings
}

func newRemote(d direct) *remote {
	cfg := d.cfg
	return &remote{direct: d, Remote: cfg.Remote, window: semaphore.NewWeighted(windowBytes)}
}

// shape bounds the items of a lane by the window, which all lanes share.
func (r *remote) shape(cfg *work.Config) {
	r.direct.shape(cfg)
	cfg.Workers = r.cfg.Window
}

// route returns a route to a provider without key and Scheduler: workers have them.
func (r *remote) route(p provider.Provider) (*route, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to := r.routes[p.Name]
	if to == nil {
		to = &route{one: r.newAccount(p)}
		r.routes[p.Name] = to
	}
	return to, nil
}

// send waits for room in the window, where a Scheduler would wait for a permit, and hands the request over.
func (r *remote) send(ctx context.Context, item work.Item, _ sluice.Call, try func(context.Context, *sluice.Permit) sluice.Outcome) (tally sluice.Tally, err error) {
	c := item.Data.(*call)
	size := max(int64(len(c.body)), int64(windowBytes/r.cfg.Window))
	if r.window.Acquire(ctx, size) != nil {
		return tally, context.Cause(ctx)
	}
	defer r.window.Release(size)
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

// attempt hands a request over and waits for its result.
func (r *remote) attempt(ctx context.Context, _ *sluice.Permit, item work.Item) (result work.Result, o sluice.Outcome) {
	c := item.Data.(*call)
	f := c.far
	t := &Task{
		ID: item.ID, Number: int(item.Seq), Hash: item.Hash, Model: item.Lane, Endpoint: c.endpoint, Body: c.body, Bound: c.bound, Again: item.Again,
		Withdrawn: f.halted,
	}
	c.body, c.charged = nil, budget.Amount{} // the Remote has the body, in whatever form
	a, err := r.Do(ctx, t)
	if o.Kind = sluice.Network; err != nil {
		f.err = r.fault(ctx, err)
		o.Err, o.Unsent, o.Abandoned = f.err, true, true
		return result, o
	}
	f.answer = a
	result.Status, result.RequestID, result.FinishReason, result.Payload = a.Status, a.RequestID, a.FinishReason, a.Payload
	if n := a.Tally.Attempts - a.Unmetered; a.Tally.HasUsage && n > 0 { // the mean of the attempts
		r.learn(&item, item.Cost, sluice.Usage{Input: a.Tally.Usage.Input / n, Output: a.Tally.Usage.Output / n})
	}
	r.chargeFar(&result, &item, a)
	o.Kind, o.Scope, o.Usage, o.HasUsage = a.Kind, a.Scope, a.Tally.Usage, a.Tally.HasUsage
	if a.Kind != sluice.OK {
		o.Err = errors.New(a.Message)
	}
	return result, o
}

// chargeFar notes what all attempts of an item cost, and completes its result. If several upstreams may have answered, only the worker knows
// the price; otherwise the price that is known here counts.
func (r *remote) chargeFar(result *work.Result, item *work.Item, a *Answer) {
	c := item.Data.(*call)
	p := c.route.price(item.Lane, c.endpoint)
	unmetered := r.estimateAt(item, item.Cost, a.Unmetered, p, sluice.Usage{})
	c.charged = amountOf(p, a.Tally.Usage).Plus(1, unmetered.Amount())
	if a.Upstream != "" {
		result.Data = &provider.Upstream{Name: a.Upstream}
	}
	if a.Upstream != "" || p == nil {
		result.Cost, result.HasCost, result.Estimated, result.Unpriced = a.Cost, a.HasCost, a.Estimated, a.Unpriced
		return
	}
	if a.Tally.HasUsage {
		c.bill.use(p, a.Tally.Usage)
	}
	if a.Unmetered > 0 {
		c.bill.estimate(unmetered.Amount())
	}
	c.bill.complete(result)
}

// fault is the error of an item that nobody made the call of: one by which nothing is recorded. What is not the run's own
// end is what the run ends with.
func (r *remote) fault(ctx context.Context, err error) error {
	if !errors.Is(err, ErrWithdrawn) && ctx.Err() == nil {
		r.runner.Stop(err)
	}
	return fmt.Errorf("%w: %w", context.Canceled, err)
}

// recordings are results that are in the journal, until they are safe. The zero value is ready.
type recordings struct {
	mu   sync.Mutex
	end  int64 // lines below it are safe
	open []recording
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
	if safe = offset < s.end; !safe {
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
