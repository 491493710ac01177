package proc

import (
	"maps"
	"sync"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
)

// Report is what all runs in a directory came to, as report.json has it.
type Report struct {
	Summary
	Kinds   map[sluice.Kind]int `json:"failed_by_kind"`       // Failed items by kind of failure.
	Stages  []Summary           `json:"stages,omitempty"`     // Counts by stage.
	Waits   []Blocked           `json:"blocked_by,omitempty"` // Stages that did not run.
	Results string              `json:"results"`              // Path of the results.
	Outlook string              `json:"outlook,omitempty"`    // State of the agent's usage windows.

	Run work.Report `json:"-"` // of the last run alone
}

// Summary counts items.
type Summary struct {
	Stage       string   `json:"stage,omitempty"` // Stage.
	Items       int      `json:"total"`           // Items of the input.
	Succeeded   int      `json:"done"`            // Successful items of all runs.
	Failed      int      `json:"failed"`          // Failed items of all runs.
	Quarantined int      `json:"quarantined"`     // Items whose workers died several times.
	RateLimited int      `json:"rate_limited"`    // Items without a result because of a limit.
	Blocked     int      `json:"blocked"`         // Items that depend on failed items.
	Left        int      `json:"remaining"`       // Items without a result.
	PassRate    *float64 `json:"pass_rate"`       // Success rate of results.
}

// count adds an item with a result.
func (s *Summary) count(state State) {
	switch state {
	case Succeeded:
		s.Succeeded++
	case Quarantined:
		s.Quarantined++
	default:
		s.Failed++
	}
}

// finish completes what follows from the counts.
func (s *Summary) finish() {
	results := s.Succeeded + s.Failed + s.Quarantined
	s.Left = max(0, s.Items-results)
	if results > 0 {
		rate := float64(s.Succeeded) / float64(results)
		s.PassRate = &rate
	}
}

// tally counts what became of items, those of earlier runs too.
type tally struct {
	mu      sync.Mutex
	stages  map[string]*Summary
	kinds   map[sluice.Kind]int
	done    int               // by earlier runs, of the items of this one,
	failed  int               // and of those, not well
	limited map[string]string // items whose last try met a limit, with their stages
}

func newTally() *tally {
	return &tally{stages: make(map[string]*Summary), kinds: make(map[sluice.Kind]int), limited: make(map[string]string)}
}

func (t *tally) stageLocked(name string) *Summary {
	s := t.stages[name]
	if s == nil {
		s = &Summary{Stage: name}
		t.stages[name] = s
	}
	return s
}

// earlier counts a result of an earlier run; counts says that it is of an item of this one.
func (t *tally) earlier(r *Result, counts bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.countLocked(r.Stage, r.Kind, r.State)
	if counts {
		t.done++
		if r.State != Succeeded {
			t.failed++
		}
	}
}

// already returns the numbers of items that earlier runs recorded, and recorded as failed.
func (t *tally) already() (recorded, failed int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.done, t.failed
}

// met notes what became of a try that failed.
func (t *tally) met(id, stage string, state State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if state == RateLimited {
		t.limited[id] = stage
	} else {
		delete(t.limited, id)
	}
}

// add counts a result.
func (t *tally) add(id, stage string, kind sluice.Kind, state State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.countLocked(stage, kind, state)
	delete(t.limited, id)
}

func (t *tally) countLocked(stage string, kind sluice.Kind, state State) {
	t.stageLocked(stage).count(state)
	if state != Succeeded {
		t.kinds[kind]++
	}
}

// report says what became of all items.
func (x *Exec) report(run work.Report) Report {
	t, in := x.tally, x.input
	t.mu.Lock()
	defer t.mu.Unlock()
	rep := Report{Kinds: maps.Clone(t.kinds), Results: ResultsPath(x.dir), Run: run, Waits: in.blocked(), Outlook: x.Outlook()}
	stages := make(map[string]*Summary, len(t.stages))
	for name, s := range t.stages {
		copied := *s
		stages[name] = &copied
	}
	named := func(stage string) *Summary {
		if stages[stage] == nil {
			stages[stage] = &Summary{Stage: stage}
		}
		return stages[stage]
	}
	for _, stage := range t.limited {
		named(stage).RateLimited++
	}
	for _, b := range rep.Waits {
		named(b.Name).Blocked += b.Items
	}
	for stage, n := range in.counts() {
		named(stage).Items = n
	}
	for _, s := range stages {
		s.finish()
		rep.add(s)
	}
	rep.finish()
	for _, name := range in.names() {
		if s := stages[name]; s != nil {
			rep.Stages = append(rep.Stages, *s)
		}
	}
	return rep
}

// add adds up what became of the items of a stage.
func (s *Summary) add(stage *Summary) {
	s.Items += stage.Items
	s.Succeeded += stage.Succeeded
	s.Failed += stage.Failed
	s.Quarantined += stage.Quarantined
	s.RateLimited += stage.RateLimited
	s.Blocked += stage.Blocked
}
