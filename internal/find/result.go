package find

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// SourceUnknown is the source of a limit that nothing is known of.
const SourceUnknown limits.Source = "unknown"

// Finding is one value and how well it is known. The zero value is unknown.
type Finding struct {
	Value  float64
	Source limits.Source // "": unknown
	Margin float64       // relative error: 0.03 is ± 3 %; 0 is exact or not stated
	At     time.Time     // when it became known
}

// Known reports whether there is a value at all.
func (f Finding) Known() bool { return f.Source != "" && f.Source != SourceUnknown }

// confidence is from 0 to 1, with three digits.
func (f Finding) confidence() float64 {
	return math.Round(min(max(0, 1-f.Margin), 1)*1000) / 1000
}

// Bound is the reason why the answer is not higher.
type Bound string

// Bounds of an answer.
const (
	BoundConcurrency Bound = "concurrency"    // more open requests are rejected
	BoundQueue       Bound = "queue"          // the server answers so many at once, and lets the others wait
	BoundRequests    Bound = "requests"       // requests per minute
	BoundTokens      Bound = "tokens"         // tokens per minute, of whatever kind
	BoundWorkers     Bound = "max_workers"    // Config.MaxWorkers
	BoundCertified   Bound = "certified"      // no more could be certified
	BoundSoak        Bound = "soak"           // more were rejected when they ran
	BoundStopped     Bound = "stopped"        // the search ended early
	BoundNothing     Bound = "nothing_passed" // no request is safe
)

// Binding is the limit per minute that bounds an answer.
type Binding struct {
	Dimension limits.Dimension `json:"dimension"` // Name of the limit, such as `rpm`. AnyDimension: none.
	Cost      float64          `json:"cost"`      // Amount of a real request that counts against the limit.
	Busy      float64          `json:"busy"`      // Allowed mean concurrency.
	Margin    float64          `json:"margin"`    // Share of the limit that is subtracted for safety.
}

// Latency is the time that real calls take when as many are open as the answer says.
type Latency struct {
	Mean time.Duration
	CV   float64 // standard deviation over mean
	N    int     // calls measured
}

// Soak is the proof: the answer's workers, with real calls.
type Soak struct {
	Workers  int     `json:"workers"`  // Workers of the final test.
	Requests int     `json:"requests"` // Requests of the final test.
	Rejected int     `json:"rejected"` // Rate-limited requests.
	AtMost   float64 `json:"at_most"`  // Maximum rejection rate, at 95 % confidence.
}

// Subject names a search in its documents.
type Subject struct {
	Model     string    `json:"model"`              // Model.
	Provider  string    `json:"provider"`           // Provider.
	Mode      string    `json:"mode"`               // `auto` or `sweep`.
	DryRun    bool      `json:"dry_run,omitempty"`  // Always true.
	BaseURL   string    `json:"base_url"`           // Address of the API.
	Timestamp time.Time `json:"timestamp,omitzero"` // End of the search.
	Settings  Settings  `json:"settings"`           // Settings of the search.
}

// Modes of a search.
const (
	ModeAuto  = "auto"
	ModeSweep = "sweep"
)

// Settings are the parts of a Config that shape a search.
type Settings struct {
	MaxWorkers      int      `json:"max_workers"`       // Maximum workers.
	MinOutputTokens int      `json:"min_output_tokens"` // Output tokens of a real request.
	PromptFile      string   `json:"prompt_file"`       // Prompt file, or `built-in`. "": a prompt that came from no file.
	TimeoutMS       int64    `json:"timeout_ms"`        // Timeout of a request.
	TokenBudget     int      `json:"token_budget"`      // Token cap; 0 is unlimited.
	MaxCost         *float64 `json:"max_cost_usd"`      // Spending cap; null is unlimited.
}

// BuiltIn stands in place of a file's name for the default prompt.
const BuiltIn = "built-in"

// subject names a search with c, whose defaults are filled in.
func (c *Config) subject(mode string) Subject {
	s := Subject{Model: c.Target.Model, Provider: c.Provider.Name, Mode: mode, BaseURL: cmp.Or(c.Target.BaseURL, c.Provider.BaseURL), Settings: Settings{
		MaxWorkers: c.MaxWorkers, MinOutputTokens: c.MinOutputTokens, PromptFile: c.PromptFile, TimeoutMS: c.Timeout.Milliseconds(),
		TokenBudget: c.Budget.Tokens, MaxCost: c.Budget.MaxCost,
	}}
	if s.Settings.TokenBudget == math.MaxInt {
		s.Settings.TokenBudget = 0
	}
	if c.PromptFile == "" && c.Prompt == essay {
		s.Settings.PromptFile = BuiltIn
	}
	return s
}

