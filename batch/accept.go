package batch

import (
	"slices"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// accept completes a result by its cost. It refuses what only says that the provider is not there, as long as nothing says that it is, and what says that
// this host could not call it.
func (b *Batch) accept(r *work.Result) error {
	c, _ := r.Data.(*call)
	if r.Cached {
		r.HasCost = true // whatever the price is, nothing was paid
	}
	if c == nil {
		return nil
	}
	r.Data = nil
	c.trip.bill.complete(r)
	a, answered := c.account, b.router.answered
	if a == nil {
		r.Data, a = c.trip.via.Upstream, b.router.accounts[c.trip.via.Upstream.Name]
	} else {
		answered = a.answered.Load
	}
	if b.batches != nil {
		b.batches.carryOver(a, r)
	}
	if r.Kind == sluice.Network && (outOfFiles(r.Err) || !answered() && b.runner.Progress().Done == 0) {
		return a.unreachable(r.Err)
	}
	return nil
}

// onResult tells all who want to know of results.
func (b *Batch) onResult() func(*work.Result) {
	hooks := []func(*work.Result){b.cfg.OnResult, func(r *work.Result) {
		if r.Kind == sluice.OK { // a failure was counted before
			b.guard.Finished(false)
		}
	}}
	if b.remote != nil {
		hooks = append(hooks, b.remote.recorded)
	}
	if b.batches != nil {
		hooks = append(hooks, b.batches.recorded)
	}
	hooks = slices.DeleteFunc(hooks, func(f func(*work.Result)) bool { return f == nil })
	return func(r *work.Result) {
		for _, f := range hooks {
			f(r)
		}
	}
}
