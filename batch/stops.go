package batch

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
)

// leastJudged is how many items must be finished before a share of them says anything.
const leastJudged = 20

// failures count the items of a run that failed. The zero value is ready.
type failures struct {
	mu       sync.Mutex
	finished int
	failed   int
}

// failed counts an item that fails, and stops the run at too many of them.
func (b *Batch) failed() {
	if spent, over := b.failures.count(true, &b.cfg.Budget); over {
		b.Stop(&BudgetError{Used: spent})
	}
}

// recorded counts an item whose failure was not counted before: one that succeeded.
func (b *Batch) recorded(r *work.Result) {
	if r.Kind == sluice.OK {
		b.failures.count(false, &b.cfg.Budget)
	}
}

// count counts a finished item, and says whether that were too many failures.
func (f *failures) count(failed bool, most *Budget) (_ Used, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.finished++
	if !failed {
		return Used{}, false
	}
	f.failed++
	for _, u := range f.usesLocked(most) {
		if u.Unit == "items" && u.Used >= u.Limit || u.Unit == "share" && f.finished >= leastJudged && u.Used > u.Limit {
			return u, true
		}
	}
	return Used{}, false
}

func (f *failures) usesLocked(most *Budget) (all []Used) {
	if most.Failures > 0 {
		all = append(all, Used{LimitedFailures, "items", float64(most.Failures), float64(f.failed)})
	}
	if most.FailedShare > 0 {
		all = append(all, Used{LimitedFailures, "share", most.FailedShare, float64(f.failed) / float64(max(1, f.finished))})
	}
	return all
}

// budgets says what a run used of what bounds it.
func (b *Batch) budgets() []Used {
	all := b.uses()
	if at := b.cfg.Budget.Deadline; !at.IsZero() {
		all = append(all, Used{LimitedTime, "seconds", at.Sub(b.began).Seconds(), time.Since(b.began).Seconds()})
	}
	b.failures.mu.Lock()
	defer b.failures.mu.Unlock()
	return append(all, b.failures.usesLocked(&b.cfg.Budget)...)
}

// longestLook is how long a wait for an instant may rely on a clock that stands still while the machine sleeps.
const longestLook = time.Minute

// awaitDeadline stops the run at its deadline. The returned function ends the waiting.
func (b *Batch) awaitDeadline() (end func()) {
	at := b.cfg.Budget.Deadline.Round(0) // by the clock on the wall
	if at.IsZero() {
		return func() {}
	}
	stop := func() { b.Stop(&BudgetError{Used: Used{What: LimitedTime, Unit: "seconds"}}) }
	if time.Until(at) <= 0 { // reading the input took that long: not one call is sent
		stop()
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for left := time.Until(at); left > 0; left = time.Until(at) {
			select {
			case <-time.After(min(left, longestLook)):
			case <-done:
				return
			}
		}
		stop()
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// priced refuses a line of whose cost nobody knows anything, where a sum of money bounds the run.
func (in *input) priced(row *rows.Row, rq *request) error {
	if in.cfg.Budget.Cost == 0 || in.costs[rq.model] {
		return nil
	}
	if in.costs == nil {
		in.costs = make(map[string]bool)
	}
	in.costs[rq.model] = true // one line of a model is enough to say so
	if !in.hasPrice(rq) {
		bad := &problem{
			Text: "the price of model " + strconv.Quote(clip([]byte(rq.model))) + " is unknown, so Sluice cannot limit its cost",
			Hint: "pass --price IN/OUT in USD per million tokens, or add this line below providers: in the settings: - {name: " + rq.provider.Name +
				", tiers: [{tier: own, models: [" + strconv.Quote(clip([]byte(rq.model))) + "], price: IN/OUT}]}",
		}
		if u := in.cfg.Upstreams; u != nil {
			bad.Text = "the price of model " + strconv.Quote(clip([]byte(rq.model))) + " at upstream " +
				strings.Join(u.Unpriced(rq.model, rq.endpoint), ", ") + " is unknown, so Sluice cannot limit its cost"
			bad.Hint = "pass --price IN/OUT in USD per million tokens for all upstreams, or add price: IN/OUT to this upstream"
		}
		return row.Wrong(in.cfg.Input, bad)
	}
	return nil
}

// hasPrice reports whether it is known what a request may cost, whoever answers it.
func (in *input) hasPrice(rq *request) bool {
	if u := in.cfg.Upstreams; u != nil {
		return u.Price(rq.model, rq.endpoint) != nil
	}
	return in.cfg.Price(rq.provider, rq.model) != nil
}