// Result is what a search found, as far as it came. Its JSON is the document that sluice find writes.
type Result struct {
	// Workers is the answer: so many loops without a pace stay within every limit. 0: none do. If the search was stopped early,
	// it is those of a soak without a rejection; 0: none ran.
	Workers     int     `json:"recommended_workers"` // Workers that stay within all limits.
	Bound       Bound   `json:"bound"`               // Limiting factor, such as `requests`.
	BucketOfOne bool    `json:"bucket_of_one"`       // Of two simultaneous requests, one is rejected. Only a client that paces its requests uses the limit.
	Binding     Binding `json:"binding,omitzero"`    // Binding limit per minute.
	Low         int     `json:"low"`                 // Lower bound of safe workers after an early stop.
	High        int     `json:"high"`                // Upper bound of safe workers after an early stop.
	Subject
	Error    string        `json:"error,omitempty"` // Reason for an early stop.
	Findings Findings      `json:"-"`
	Soak     Soak          `json:"soak"`  // Final test with real requests.
	Spent    Spent         `json:"spent"` // Requests, tokens and cost of the search.
	Took     time.Duration `json:"-"`
	Notes    []string      `json:"notes"`          // Notes.
	Hint     string        `json:"hint,omitempty"` // Next step.
}

// Outcome is the result of a search in any mode.
type Outcome struct {
	Document any // *Result or *SweepResult, whose JSON is the document of the search
	Spent    Spent
	Workers  int    // safe number of workers; 0: unknown
	Line     string // all results in one line
	Notes    []string
	Hint     string
	Knows    bool // also worth a report after a failure
	Learned  bool // also worth replacing the file of an earlier search
}

// Outcome returns the result.
func (r *Result) Outcome() Outcome {
	return Outcome{
		Document: r, Spent: r.Spent, Workers: r.Workers, Line: r.Line(), Notes: r.Notes, Hint: r.Hint,
		Knows: r.Knows(), Learned: r.Knows(limits.SourceConfigured, limits.SourceAtLeast),
	}
}

// Findings are the values that a search is about.
type Findings struct {
	Limits     map[limits.Dimension]Finding // the known ones
	Queue      bool                         // calls above the concurrency are left to wait, and not refused
	Charge     limits.Charge
	ChargeFrom limits.Source // SourceUnknown: nothing states how tokens are counted
	Latency    Latency
	Input      float64 // mean tokens of a real call in,
	Output     float64 // and out,
	Charged    float64 // and as they count against the tokens per minute
}

// Knows reports whether there is a limit to keep to, from any source but these.
func (r *Result) Knows(except ...limits.Source) bool {
	for _, f := range r.Findings.Limits {
		if _, ok := f.whole(); ok && !slices.Contains(except, f.Source) {
			return true
		}
	}
	return false
}

// whole returns the value as a file of limits states it. ok is false if it can not.
func (f Finding) whole() (value float64, ok bool) {
	value = math.Floor(f.Value + 1e-9) // a larger one than measured would be rejected
	return value, f.Known() && value >= 1 && value <= limits.MaxLimit
}

// MarshalJSON writes the document: the limits also as --config reads them.
func (r *Result) MarshalJSON() ([]byte, error) {
	return json.Marshal(resultDocument{
		(*resultFields)(r), settings(r.Provider, r.Model, r.Findings.Limits), r.Findings.document(r.Timestamp), r.Took.Milliseconds()})
}

// resultFields is a Result without its method MarshalJSON.
type resultFields Result

// resultDocument is the JSON document of a Result.
type resultDocument struct {
	*resultFields
	Limits   map[string]any `json:"limits,omitempty"` // Limits for `--config`.
	Findings findings       `json:"findings"`         // Values of all limits.
	TookMS   int64          `json:"took_ms"`          // Duration of the search.
}

