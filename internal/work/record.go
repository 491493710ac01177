package work

import (
	"cmp"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// mostBlock is about how many bytes of lines that belong together are written to the journal at once, and mostTwins how
// many lines: a result may be of a million items.
const (
	mostBlock = 1 << 20
	mostTwins = 4096
)

// blocks is how many results of several items are recorded at once. Each needs room for a block, and the journal takes
// one after the other anyway.
const blocks = 4

// record writes the line of the worker's result and tells of it.
func (r *Runner) record(w *worker) {
	w.line = w.line[:0]
	r.encode(w, &w.result)
	if r.write(w, true) {
		r.announce(w, &w.result)
	}
}

// recordAll is record for a result that may be of several items. Their lines are one write, unless they are very long: a
// kill then leaves some of them without a line, for a resume to complete from those that have one.
func (r *Runner) recordAll(w *worker, item *Item) {
	usual := w.line
	borrowed := false
	defer func() {
		if borrowed {
			r.blocks <- w.line[:0]
			w.line = usual
		}
	}()
	w.line = w.line[:0]
	r.encode(w, &w.result)
	b := block{own: true}
	for t, err := range item.Also {
		if err != nil {
			r.halt(err)
			break
		}
		if !borrowed {
			usual, borrowed = w.line, true
			w.line = append(<-r.blocks, usual...)
		}
		r.taken.Add(1)
		r.encode(w, twinOf(&w.result, t))
		b.twins = append(b.twins, t)
		if (len(w.line) >= mostBlock || len(b.twins) >= mostTwins) && !r.flush(w, &b) {
			return
		}
	}
	r.flush(w, &b)
}

// block is what is encoded in a worker's line and not written: its result, and twins of that.
type block struct {
	own   bool
	twins []Duplicate
}

// flush writes a block, tells of what it holds, and empties it.
func (r *Runner) flush(w *worker, b *block) bool {
	if !b.own && len(b.twins) == 0 {
		return true
	}
	if !r.write(w, b.own) {
		return false
	}
	if b.own {
		r.announce(w, &w.result)
	}
	for _, t := range b.twins {
		r.announce(w, twinOf(&w.result, t))
	}
	w.line, b.twins, b.own = w.line[:0], b.twins[:0], false
	return true
}

// twinOf is the result that another item has from this one: it took nothing of its own.
func twinOf(result *Result, t Duplicate) *Result {
	twin := *result
	twin.ID, twin.Seq, twin.Hash, twin.Note, twin.DuplicateOf = t.ID, t.Seq, t.Hash, t.Note, cmp.Or(result.DuplicateOf, result.ID)
	twin.Tally, twin.Cost, twin.HasCost, twin.Estimated, twin.Unpriced = sluice.Tally{}, 0, true, 0, 0
	twin.Cached, twin.Offset = false, 0
	return &twin
}

// encode appends a result's line to those that the worker has to write.
func (r *Runner) encode(w *worker, result *Result) {
	if r.cfg.Journal != nil {
		w.line = r.cfg.Encode(w.line, result)
	}
}

// write writes the worker's lines to the journal with one write. With own, the first of them is that of its result.
func (r *Runner) write(w *worker, own bool) bool {
	j := r.cfg.Journal
	if j == nil {
		return true
	}
	offset, err := j.AppendAt(w.line)
	if err != nil {
		r.fail(err)
		return false
	}
	if own {
		w.result.Offset = offset
	}
	if cap(w.line) > mostBlock {
		w.line = nil
	}
	return true
}

// announce tells of a result that is recorded: of the worker's own, or a twin's.
func (r *Runner) announce(w *worker, result *Result) {
	r.tally.add(result)
	r.observe(result)
	if r.cfg.OnResult != nil {
		r.cfg.OnResult(result)
	}
	w.settle()
}

// observe tells the Observer of a result that is recorded.
func (r *Runner) observe(result *Result) {
	if r.cfg.Observer == nil {
		return
	}
	t := &result.Tally
	r.tell(sluice.Event{
		Type: limits.EventItemDone, Lane: result.Lane, Tenant: result.Tenant, Call: result.ID,
		Attempt: t.Attempts, Throttles: t.Throttles, Wait: t.Wait(), Latency: t.Latency,
		Outcome: sluice.Outcome{Kind: result.Kind, Err: result.Err, Usage: t.Usage, HasUsage: t.HasUsage},
		Finish:  result.FinishReason, Cost: result.Cost, Estimated: result.Estimated, Reused: result.DuplicateOf != "" || result.Cached,
	})
}

func (r *Runner) tell(e sluice.Event) {
	if r.cfg.Observer != nil {
		e.At, e.Member = time.Now(), r.cfg.Name
		r.cfg.Observer.Observe(e)
	}
}
