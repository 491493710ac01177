package cli

import (
	"math"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/find"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/provider"
)

// findings are what a search found as a document, which --limits reads. Fields are only ever added.
type findings struct {
	Workers     int             `json:"workers"`
	Bound       find.Bound      `json:"bound"`
	BucketOfOne bool            `json:"bucket_of_one"`
	Binding     *bindingLimit   `json:"binding,omitempty"`
	Low         int             `json:"low"`
	High        int             `json:"high"`
	Model       string          `json:"model"`
	Provider    string          `json:"provider"`
	BaseURL     string          `json:"base_url"`
	Mode        string          `json:"mode"`
	Timestamp   time.Time       `json:"timestamp"`
	Error       string          `json:"error,omitempty"`
	Limits      *config.Limits  `json:"limits,omitempty"`
	Values      foundValues     `json:"findings"`
	Soak        soakFigures     `json:"soak"`
	Spent       find.Spent      `json:"spent"`
	TookMS      int64           `json:"took_ms"`
	Notes       []string        `json:"notes"`
	Hint        string          `json:"hint,omitempty"`
	Settings    findingSettings `json:"settings"`
}

// bindingLimit is the limit that keeps the answer from being higher.
type bindingLimit struct {
	Dimension sluice.Dimension `json:"dimension"`
	Cost      float64          `json:"cost"`
	Busy      float64          `json:"busy"`
	Margin    float64          `json:"margin"`
}

// foundValues are all values that a search is about, also those that it did not find.
type foundValues struct {
	Slots   foundValue    `json:"slots"`
	Queue   foundValue    `json:"queue"`
	RPM     foundValue    `json:"rpm"`
	TPM     foundValue    `json:"tpm"`
	ITPM    foundValue    `json:"itpm"`
	OTPM    foundValue    `json:"otpm"`
	RPD     foundValue    `json:"rpd"`
	TPD     foundValue    `json:"tpd"`
	Charge  foundCharge   `json:"charge"`
	Latency *foundLatency `json:"latency_ms"`
	Real    *realCalls    `json:"real"`
}

// foundValue is one value, and how well it is known. Value is null where it is not.
type foundValue struct {
	Value      *float64      `json:"value"`
	Source     sluice.Source `json:"source"`
	Margin     *float64      `json:"margin,omitempty"`
	Confidence *float64      `json:"confidence,omitempty"`
	At         time.Time     `json:"at,omitzero"`
	AgeS       *float64      `json:"age_s,omitempty"`
}

// foundCharge says how tokens are counted.
type foundCharge struct {
	Value  *string       `json:"value"`
	Source sluice.Source `json:"source"`
}

// foundLatency is how long real calls take, in milliseconds.
type foundLatency struct {
	Mean   float64       `json:"mean"`
	CV     float64       `json:"cv"`
	N      int           `json:"n"`
	Margin float64       `json:"margin"`
	Source sluice.Source `json:"source"`
}

// realCalls are the mean tokens of a real call.
type realCalls struct {
	Input   float64 `json:"input_tokens"`
	Output  float64 `json:"output_tokens"`
	Charged float64 `json:"charged_tokens"`
}

type soakFigures struct {
	Workers int     `json:"workers"`
	Calls   int     `json:"calls"`
	Refused int     `json:"refused"`
	AtMost  float64 `json:"at_most"`
}

// findingSettings are the flags that decided the search.
type findingSettings struct {
	MaxWorkers      int      `json:"max_workers"`
	MinOutputTokens int      `json:"min_output_tokens"`
	PromptFile      string   `json:"prompt_file"`
	TimeoutMS       int64    `json:"timeout_ms"`
	TokenBudget     int      `json:"token_budget"` // 0: none
	MaxCost         *float64 `json:"max_cost_usd"`
	Quick           bool     `json:"quick"`
}