// findings are all values of a Result, also the unknown ones.
type findings struct {
	Charge  finding      `json:"charge"`     // Counted tokens: `declared` or `actual`.
	ITPM    finding      `json:"itpm"`       // Input tokens per minute.
	Latency *latency     `json:"latency_ms"` // Latency of real requests.
	OTPM    finding      `json:"otpm"`       // Output tokens per minute.
	Queue   finding      `json:"queue"`      // Concurrency above which requests queue.
	Real    *realRequest `json:"real"`       // Mean tokens of real requests.
	RPD     finding      `json:"rpd"`        // Requests per day.
	RPM     finding      `json:"rpm"`        // Requests per minute.
	Slots   finding      `json:"slots"`      // Concurrency above which requests are rejected.
	TPD     finding      `json:"tpd"`        // Tokens per day.
	TPM     finding      `json:"tpm"`        // Tokens per minute.
}

// finding is one value of a Result.
type finding struct {
	Value      any           `json:"value"`                // Value, if known.
	Source     limits.Source `json:"source"`               // Origin of the value, such as `header`.
	Margin     *float64      `json:"margin,omitempty"`     // Relative error; 0.03 means ± 3 %.
	Confidence *float64      `json:"confidence,omitempty"` // Confidence from 0 to 1.
	At         time.Time     `json:"at,omitzero"`          // Time of the measurement.
	AgeS       *float64      `json:"age_s,omitempty"`      // Age of the measurement.
}

// latency is the latency of real requests.
type latency struct {
	CV     float64       `json:"cv"`     // Standard deviation divided by the mean.
	Margin float64       `json:"margin"` // Relative error of the mean.
	Mean   float64       `json:"mean"`   // Mean in milliseconds.
	N      int           `json:"n"`      // Measured requests.
	Source limits.Source `json:"source"` // Origin of the value, such as `header`.
}

// realRequest is the mean usage of real requests.
type realRequest struct {
	Charged float64 `json:"charged_tokens"` // Tokens that count against limits.
	Input   float64 `json:"input_tokens"`   // Input tokens.
	Output  float64 `json:"output_tokens"`  // Output tokens.
}

// settings returns limits as --config reads them, nil if none is known.
func settings(provider, model string, found map[limits.Dimension]Finding) map[string]any {
	type limit struct {
		Value      float64       `json:"value"`
		Source     limits.Source `json:"source"`
		Confidence float64       `json:"confidence,omitempty"`
		At         time.Time     `json:"at,omitzero"`
	}
	known := map[string]any{"provider": provider, "model": model}
	for d, f := range found {
		if value, ok := f.whole(); ok {
			known[d.String()] = limit{value, f.Source, f.confidence(), f.At.UTC()}
		}
	}
	if len(known) == 2 {
		return nil
	}
	return known
}

// document returns all values at an instant, also the unknown ones.
func (f *Findings) document(now time.Time) findings {
	of := func(d limits.Dimension) finding { return f.Limits[d].document(now) }
	all := findings{
		Charge: finding{Source: SourceUnknown}, ITPM: of(limits.InputTokens), OTPM: of(limits.OutputTokens), Queue: finding{Source: SourceUnknown},
		RPD: of(limits.RequestsPerDay), RPM: of(limits.Requests), Slots: of(limits.Concurrency), TPD: of(limits.TokensPerDay), TPM: of(limits.Tokens),
	}
	if f.Queue { // it rejects none
		all.Slots, all.Queue = all.Queue, all.Slots
	}
	if f.ChargeFrom != "" && f.ChargeFrom != SourceUnknown {
		all.Charge = finding{Value: f.Charge, Source: f.ChargeFrom}
	}
	if l := f.Latency; l.N > 0 {
		all.Latency = &latency{l.CV, l.CV / math.Sqrt(float64(l.N)), float64(l.Mean) / float64(time.Millisecond), l.N, limits.SourceMeasured}
		all.Real = &realRequest{f.Charged, f.Input, f.Output}
	}
	return all
}

// document returns the value at an instant.
func (f Finding) document(now time.Time) finding {
	if !f.Known() || math.IsInf(f.Value, 0) || math.IsNaN(f.Value) {
		return finding{Source: SourceUnknown}
	}
	v := finding{Value: f.Value, Source: f.Source, Margin: new(f.Margin), Confidence: new(f.confidence())}
	if !f.At.IsZero() {
		v.At, v.AgeS = f.At.UTC(), new(max(0, now.Sub(f.At).Round(100*time.Millisecond).Seconds()))
	}
	return v
}
