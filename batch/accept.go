package batch

import (
	"slices"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/work"
)

// accept completes a result by its cost. It refuses what only says that the provider is not there, as long as nothing says that it is, and what says that
// this host could not call it.
func (b *Batch) accept(r *work.Result) error {
	if b.router != nil {
		return b.router.accept(r)
	}
	if b.remote != nil {
		b.remote.accept(r)
		return nil
	}
	if b.via != nil && b.via.accept(r) {
		return nil
	}
	a, _ := r.Data.(*account)
	r.Data = nil
	switch {
	case r.Twin != "" || r.Cached:
		r.HasCost = true // whatever the price is, nothing was paid
	case a == nil:
		return nil
	case r.Tally.HasUsage:
		r.Cost, r.HasCost = a.cost(r.Lane, r.Tally.Usage)
	}
	if b.via != nil {
		b.via.carryOver(a, r)
	}
	if a == nil || r.Kind != sluice.Network {
		return nil
	}
	if outOfFiles(r.Err) || !a.answered.Load() && b.runner.Progress().Done == 0 {
		return a.unreachable(r.Err)
	}
	return nil
}

// onResult tells all who want to know of results.
func (b *Batch) onResult() func(*work.Result) {
	hooks := []func(*work.Result){b.joined(), b.cfg.OnResult, b.counted()}
	if b.remote != nil {
		hooks = append(hooks, b.remote.recorded)
	}
	if b.via != nil {
		hooks = append(hooks, b.via.recorded)
	}
	hooks = slices.DeleteFunc(hooks, func(f func(*work.Result)) bool { return f == nil })
	if len(hooks) == 0 {
		return nil
	}
	return func(r *work.Result) {
		for _, f := range hooks {
			f(r)
		}
	}
}