// newFindings makes the document of a result at an instant. published is how far a tier's limits are to be trusted.
func newFindings(r *find.Result, target provider.Target, p provider.Provider, published float64, now time.Time) *findings {
	d := &findings{
		Workers: r.Workers, Bound: r.Bound, BucketOfOne: r.BucketOfOne, Low: r.Low, High: r.High,
		Model: target.Model, Provider: p.Name, BaseURL: target.BaseURL, Mode: modeAuto, Timestamp: now.UTC(),
		Soak:  soakFigures{r.Soak.Workers, r.Soak.Calls, r.Soak.Refused, r.Soak.AtMost()},
		Spent: r.Spent, TookMS: r.Took.Milliseconds(), Notes: r.Notes, Hint: r.Hint,
	}
	if d.Notes == nil {
		d.Notes = []string{}
	}
	if b := r.Binding; b.Dimension != sluice.AnyDimension {
		d.Binding = &bindingLimit{b.Dimension, b.Cost, b.Busy, b.Margin}
	}
	w := valueWriter{published: published, now: now}
	d.Limits = w.limits(r, p.Name, target.Model)
	d.Values = w.values(r)
	return d
}

// knows reports whether there is a limit that one could keep to, and that was not known before the search.
func (d *findings) knows() bool {
	if d.Limits == nil {
		return false
	}
	for dimension := range new(sluice.Limits).All() {
		if l := *d.Limits.At(dimension); l != nil && l.Source != sluice.SourceTold && l.Source != sluice.SourceRegistry && l.Source != sluice.SourceAtLeast {
			return true
		}
	}
	return false
}

// valueWriter writes findings down, at an instant.
type valueWriter struct {
	published float64 // how far to trust limits of a tier
	now       time.Time
}

// limits are those that are known, as files have them; nil if none is.
func (w valueWriter) limits(r *find.Result, provider, model string) *config.Limits {
	l := &config.Limits{Provider: provider, Model: model}
	known := false
	for d := range new(sluice.Limits).All() {
		f := r.Limits[d]
		if d == sluice.Concurrency {
			f = r.Slots
		}
		value := math.Floor(f.Value + 1e-9) // what is more than measured would be refused
		if !f.Known() || !(value >= 1 && value <= mostLimit) {
			continue
		}
		*l.At(d) = &config.Limit{Value: value, Source: f.Source, Confidence: w.confidence(f), At: f.At.UTC()}
		known = true
	}
	if !known {
		return nil
	}
	return l
}

// mostLimit is the largest that a file of limits may state.
const mostLimit = 1e12

// confidence is from 0 to 1, with three digits.
func (w valueWriter) confidence(f find.Finding) float64 {
	if f.Source == sluice.SourceRegistry {
		return w.published
	}
	return math.Round(min(max(0, 1-f.Margin), 1)*1000) / 1000
}

func (w valueWriter) values(r *find.Result) foundValues {
	v := foundValues{
		RPM: w.value(r.Limits[sluice.Requests]), TPM: w.value(r.Limits[sluice.Tokens]), ITPM: w.value(r.Limits[sluice.InputTokens]),
		OTPM: w.value(r.Limits[sluice.OutputTokens]), RPD: w.value(r.Limits[sluice.RequestsPerDay]), TPD: w.value(r.Limits[sluice.TokensPerDay]),
		Slots: w.value(r.Slots), Queue: w.value(find.Finding{}), Charge: foundCharge{Source: find.SourceUnknown},
	}
	if r.Queue { // it refuses none
		v.Slots, v.Queue = v.Queue, v.Slots
	}
	if from := r.ChargeFrom; from != "" && from != find.SourceUnknown {
		v.Charge = foundCharge{new(r.Charge.String()), from}
	}
	if l := r.Latency; l.N > 0 {
		v.Latency = &foundLatency{float64(l.Mean) / float64(time.Millisecond), l.CV, l.N, l.Margin(), sluice.SourceMeasured}
		v.Real = &realCalls{r.Input, r.Output, r.Charged}
	}
	return v
}

func (w valueWriter) value(f find.Finding) foundValue {
	if !f.Known() || math.IsInf(f.Value, 0) || math.IsNaN(f.Value) {
		return foundValue{Source: find.SourceUnknown}
	}
	v := foundValue{Value: new(f.Value), Source: f.Source, Margin: new(f.Margin), Confidence: new(w.confidence(f))}
	if !f.At.IsZero() {
		v.At, v.AgeS = f.At.UTC(), new(max(0, w.now.Sub(f.At).Round(100*time.Millisecond).Seconds()))
	}
	return v
}
