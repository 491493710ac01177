package work

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
)

// Report is what a run came to.
type Report struct {
	Items  int // taken in
	Done   int // answered well
	Failed int // recorded as failed, for reasons of their own

	Kinds  map[sluice.Kind]int // of those recorded
	Finish map[string]int      // reasons why models stopped, of those done

	Cached int // of those recorded, whose result came from the call of an equal request

	Attempts  int          // of items that were recorded, throttled tries aside
	Throttles int          // likewise, the throttled ones
	Usage     sluice.Usage // of all attempts
	Cost      float64      // in US dollars, of those whose cost is known,
	Costed    int          // which are so many
	Estimated float64      // the part of Cost that is an estimate
	Unpriced  int          // calls of tools that are not in Cost

	Queued   time.Duration // waited for turns and budgets, over all items
	Cooldown time.Duration // waited while lanes paused
	Backoff  time.Duration // waited for an item's own next attempt
	Wall     time.Duration // the run's own time
}

// Progress is how far a run is.
type Progress struct {
	Total     int // of all runs on the same journal; grows if it was not told
	Already   int // recorded by earlier runs
	Done      int // by this run, as what follows
	Failed    int
	Attempts  int // of items that were recorded, throttled tries aside
	Throttles int // likewise, the throttled ones
	Usage     sluice.Usage
	Cost      float64       // in US dollars, as far as it is known
	Estimated float64       // the part of Cost that is an estimate
	Elapsed   time.Duration // since it began; 0 before

	AlreadyFailed int // of Already, recorded as failed
}

// AllDone returns the number of items that this run and earlier ones did well.
func (p Progress) AllDone() int { return p.Already - p.AlreadyFailed + p.Done }

// Left is how many items are not recorded yet.
func (p Progress) Left() int { return p.Total - p.Already - p.Done - p.Failed }

// tally counts results.
type tally struct {
	fed atomic.Bool // the source was read to its end

	mu      sync.Mutex
	started time.Time
	kinds   [64]int
	finish  map[string]int
	sum     sluice.Tally
	results int
	cached  int
	cost    float64
	costed  int

	estimated float64
	unpriced  int
}

func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = time.Now()
}

func (t *tally) add(r *Result) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.results++
	if r.Cached {
		t.cached++
	}
	t.kinds[min(int(r.Kind), len(t.kinds)-1)]++
	if r.Kind == sluice.OK {
		t.finish[r.FinishReason]++
	}
	if r.HasCost {
		t.cost += r.Cost
		t.costed++
		t.estimated += r.Estimated
		t.unpriced += r.Unpriced
	}
	t.sum.Attempts += r.Tally.Attempts
	t.sum.Throttles += r.Tally.Throttles
	t.sum.Queued += r.Tally.Queued
	t.sum.Cooldown += r.Tally.Cooldown
	t.sum.Backoff += r.Tally.Backoff
	t.sum.Usage = t.sum.Usage.Add(r.Tally.Usage)
}

// Progress says how far the run is.
func (r *Runner) Progress() Progress {
	t := &r.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	done := t.kinds[sluice.OK]
	p := Progress{
		Total:     r.cfg.Total,
		Already:   r.cfg.Already,
		Done:      done,
		Failed:    t.results - done,
		Attempts:  t.sum.Attempts,
		Throttles: t.sum.Throttles,
		Usage:     t.sum.Usage,
		Cost:      prose.RoundDollars(t.cost),
		Estimated: prose.RoundDollars(t.estimated),
	}
	if read := r.cfg.AlreadyRead; read != nil {
		p.Already = read()
	}
	if failed := r.cfg.AlreadyFailed; failed != nil {
		p.AlreadyFailed = failed()
	}
	p.Total = max(p.Total, p.Already+int(r.taken.Load()))
	if !t.started.IsZero() {
		p.Elapsed = time.Since(t.started)
	}
	return p
}

// Report says what became of the items so far; Run returns it at the end.
func (r *Runner) Report() Report {
	t := &r.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	done := t.kinds[sluice.OK]
	rep := Report{
		Items:     int(r.taken.Load()),
		Done:      done,
		Failed:    t.results - done,
		Kinds:     make(map[sluice.Kind]int),
		Finish:    maps.Clone(t.finish),
		Cached:    t.cached,
		Attempts:  t.sum.Attempts,
		Throttles: t.sum.Throttles,
		Usage:     t.sum.Usage,
		Cost:      prose.RoundDollars(t.cost),
		Costed:    t.costed,
		Estimated: prose.RoundDollars(t.estimated),
		Unpriced:  t.unpriced,
		Queued:    t.sum.Queued,
		Cooldown:  t.sum.Cooldown,
		Backoff:   t.sum.Backoff,
	}
	for k, n := range t.kinds {
		if n > 0 {
			rep.Kinds[sluice.Kind(k)] = n
		}
	}
	if !t.started.IsZero() {
		rep.Wall = time.Since(t.started)
	}
	return rep
}
