package work

import (
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// mostLine is how much of a line's memory is kept for the next one.
const mostLine = 1 << 20

// record writes the line of the worker's result and tells of it.
func (r *Runner) record(w *worker) {
	result := &w.result
	if j := r.cfg.Journal; j != nil {
		w.line = r.cfg.Encode(w.line[:0], result)
		offset, err := j.Append(w.line)
		if err != nil {
			r.fail(err)
			return
		}
		result.Offset = offset
		if cap(w.line) > mostLine {
			w.line = nil
		}
	}
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
		Type: limits.EventItemDone, Lane: result.Lane, Call: result.ID,
		Attempt: t.Attempts, Throttles: t.Throttles, Wait: t.Wait(), Latency: t.Latency,
		Outcome: sluice.Outcome{Kind: result.Kind, Err: result.Err, Usage: t.Usage, HasUsage: t.HasUsage},
		Finish:  result.FinishReason, Cost: result.Cost, Estimated: result.Estimated, Reused: result.Cached,
	})
}

func (r *Runner) tell(e sluice.Event) {
	if r.cfg.Observer != nil {
		e.At, e.Member = time.Now(), r.cfg.Name
		r.cfg.Observer.Observe(e)
	}
}
