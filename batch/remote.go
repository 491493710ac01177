package batch

import (
	"cmp"
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

// Remote makes requests elsewhere, for example with workers on other hosts. It must be safe for concurrent use.
type Remote interface {
	// Do makes a request with all its attempts. The task belongs to Do, which can release the body. ctx ends when the run is abandoned.
	// Do returns an error that wraps ErrWithdrawn if no attempt was made and none will be. Any other error ends the run. After both,
	// nothing is recorded, and the item remains.
	Do(ctx context.Context, t *Task) (*Answer, error)

	// Recorded is called with the numbers of lines whose results are on the disk. Other copies of the results can be removed.
	Recorded(numbers []int)
}

// ErrWithdrawn is the error of a request that was withdrawn before its first attempt.
var ErrWithdrawn = errors.New("the request was withdrawn")

// The bounds of what is outstanding at a Remote.
const (
	Window      = 4096      // requests, each of which takes some 10 KB: as many as many hosts have open together
	windowBytes = 128 << 20 // of the requests. A smaller one counts as its share of these
)

// remote has the requests of a run made by its Remote.
type remote struct {
	direct
	Remote
	window *semaphore.Weighted // of windowBytes, in order: no request is overtaken for ever by smaller ones
	safe   recordings
}

func newRemote(d direct) *remote {
	return &remote{direct: d, Remote: d.cfg.Remote, window: semaphore.NewWeighted(windowBytes)}
}

// shape bounds the items of a lane by the window, which all lanes share.
func (r *remote) shape(cfg *work.Config) {
	r.direct.shape(cfg)
	cfg.Workers = Window
}

// route returns a route to a provider without key and Scheduler: workers have them.
func (r *remote) route(p provider.Provider) (*route, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	to := r.routes[p.Name]
	if to == nil {
		to = &route{one: r.newAccount(p.Name, p, r.cfg.BaseURL)}
		r.routes[p.Name] = to
	}
	return to, nil
}

// send waits for room in the window, where a Scheduler would wait for a permit, and hands the request over.
func (r *remote) send(ctx context.Context, item work.Item, _ sluice.Call, try func(context.Context, *sluice.Permit) sluice.Outcome) (tally sluice.Tally, err error) {
	c := item.Data.(*call)
	size := max(int64(len(c.body)), windowBytes/Window)
	if r.window.Acquire(ctx, size) != nil {
		return tally, context.Cause(ctx)
	}
	defer r.window.Release(size)
	c.halted = ctx.Done()
	o := try(ctx, nil)
	if c.answer == nil { // no worker made the request, so nothing is recorded
		return tally, fmt.Errorf("%w: %w", context.Canceled, o.Err)
	}
	if tally = c.answer.Tally; o.Kind != sluice.OK {
		err = &sluice.CallError{Outcome: o, Tally: tally}
	}
	return tally, err
}

// attempt hands a request over and waits for its result.
func (r *remote) attempt(ctx context.Context, _ *sluice.Permit, item work.Item) (result work.Result, o sluice.Outcome) {
	c := item.Data.(*call)
	t := &Task{
		ID: item.ID, Number: int(item.Seq), Hash: item.Hash, Model: item.Lane, Endpoint: c.endpoint, Body: c.body, Bound: c.bound, Again: item.Again,
		Withdrawn: c.halted,
	}
	c.body, c.charged = nil, budget.Amount{} // the Remote has the body, in whatever form
	a, err := r.Do(ctx, t)
	if err != nil {
		if !errors.Is(err, ErrWithdrawn) && ctx.Err() == nil {
			r.runner.Stop(err)
		}
		return result, sluice.Outcome{Kind: sluice.Network, Err: err, Unsent: true, Abandoned: true}
	}
	c.answer = a
	result.Response, result.Charge = a.Response, a.Charge
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
	if a.Upstream != "" || p == nil {
		return
	}
	result.Charge = work.Charge{}
	if a.Tally.HasUsage {
		c.bill.use(p, a.Tally.Usage)
	}
	if a.Unmetered > 0 {
		c.bill.estimate(unmetered.Amount())
	}
	c.bill.complete(result)
}

// recordings are the results in the journal that may not be on the disk.
type recordings struct {
	mu   sync.Mutex
	end  int64 // lines at offsets below it are safe
	open []recording
}

// recording is the result of a line, and where it is.
type recording struct {
	number int
	offset int64
}

func (r *remote) recorded(result *work.Result) {
	r.reach(0, recording{int(result.Seq), result.Offset})
}

func (r *remote) synced(end int64) { r.reach(end) }

// reach takes in where the safe part of the journal ends, unless end is 0, and results. It tells the Remote of those that are safe, as far
// as they were recorded in order.
func (r *remote) reach(end int64, added ...recording) {
	s, numbers := &r.safe, []int(nil)
	s.mu.Lock()
	s.end, s.open = cmp.Or(end, s.end), append(s.open, added...)
	for ; len(s.open) > 0 && s.open[0].offset < s.end; s.open = s.open[1:] {
		numbers = append(numbers, s.open[0].number)
	}
	s.mu.Unlock()
	if len(numbers) > 0 {
		r.Recorded(numbers)
	}
}
