package batch

import (
	"context"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/parts"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

// How much is given at once: recorders bounds the goroutines that record answers, which have nothing to wait for but the disk, and
// the others what waits for them.
const (
	recorders  = 64
	mostGiven  = 1024
	givenBytes = 32 << 20
)

// Batched is the Data of a result whose answer came through a Batch API.
type Batched struct {
	Batch   string // the provider's id for it
	account *account
}

// BatchReport is what went through Batch APIs in a run.
type BatchReport struct {
	Parts   int // that ended in this run, whichever submitted them
	Pending int // that have not ended, or whose answers are not recorded
	Lost    int // that the provider does not have any more, or whose files here are gone; not in Pending

	Lines int // of those that this run recorded, answered by batches,
	Live  int // and answered live

	Cost     float64 // of Lines, in US dollars, as far as it is known,
	LiveCost float64 // and what the same calls would have cost live
}

// given is what an item is to be recorded with.
type given struct {
	result  work.Result
	err     error
	keep    string   // the cache's key for it; "" keeps nothing
	merging *merging // the part that it came from; nil is none
	size    int      // bytes that it holds
	handled bool
}

// give has the Runner record an item, once few enough others wait for that.
func (f *viaFeed) give(item *work.Item, g *given) error {
	for f.crowded(g.size) {
		if err := f.await(); err != nil {
			return err
		}
	}
	f.mu.Lock()
	f.given[item.Seq] = g
	f.open++
	f.size += int64(g.size)
	f.mu.Unlock()
	f.lines[item.Seq-1].at = over
	return f.out(f.as(*item))
}

// as makes an item one whose result is given. Its priority only keeps it out of the queue of those that are called live.
func (v *via) as(item work.Item) work.Item {
	item.Handler, item.Priority = v, limits.Critical
	return item
}

// crowded reports whether what is given must be recorded before more is.
func (v *via) crowded(size int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open >= mostGiven || v.open > 0 && v.size+int64(size) > givenBytes
}

// unhandled is how many items were given and not handled yet.
func (v *via) unhandled() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.open
}

// reloader returns how the Runner reads an item again that it put aside.
func (v *via) reloader(again func(seq, ref int64) (work.Item, error)) func(seq, ref int64) (work.Item, error) {
	return func(seq, ref int64) (work.Item, error) {
		item, err := again(seq, ref)
		v.mu.Lock()
		defer v.mu.Unlock()
		if g := v.given[seq]; err == nil && g != nil && !g.handled {
			item = v.as(item)
		}
		return item, err
	}
}

// Handle returns what an item was given.
func (v *via) Handle(_ context.Context, item work.Item) (work.Result, error) {
	v.mu.Lock()
	g := v.given[item.Seq]
	result, err := g.result, g.err
	g.result, g.handled = work.Result{}, true
	v.open--
	v.size -= int64(g.size)
	if g.merging == nil {
		delete(v.given, item.Seq)
	}
	v.mu.Unlock()
	wake.Up(v.kick)
	if g.keep != "" {
		v.batch.cache.store(g.keep, &result)
	}
	return result, err
}

// accept completes a result that came from a batch by its cost; it says false of another.
func (v *via) accept(r *work.Result) bool {
	d, ok := r.Data.(*Batched)
	if ok && r.Tally.HasUsage {
		d.account.cost(r, r.Tally.Usage)
	}
	return ok
}

// count counts a live try of a line, and says in its outcome if that was the last one: those by batches count, too. v may be nil.
func (v *via) count(seq int64, c *call, o *sluice.Outcome) {
	if v == nil || !o.Kind.Transient() {
		return
	}
	v.mu.Lock()
	before := v.tried[seq].Attempts
	v.mu.Unlock()
	c.tries.live++
	o.Final = o.Final || before > 0 && before+c.tries.live >= v.batch.cfg.Budget.Attempts
}

// carryOver adds to a live result what tries by batches took before.
func (v *via) carryOver(a *account, r *work.Result) {
	v.mu.Lock()
	before, ok := v.tried[r.Seq]
	delete(v.tried, r.Seq)
	v.mu.Unlock()
	if !ok || a == nil {
		return
	}
	r.Tally = before.Add(r.Tally)
	if before.HasUsage {
		a.cost(r, before.Usage)
	}
}

// recorded is told of each result that is in the journal.
func (v *via) recorded(r *work.Result) {
	d, batched := r.Data.(*Batched)
	v.mu.Lock()
	switch {
	case batched:
		v.sums.Lines++
		v.sums.Cost += r.Cost
		if !r.Tally.HasUsage { // an estimate saves nothing
			v.sums.LiveCost += r.Cost
		} else if r.HasCost {
			live := r.Tally.Usage
			live.Service = limits.ServiceStandard
			v.sums.LiveCost += d.account.price(r.Lane).Cost(live).USD
		}
	case !r.Cached && r.Tally.Tries() > 0:
		v.sums.Live++
	}
	v.mu.Unlock()
	if batched && v.safe.add(int(r.Seq), r.Offset) {
		v.secure([]int{int(r.Seq)})
	}
	wake.Up(v.kick)
}

// synced is told up to where the journal is safe.
func (v *via) synced(end int64) {
	if numbers := v.safe.reach(end); len(numbers) > 0 {
		v.secure(numbers)
		wake.Up(v.kick)
	}
}

// secure notes lines whose results are safe.
func (v *via) secure(numbers []int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, n := range numbers {
		if g := v.given[int64(n)]; g != nil && g.merging != nil {
			g.merging.left--
			delete(v.given, int64(n))
		}
	}
}

// merge takes the parts away whose answers are all safe.
func (v *via) merge() error {
	kept := v.landed[:0]
	var failed error
	for _, m := range v.landed {
		v.mu.Lock()
		safe := m.left == 0
		v.mu.Unlock()
		if !safe || failed != nil {
			kept = append(kept, m)
		} else if failed = v.desk.Merged(m.part); failed != nil {
			kept = append(kept, m)
		}
	}
	v.landed = kept
	return failed
}

// report is what went through Batch APIs.
func (v *via) report() BatchReport {
	if v == nil {
		return BatchReport{}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	r := v.sums
	r.Cost, r.LiveCost = prose.RoundDollars(r.Cost), prose.RoundDollars(r.LiveCost)
	for _, s := range v.desk.Status() {
		switch {
		case s.State == parts.Lost:
			r.Lost++
		case !s.Over():
			r.Pending++
		}
	}
	return r
}
