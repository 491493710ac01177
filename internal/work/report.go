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
	Total     int  // of all runs on the same journal
	Known     bool // Total is all of them, and does not grow
	Already   int  // recorded by earlier runs
	Done      int  // by this run, as what follows
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
	sum     Report // but for Items and Wall
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
	s.Attempts += r.Tally.Attempts
	s.Throttles += r.Tally.Throttles
	s.Queued += r.Tally.Queued
	s.Cooldown += r.Tally.Cooldown
	s.Backoff += r.Tally.Backoff
	s.Usage = s.Usage.Add(r.Tally.Usage)
}

// Report returns the results so far; Run returns it at the end.
func (r *Runner) Report() Report {
	t := &r.tally
	t.mu.Lock()
	defer t.mu.Unlock()
	rep := t.sum
	rep.Items, rep.Kinds, rep.Finish = int(r.taken.Load()), maps.Clone(rep.Kinds), maps.Clone(rep.Finish)
	rep.Cost, rep.Estimated = prose.RoundDollars(rep.Cost), prose.RoundDollars(rep.Estimated)
	if !t.started.IsZero() {
		rep.Wall = time.Since(t.started)
	}
	return rep
}

// Progress says how far the run is.
func (r *Runner) Progress() Progress {
	rep := r.Report()
	p := Progress{
		Done: rep.Done, Failed: rep.Failed, Attempts: rep.Attempts, Throttles: rep.Throttles,
		Usage: rep.Usage, Cost: rep.Cost, Estimated: rep.Estimated, Elapsed: rep.Wall,
	}
	if r.cfg.Earlier != nil {
		p.Total, p.Already, p.AlreadyFailed = r.cfg.Earlier()
	}
	p.Known = p.Total > 0
	p.Total = max(p.Total, p.Already+rep.Items)
	return p
}
