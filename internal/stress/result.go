package stress

import (
	"fmt"
	"time"

	"github.com/sluice-llm/sluice/pool"
)

// Result is what a run came to.
type Result struct {
	Level    Level
	Slots    int
	Seed     uint64
	Duration time.Duration // that was asked for
	Took     time.Duration
	Rows     []Row
	Parts    []PartResult
	LeftOut  []LeftOut
	Metrics  pool.Metrics // of the pool, at the end
	Seen     int64        // calls that the provider saw

	Deadlock string // what was stuck, with the stacks of all goroutines; "" is nothing
	Panic    string // the first that nobody planned, with its stack; "" is none
	Failure  error  // of the first call that failed
}

// PartResult is what one part came to.
type PartResult struct {
	Name        string
	Took        time.Duration
	Calls       int // that were begun,
	Completed   int
	Cancelled   int // on purpose
	Failed      int
	Arrived     int
	Dropped     int
	LongestWait time.Duration
	MeanWait    time.Duration
	InUse       *float64 // share of the slots, while something waited; nil: nothing did
	Jain        *float64 // nil: too few calls to say
	Starvation  *float64 // nil: too few waits to say
}

// Row is one line of the table.
type Row struct {
	Name      string     `json:"name"`           // such as "max_wait"
	Value     *float64   `json:"value"`          // in Unit; nil: there was nothing to measure
	Unit      string     `json:"unit,omitempty"` // "s", "%" or none
	Threshold *Threshold `json:"threshold"`      // nil: it is no matter of passing
	OK        bool       `json:"ok"`
	Note      string     `json:"note,omitempty"`
}

// Threshold is what the value of a row must keep.
type Threshold struct {
	Op    string  `json:"op"` // "=", "<", "<=", ">" or ">="
	Value float64 `json:"value"`
}

func (l *Threshold) holds(x float64) bool {
	switch l.Op {
	case "=":
		return x == l.Value
	case "<":
		return x < l.Value
	case "<=":
		return x <= l.Value
	case ">":
		return x > l.Value
	}
	return x >= l.Value
}

// Missed are the names of the rows whose thresholds were missed.
func (r *Result) Missed() (names []string) {
	for _, row := range r.Rows {
		if !row.OK {
			names = append(names, row.Name)
		}
	}
	return names
}

// thresholds are those that differ by level.
var thresholds = map[Level]struct{ wait, completion Threshold }{
	Conservative: {Threshold{"<", 1}, Threshold{"=", 100}},
	Aggressive:   {Threshold{"<", 30}, Threshold{"=", 100}},
	Chaos:        {Threshold{"<", 60}, Threshold{">", 80}},
	Hybrid:       {Threshold{"<", 30}, Threshold{"=", 100}},
}

const (
	leastInUse     = 0.9
	mostStarvation = 20
	leastJain      = 0.9
	mostMeanWait   = 30 // seconds
	recoveryWait   = time.Second
)

// sums is what all parts came to together.
type sums struct {
	started, completed, cancelled, dropped, arrived int
	longest, total                                  time.Duration
	waits                                           int
	used, slots                                     float64
	jain, starvation                                *float64
}

// result measures the run at its end, when the pool stood at m.
func (r *run) result(m pool.Metrics) *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &Result{
		Level: r.cfg.Level, Slots: r.cfg.Slots, Seed: r.cfg.Seed, Duration: r.cfg.Duration, Took: time.Since(r.start),
		LeftOut: r.leftOut, Metrics: m, Seen: r.wire.seen(), Deadlock: r.deadlock, Panic: r.panicked,
	}
	var all sums
	for i, s := range r.steps {
		p := s.result(&all)
		if i > 0 { // the first call is no part
			res.Parts = append(res.Parts, p)
		}
		if res.Failure == nil {
			res.Failure = s.failure()
		}
	}
	res.Rows = r.rows(res, &all)
	return res
}

func (s *step) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.firstErr
}

// result measures a part, and adds it to all.
func (s *step) result(all *sums) PartResult {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := PartResult{
		Name: s.name, Took: s.took, Calls: s.started, Completed: s.completed, Cancelled: s.cancelled, Failed: s.failed,
		Arrived: s.arrived, Dropped: s.dropped, LongestWait: s.longest,
	}
	if s.waits > 0 {
		p.MeanWait = s.total / time.Duration(s.waits)
	}
	if s.slots > 0 {
		p.InUse = new(s.used / s.slots)
	}
	for _, j := range s.jain {
		p.Jain = extreme(p.Jain, j, -1)
	}
	if ratio, ok := starvation(s.waited); ok {
		p.Starvation = &ratio
	}
	all.started += s.started
	all.completed += s.completed
	all.cancelled += s.cancelled
	all.dropped += s.dropped
	all.arrived += s.arrived
	all.longest = max(all.longest, s.longest)
	all.total += s.total
	all.waits += s.waits
	all.used += s.used
	all.slots += s.slots
	if p.Jain != nil {
		all.jain = extreme(all.jain, *p.Jain, -1)
	}
	if p.Starvation != nil {
		all.starvation = extreme(all.starvation, *p.Starvation, 1)
	}
	return p
}

