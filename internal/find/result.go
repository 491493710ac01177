package find

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
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
	Dimension limits.Dimension `json:"dimension"` // AnyDimension: none does
	Cost      float64          `json:"cost"`      // of a real call: 1, or tokens
	Busy      float64          `json:"busy"`      // mean number of real calls that it keeps open
	Margin    float64          `json:"margin"`    // the share of them that the answer leaves out, for chance
}

// Latency is the time that real calls take when as many are open as the answer says.
type Latency struct {
	Mean time.Duration
	CV   float64 // standard deviation over mean
	N    int     // calls measured
}

// Soak is the proof: the answer's workers, with real calls.
type Soak struct {
	Workers  int     `json:"workers"`
	Requests int     `json:"requests"`
	Rejected int     `json:"rejected"`
	AtMost   float64 `json:"at_most"` // the share of rejections that it leaves possible, with 95 % confidence
}

// Subject names a search in its documents.
type Subject struct {
	Model     string    `json:"model"`
	Provider  string    `json:"provider"`
	Mode      string    `json:"mode"`
	DryRun    bool      `json:"dry_run,omitempty"`
	BaseURL   string    `json:"base_url"`
	Timestamp time.Time `json:"timestamp,omitzero"` // of the result
	Settings  Settings  `json:"settings"`
}

// Modes of a search.
const (
	ModeAuto  = "auto"
	ModeSweep = "sweep"
)

// Settings are the parts of a Config that shape a search.
type Settings struct {
	MaxWorkers      int      `json:"max_workers"`
	MinOutputTokens int      `json:"min_output_tokens"`
	PromptFile      string   `json:"prompt_file"` // BuiltIn for the default prompt; "" for a prompt that came from no file
	TimeoutMS       int64    `json:"timeout_ms"`
	TokenBudget     int      `json:"token_budget"` // 0: none
	MaxCost         *float64 `json:"max_cost_usd"`
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
	Workers     int     `json:"recommended_workers"`
	Bound       Bound   `json:"bound"`
	BucketOfOne bool    `json:"bucket_of_one"`    // two requests at once are rejected at any rate: only a client that paces them uses the limit
	Binding     Binding `json:"binding,omitzero"` // where Bound is BoundRequests, BoundTokens or BoundCertified
	Low         int     `json:"low"`              // the answer lies between the two, where the search was stopped early
	High        int     `json:"high"`
	Subject
	Error    string        `json:"error,omitempty"` // why the search was stopped early
	Findings Findings      `json:"-"`
	Soak     Soak          `json:"soak"`
	Spent    Spent         `json:"spent"`
	Took     time.Duration `json:"-"`
	Notes    []string      `json:"notes"`          // disagreements, what could not be certified and which flag would
	Hint     string        `json:"hint,omitempty"` // what to do for a better answer; "" is nothing
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

// maxLimit is the largest that a file of limits may state.
const maxLimit = 1e12

// whole returns the value as a file of limits states it. ok is false if it can not.
func (f Finding) whole() (value float64, ok bool) {
	value = math.Floor(f.Value + 1e-9) // a larger one than measured would be rejected
	return value, f.Known() && value >= 1 && value <= maxLimit
}

// MarshalJSON writes the document: the limits also as --config reads them.
func (r *Result) MarshalJSON() ([]byte, error) {
	type fields Result // without this method
	return json.Marshal(struct {
		*fields
		Limits   map[string]any `json:"limits,omitempty"`
		Findings map[string]any `json:"findings"`
		TookMS   int64          `json:"took_ms"`
	}{(*fields)(r), settings(r.Provider, r.Model, r.Findings.Limits), r.Findings.document(r.Timestamp), r.Took.Milliseconds()})
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
func (f *Findings) document(now time.Time) map[string]any {
	type value struct {
		Value      any           `json:"value"`
		Source     limits.Source `json:"source"`
		Margin     *float64      `json:"margin,omitempty"`
		Confidence *float64      `json:"confidence,omitempty"`
		At         time.Time     `json:"at,omitzero"`
		AgeS       *float64      `json:"age_s,omitempty"`
	}
	of := func(f Finding) value {
		if !f.Known() || math.IsInf(f.Value, 0) || math.IsNaN(f.Value) {
			return value{Source: SourceUnknown}
		}
		v := value{Value: f.Value, Source: f.Source, Margin: new(f.Margin), Confidence: new(f.confidence())}
		if !f.At.IsZero() {
			v.At, v.AgeS = f.At.UTC(), new(max(0, now.Sub(f.At).Round(100*time.Millisecond).Seconds()))
		}
		return v
	}
	all := map[string]any{"charge": of(Finding{}), "latency_ms": nil, "real": nil}
	for d := range new(sluice.Limits).All() {
		all[d.String()] = of(f.Limits[d])
	}
	all["slots"], all["queue"] = all["concurrency"], of(Finding{})
	delete(all, "concurrency")
	if f.Queue { // it rejects none
		all["slots"], all["queue"] = all["queue"], all["slots"]
	}
	if f.ChargeFrom != "" && f.ChargeFrom != SourceUnknown {
		all["charge"] = value{Value: f.Charge, Source: f.ChargeFrom}
	}
	if l := f.Latency; l.N > 0 {
		all["latency_ms"] = map[string]any{"mean": float64(l.Mean) / float64(time.Millisecond), "cv": l.CV, "n": l.N,
			"margin": l.CV / math.Sqrt(float64(l.N)), "source": limits.SourceMeasured}
		all["real"] = map[string]any{"input_tokens": f.Input, "output_tokens": f.Output, "charged_tokens": f.Charged}
	}
	return all
}
