package stress

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/pool"
)

// Result is the measurement of a run.
type Result struct {
	Level        string     `json:"level"`                   // Level.
	Slots        int        `json:"slots"`                   // Concurrency of the pool.
	Seed         uint64     `json:"seed"`                    // Seed of the run.
	Endpoint     string     `json:"endpoint"`                // Address of the API. "": the simulator.
	Model        string     `json:"model,omitempty"`         // Model.
	DurationMS   int64      `json:"duration_ms"`             // Configured duration.
	TookMS       int64      `json:"took_ms"`                 // Actual duration.
	Outcome      string     `json:"outcome"`                 // `ok`, `missed` or `interrupted`.
	Missed       []string   `json:"missed"`                  // Rows that missed their threshold.
	Rows         []Row      `json:"rows"`                    // Measurements.
	Parts        []Part     `json:"parts"`                   // Figures by part.
	LeftOut      []Omission `json:"left_out"`                // Parts that did not run.
	Requests     int64      `json:"requests"`                // Requests that the pool counted.
	Seen         int64      `json:"seen"`                    // Requests that the provider received.
	Events       string     `json:"events,omitempty"`        // Path of the events file.
	Deadlock     string     `json:"deadlock,omitempty"`      // Deadlock, with all stack traces.
	Panic        string     `json:"panic,omitempty"`         // First panic, with its stack trace.
	FirstFailure string     `json:"first_failure,omitempty"` // First error.
	Failure      error      `json:"-"`                       // of the first call that failed
}

// Row is one line of the table.
type Row struct {
	Name      string     `json:"name"`           // Name of the measurement, such as `max_wait`.
	Value     *float64   `json:"value"`          // Value, if measured.
	Unit      string     `json:"unit,omitempty"` // `s`, `%` or missing.
	Threshold *Threshold `json:"threshold"`      // Threshold. Nil: the row cannot be missed.
	OK        bool       `json:"ok"`             // The value meets the threshold.
	Note      string     `json:"note,omitempty"` // Note.
}

// Threshold is the condition on the value of a row.
type Threshold struct {
	Op    string  `json:"op"`    // `=`, `<`, `<=`, `>` or `>=`.
	Value float64 `json:"value"` // Threshold value.
}

func (t *Threshold) holds(x float64) bool {
	switch t.Op {
	case "=":
		return x == t.Value
	case "<":
		return x < t.Value
	case "<=":
		return x <= t.Value
	case ">":
		return x > t.Value
	}
	return x >= t.Value
}

// Part is the measurement of one part.
type Part struct {
	Name       string   `json:"name"`            // Part.
	TookMS     int64    `json:"took_ms"`         // Duration of the part.
	Requests   int      `json:"requests"`        // Requests that were started.
	Completed  int      `json:"completed"`       // Successful requests.
	Cancelled  int      `json:"cancelled"`       // Cancelled requests.
	Failed     int      `json:"failed"`          // Failed requests.
	Arrived    int      `json:"arrived"`         // Scheduled arrivals.
	Dropped    int      `json:"dropped"`         // Dropped arrivals.
	LongestMS  float64  `json:"longest_wait_ms"` // Longest wait for a slot.
	MeanMS     float64  `json:"mean_wait_ms"`    // Mean wait for a slot.
	InUse      *float64 `json:"slots_in_use"`    // Used share of slots. Nil: no request waited.
	Jain       *float64 `json:"jain_index"`      // Jain's fairness index. Nil: too few requests.
	Starvation *float64 `json:"starvation"`      // Longest wait divided by the median wait. Nil: too few waits.
}

// Omission is a part that was not run.
type Omission struct {
	Part string `json:"part"` // Part.
	Why  string `json:"why"`  // Reason in words.
}

// tally is what is measured of a part, or of all parts together.
type tally struct {
	Part
	longest, total time.Duration // of waits for slots
	waits          int
	used, slots    float64 // sums of samples
}

// add adds a part.
func (t *tally) add(o *tally) {
	t.Requests += o.Requests
	t.Completed += o.Completed
	t.Cancelled += o.Cancelled
	t.Dropped += o.Dropped
	t.Arrived += o.Arrived
	t.longest = max(t.longest, o.longest)
	t.total += o.total
	t.waits += o.waits
	t.used += o.used
	t.slots += o.slots
	t.Jain = worst(t.Jain, o.Jain, -1)
	t.Starvation = worst(t.Starvation, o.Starvation, 1)
}

// worst returns the greater of two if sign is 1, and the smaller if it is -1; nil is none.
func worst(a, b *float64, sign float64) *float64 {
	if a == nil || b != nil && *b*sign > *a*sign {
		return b
	}
	return a
}

// share returns a part of a whole, or nil of nothing.
func share(x, of float64) *float64 {
	if of == 0 {
		return nil
	}
	return new(x / of)
}

// close computes the figures of a part at its end, and adds it to all. It returns them, and the first failure.
func (s *step) close(all *tally) (Part, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.LongestMS = milliseconds(s.longest)
	s.MeanMS = milliseconds(s.total / time.Duration(max(1, s.waits)))
	s.InUse = share(s.used, s.slots)
	s.Starvation = starvation(s.waited)
	all.add(&s.tally)
	return s.Part, s.firstErr
}

// passed reports whether the part had no failure and no wait of a second. Nil has not.
func (s *step) passed() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Completed > 0 && s.Failed == 0 && s.longest < time.Second
}