// extreme is the greater of two where sign is 1, and the smaller where it is -1.
func extreme(have *float64, x, sign float64) *float64 {
	if have != nil && *have*sign >= x*sign {
		return have
	}
	return &x
}

// rows is the table.
func (r *run) rows(res *Result, all *sums) []Row {
	level := thresholds[r.cfg.Level]
	zero := &Threshold{"=", 0}
	rows := []Row{
		counted("panics", r.panics, zero),
		counted("slot_leaks", r.leaks, zero),
		counted("waiters_left", r.waiters, zero),
		counted("deadlocks", r.deadlocks, zero),
		counted("foreign_releases", r.foreign, zero),
	}
	if r.cfg.Endpoint == nil {
		rows = append(rows, counted("lost_wakeups", r.lostWakeups, zero))
	}
	if peak := r.wire.peak(); peak > 0 {
		rows = append(rows, counted("calls_at_once", peak, &Threshold{"<=", float64(r.cfg.Slots)}))
	}
	rows = append(rows, measured("max_wait", new(all.longest.Seconds()), "s", &level.wait))
	rows = append(rows, r.completion(all, &level.completion))
	var inUse *float64
	if all.slots > 0 {
		inUse = new(all.used / all.slots)
	}
	rows = append(rows, measured("slots_in_use", inUse, "", &Threshold{">=", leastInUse}))
	rows = append(rows, r.meanWait(all))
	for _, row := range r.particular() {
		if r.outer.Err() != nil { // there was no time for it
			row.Threshold, row.OK = nil, true
		}
		rows = append(rows, row)
	}
	rows = append(rows,
		measured("jain_index", all.jain, "", &Threshold{">=", leastJain}),
		measured("starvation", all.starvation, "", &Threshold{"<=", mostStarvation}),
	)
	drift := counted("metric_drift", int(res.Metrics.Calls-res.Seen), zero)
	drift.Note = fmt.Sprintf("%d calls counted, %d seen by the provider", res.Metrics.Calls, res.Seen)
	if r.outer.Err() != nil { // calls were cut off on their way
		drift.Threshold, drift.OK = nil, true
	}
	rows = append(rows, drift)
	if all.arrived > 0 {
		row := counted("dropped_arrivals", all.dropped, nil)
		row.Note = fmt.Sprintf("of %d", all.arrived)
		rows = append(rows, row)
	}
	return rows
}

func (r *run) completion(all *sums, threshold *Threshold) Row {
	meant := all.started - all.cancelled
	var share *float64
	if meant > 0 {
		share = new(100 * float64(all.completed) / float64(meant))
	}
	row := measured("completion", share, "%", threshold)
	row.Note = fmt.Sprintf("%d of %d calls that nobody cancelled", all.completed, meant)
	return row
}

func (r *run) meanWait(all *sums) Row {
	var mean *float64
	if all.waits > 0 {
		mean = new(all.total.Seconds() / float64(all.waits))
	}
	var threshold *Threshold
	if r.cfg.Level == Hybrid {
		threshold = &Threshold{"<", mostMeanWait}
	}
	return measured("mean_wait", mean, "s", threshold)
}

// particular are the rows of one level alone.
func (r *run) particular() []Row {
	switch r.cfg.Level {
	case Hybrid:
		phases := counted("phases_advanced", r.phasesAdvanced, &Threshold{"=", campaignPhases})
		phases.Note = fmt.Sprintf("of %d", campaignPhases)
		reviews := counted("reviews_finished", r.reviewsFinished, &Threshold{"=", float64(r.reviews)})
		reviews.Note = fmt.Sprintf("of %d", r.reviews)
		return []Row{phases, reviews}
	case Chaos:
		damaged := counted("checkpoints_damaged", r.damaged, &Threshold{"=", 0})
		damaged.Note = fmt.Sprintf("of %d saved", r.checkpoints)
		passed := 0
		if s := r.recovery; s != nil {
			s.mu.Lock()
			if s.completed > 0 && s.failed == 0 && s.longest < recoveryWait && r.leaks+r.waiters+r.deadlocks == 0 {
				passed = 1
			}
			s.mu.Unlock()
		}
		return []Row{damaged, counted("recovery_round", passed, &Threshold{"=", 1})}
	}
	return nil
}

func counted(name string, n int, threshold *Threshold) Row {
	return measured(name, new(float64(n)), "", threshold)
}

func measured(name string, x *float64, unit string, threshold *Threshold) Row {
	return Row{Name: name, Value: x, Unit: unit, Threshold: threshold, OK: x == nil || threshold == nil || threshold.holds(*x)}
}
