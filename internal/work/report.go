package work

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
)

// Report is how far a run is, and what it came to.
type Report struct {
	Total         int // items of all runs on the same journal, as far as they are known
	Already       int // of those, recorded by earlier runs
	AlreadyFailed int // of those, recorded as failed

	Items  int // taken in by this run, as what follows
	Done   int // answered well
	Failed int // recorded as failed, for reasons of their own

	Kinds  map[sluice.Kind]int // of those recorded
	Finish map[string]int      // reasons why models stopped, of those done

	Cached int // of those recorded, whose result came from the call of an equal request

	sluice.Tally // of those recorded

	Cost      float64 // in US dollars, of those whose cost is known,
	Costed    int     // which are so many
	Estimated float64 // the part of Cost that is an estimate
	Unpriced  int     // calls of tools that are not in Cost

	Wall time.Duration // since the run began; 0 before
}

// Counts returns the items of this run and earlier runs.
func (r Report) Counts() Counts {
	return Counts{r.Total, r.Already - r.AlreadyFailed + r.Done, r.Failed + r.AlreadyFailed}
}

// Left is how many items are not recorded yet.
func (r Report) Left() int { return r.Total - r.Already - r.Done - r.Failed }

// UnknownKind is the kind of a failure that another version recorded, under a name that this version does not know.
const UnknownKind = ^sluice.Kind(0)

// Retryable returns the number of failed items for which a retry can succeed. kinds counts items by kind.
func Retryable(kinds map[sluice.Kind]int) (n int) {
	for kind, count := range kinds {
		if kind.Throttle() || kind.Transient() || kind == UnknownKind {
			n += count
		}
	}
	return n
}

// tally counts results.
type tally struct {
	fed atomic.Bool // the source was read to its end

	mu      sync.Mutex
	started time.Time
	sum     Report // of its results
}

func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = time.Now()
}

func (t *tally) add(r *Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &t.sum
	if s.Kinds[r.Kind]++; r.Kind == sluice.OK {
		s.Done++
		s.Finish[r.FinishReason]++
	} else {
		s.Failed++
	}
	if r.Cached {
		s.Cached++
	}
	if r.HasCost {
		s.Cost += r.Cost
		s.Costed++
		s.Estimated += r.Estimated
		s.Unpriced += r.Unpriced
	}
	s.Tally = s.Tally.Add(r.Tally)
}

// Report returns the results so far; Run returns it at the end.
func (r *Runner) Report() Report {
	t := &r.tally
	total, already, failed := r.earlier()
	t.mu.Lock()
	defer t.mu.Unlock()
	rep := t.sum
	rep.Items, rep.Kinds, rep.Finish = int(r.taken.Load()), maps.Clone(rep.Kinds), maps.Clone(rep.Finish)
	rep.Cost, rep.Estimated = prose.RoundDollars(rep.Cost), prose.RoundDollars(rep.Estimated)
	rep.Total, rep.Already, rep.AlreadyFailed = max(total, already+rep.Items), already, failed
	if !t.started.IsZero() {
		rep.Wall = time.Since(t.started)
	}
	return rep
}

// earlier returns the numbers of Config.Earlier.
func (r *Runner) earlier() (total, recorded, failed int) {
	if r.cfg.Earlier == nil {
		return 0, 0, 0
	}
	return r.cfg.Earlier()
}