func milliseconds(d time.Duration) float64 { return math.Round(d.Seconds()*1e6) / 1e3 }

// result measures the run at its end, with the last metrics of the pool.
func (r *run) result(m pool.Metrics) *Result {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &Result{
		Level: r.cfg.Level, Slots: r.cfg.Slots, Seed: r.cfg.Seed, DurationMS: r.cfg.Duration.Milliseconds(), TookMS: time.Since(r.start).Milliseconds(),
		Outcome: "ok", Missed: []string{}, Parts: []Part{}, LeftOut: append([]Omission{}, r.leftOut...), Requests: m.Calls,
		Deadlock: r.deadlock, Panic: r.panicked,
	}
	if e := r.cfg.Endpoint; e != nil {
		res.Endpoint, res.Model = e.Target.BaseURL, e.Target.Model
		if res.Endpoint == "" {
			res.Endpoint = e.Provider.BaseURL
		}
	}
	var peak int
	res.Seen, peak = r.wire.seen()
	var all tally
	for i, s := range r.steps {
		p, err := s.close(&all)
		if i > 0 { // the first call is no part
			res.Parts = append(res.Parts, p)
		}
		if res.Failure == nil && err != nil {
			res.Failure, res.FirstFailure = err, err.Error()
		}
	}
	res.Rows = r.rows(res, &all, peak)
	for i := range res.Rows {
		row := &res.Rows[i]
		if row.OK = row.Value == nil || row.Threshold == nil || row.Threshold.holds(*row.Value); !row.OK {
			res.Missed, res.Outcome = append(res.Missed, row.Name), "missed"
		}
	}
	if r.outer.Err() != nil {
		res.Outcome = "interrupted"
	}
	return res
}

// rows returns the table.
func (r *run) rows(res *Result, all *tally, peak int) (rows []Row) {
	add := func(name, unit string, x *float64, t *Threshold, note string, of ...any) {
		rows = append(rows, Row{Name: name, Unit: unit, Value: x, Threshold: t, Note: fmt.Sprintf(note, of...)})
	}
	counted := func(name string, t *Threshold, note string, of ...any) {
		add(name, "", new(float64(r.counts[name])), t, note, of...)
	}
	none := &Threshold{"=", 0}
	whole := func(t *Threshold) *Threshold { // of what takes the whole run
		if r.outer.Err() != nil {
			return nil
		}
		return t
	}
	for _, name := range []string{"panics", "slot_leaks", "waiters_left", "deadlocks", "foreign_releases"} {
		counted(name, none, "")
	}
	if r.cfg.Endpoint == nil {
		counted("lost_wakeups", none, "")
	}
	if peak > 0 {
		add("calls_at_once", "", new(float64(peak)), &Threshold{"<=", float64(r.cfg.Slots)}, "")
	}
	add("max_wait", "s", new(all.longest.Seconds()), &r.level.maxWait, "")
	meant := all.Requests - all.Cancelled
	add("completion", "%", share(100*float64(all.Completed), float64(meant)), &r.level.completion, "%d of %d requests, not counting cancelled requests", all.Completed, meant)
	add("slots_in_use", "", share(all.used, all.slots), &Threshold{">=", 0.9}, "")
	add("mean_wait", "s", share(all.total.Seconds(), float64(all.waits)), r.level.meanWait, "")
	switch r.level.name {
	case hybrid:
		counted("phases_advanced", whole(&Threshold{"=", campaignPhases}), "of %d", campaignPhases)
		counted("reviews_finished", whole(&Threshold{"=", float64(all.Arrived)}), "of %d", all.Arrived)
	case chaos:
		counted("checkpoints_damaged", whole(none), "of %d saved", r.counts["checkpoints"])
		if r.counts["slot_leaks"]+r.counts["waiters_left"]+r.counts["deadlocks"] == 0 && r.recovery.passed() {
			r.counts["recovery_round"] = 1
		}
		counted("recovery_round", whole(&Threshold{"=", 1}), "")
	}
	add("jain_index", "", all.Jain, &Threshold{">=", 0.9}, "")
	add("starvation", "", all.Starvation, &Threshold{"<=", 20}, "")
	add("metric_drift", "", new(float64(res.Requests-res.Seen)), whole(none), "%d requests counted, %d seen by the provider", res.Requests, res.Seen)
	if all.Arrived > 0 {
		add("dropped_arrivals", "", new(float64(all.Dropped)), nil, "of %d", all.Arrived)
	}
	return rows
}

// fairness notes how evenly equal members completed calls, if they completed at least 8 each on average.
func (s *step) fairness(agents []*agent) {
	counts := make([]float64, len(agents))
	sum := 0.0
	for i, a := range agents {
		counts[i] = float64(a.done.Load() - a.before)
		sum += counts[i]
	}
	if len(agents) < 2 || sum < 8*float64(len(agents)) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Jain = worst(s.Jain, new(jain(counts)), -1)
}

// jain returns the fairness index of shares: 1 if all are equal, 1/n if one has all. It is 1 of nothing.
func jain(got []float64) float64 {
	var sum, squares float64
	for _, x := range got {
		sum += x
		squares += x * x
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (float64(len(got)) * squares)
}

// starvation returns the longest wait as a multiple of the median, or nil of less than 20 waits.
func starvation(waits []time.Duration) *float64 {
	if len(waits) < 20 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(waits))
	return share(float64(sorted[len(sorted)-1]), float64(sorted[len(sorted)/2]))
}
