package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/plan"
)

// How far a limit is to be trusted that an earlier run met, and one that stands for what it used.
const (
	trustObserved = 0.8
	trustUsed     = 0.5
)

// observation is what the events of an earlier run show of one lane.
type observation struct {
	from string
	lane plan.ObservedLane
	cut  bool // the file's last line
}

// readEvents reads the file of events and chooses the lane.
func (o *planOptions) readEvents(s *streams) (*observation, error) {
	var seen plan.Observed
	cut := false
	err := s.readEvents(o.events, func(in io.Reader) (err error) {
		cut, err = telemetry.ReadEvents(in, func(_ []byte, e *sluice.Event) error { return seen.Add(e) })
		return err
	})
	if err != nil {
		return nil, err
	}
	from := inputName(o.events)
	lane, err := o.laneOf(seen.Lanes(), from)
	return &observation{from: from, lane: lane, cut: cut}, err
}

// laneOf chooses the lane of --model, or the only one.
func (o *planOptions) laneOf(lanes []plan.ObservedLane, from string) (plan.ObservedLane, error) {
	var names []string
	var chosen []plan.ObservedLane
	for _, l := range lanes {
		names = append(names, fmt.Sprintf("%s (%s)", l.Lane, count(l.Answered, "answer")))
		if o.model == "" || o.model == l.Lane {
			chosen = append(chosen, l)
		}
	}
	if len(chosen) == 0 { // a version of the model, perhaps
		for _, l := range lanes {
			if sameModel(l.Lane, o.model) {
				chosen = append(chosen, l)
			}
		}
	}
	list := strings.Join(names[:min(20, len(names))], ", ")
	switch {
	case len(lanes) == 0:
		return plan.ObservedLane{}, usageError(fmt.Errorf("%s has no events", from), "give a file that sluice run --events FILE wrote")
	case len(chosen) == 0:
		return plan.ObservedLane{}, usageError(fmt.Errorf("%s has no calls to %s, but to %s", from, o.model, list), "choose one with --model")
	case len(chosen) > 1:
		return plan.ObservedLane{}, usageError(fmt.Errorf("%s is of several models, which have limits of their own: %s", from, list), "choose one with --model")
	case chosen[0].Answered == 0:
		return plan.ObservedLane{}, usageError(fmt.Errorf("%s has no answer of %s, from which something could be inferred", from, cmp.Or(chosen[0].Lane, "a model")),
			"give the events of a run that got answers")
	}
	return chosen[0], nil
}

// limitsBelow are the limits that the run met. Where it met none, and none are known otherwise, what it used stands for
// them: that much at least is allowed.
func (ob *observation) limitsBelow(known bool) *config.Limits {
	limits, from, trust := ob.lane.Limits, config.SourceMeasured, trustObserved
	if limits == (sluice.Limits{}) {
		if known {
			return nil
		}
		limits, from, trust = sluice.Limits{RPM: ob.used()}, config.SourceAtLeast, trustUsed
	}
	var l config.Limits
	for d, limit := range limits.All() {
		if *limit > 0 {
			*l.At(d) = &config.Limit{Value: float64(*limit), Source: from, Confidence: trust, At: ob.lane.Last}
		}
	}
	return &l
}

// used is the pace that the run kept, in requests a minute, and at least the most of any minute.
func (ob *observation) used() int {
	n := ob.lane.PerMinute
	if took := ob.lane.Last.Sub(ob.lane.First); took >= 10*time.Second { // in less, a full bucket may have let it pass
		n = max(n, int(float64(ob.lane.Answered)/took.Minutes()))
	}
	return n
}

// tooShort says of a run that met no limit, and whose pace stands for one, that it did not last for the minute over which
// limits are counted; "" if it did.
func (ob *observation) tooShort() string {
	took := ob.lane.Last.Sub(ob.lane.First)
	if took >= time.Minute || ob.lane.Limits != (sluice.Limits{}) {
		return ""
	}
	return fmt.Sprintf("%s shows %s alone, in which no limit was met: a minute may allow far more than rpm %s", escape(ob.from), span(took), group(ob.used()))
}

// complete fills in what flags and file leave out of the workload.
func (ob *observation) complete(w *plan.Workload, o *planOptions) {
	if w.Latency == 0 {
		w.Latency = max(time.Millisecond, ob.lane.Latency.Mean)
	}
	if o.workload != "" {
		return
	}
	if w.Requests == 0 {
		w.Requests = ob.lane.Answered + ob.lane.Failed
	}
	if o.first("input-tokens", "cached-tokens", "output-tokens") == "" {
		w.Calls = ob.lane.Calls
		return
	}
	input, output := ob.means()
	w.InputTokens = cmp.Or(w.InputTokens, int(input+0.5))
	if !w.NoOutput {
		w.OutputTokens = cmp.Or(w.OutputTokens, int(output+0.5))
	}
}

// means are the mean tokens of the calls.
func (ob *observation) means() (input, output float64) {
	for _, c := range ob.lane.Calls {
		input += float64(c.Input)
		output += float64(max(0, c.Output))
	}
	n := float64(max(1, len(ob.lane.Calls)))
	return input / n, output / n
}

// apply lets the scenario's provider answer as fast as it did.
func (ob *observation) apply(s *plan.Scenario) {
	s.Provider.Latency, s.Provider.PerToken = ob.lane.Base, ob.lane.PerToken
	if s.Provider.Latency == 0 {
		s.Provider.Latency = -1 // to the imitation, zero is a default
	}
}

// observedFigures are an observation as it is printed.
type observedFigures struct {
	From        string         `json:"from"`
	Lane        string         `json:"lane"`
	First       time.Time      `json:"first,omitzero"`
	Last        time.Time      `json:"last,omitzero"`
	Cut         bool           `json:"last_line_cut,omitempty"`
	Answered    int            `json:"answered"`
	Failed      int            `json:"failed"`
	ThrottledBy map[string]int `json:"throttled_by,omitempty"`
	Peak        int            `json:"peak_in_flight"`
	Limits      *config.Limits `json:"limits,omitempty"`
	PerMinute   int            `json:"most_answers_per_minute"`
	Sustained   sluice.Usage   `json:"most_per_minute"`
	Latency     spreadFigures  `json:"latency_ms"`
	BaseMS      float64        `json:"latency_base_ms"`
	PerTokenMS  float64        `json:"latency_per_output_token_ms"`
	Jitter      float64        `json:"jitter"`
	Sampled     int            `json:"calls_sampled"`
	Input       float64        `json:"input_tokens"`
	Output      float64        `json:"output_tokens"`
}

func (ob *observation) figures() *observedFigures {
	l := &ob.lane
	f := &observedFigures{
		From: ob.from, Lane: l.Lane, First: l.First, Last: l.Last, Cut: ob.cut, Answered: l.Answered, Failed: l.Failed,
		ThrottledBy: byDimension(l.Throttled), Peak: l.Peak, Limits: ob.limitsBelow(true), PerMinute: l.PerMinute,
		Sustained: l.Sustained, Latency: newSpread(l.Latency), BaseMS: ms(l.Base), PerTokenMS: ms(l.PerToken),
		Jitter: l.Jitter, Sampled: len(l.Calls),
	}
	f.Input, f.Output = ob.means()
	return f
}

// print says what was inferred, and how sure that is.
func (f *observedFigures) print(w io.Writer) {
	fmt.Fprintf(w, "\nobserved in %s: %s of %s", escape(f.From), count(f.Answered, "answer"), escape(cmp.Or(f.Lane, "a model")))
	if took := f.Last.Sub(f.First); took > 0 {
		fmt.Fprintf(w, " in %s", span(took))
	}
	fmt.Fprintln(w)
	limits := "none was met\twhat was used is allowed, and perhaps more"
	if f.Limits != nil {
		var words []string
		for d := range new(sluice.Limits).All() {
			if l := *f.Limits.At(d); l != nil {
				words = append(words, fmt.Sprintf("%s %s", d, number(l.Value)))
			}
		}
		limits = strings.Join(words, ", ") + "\tthe last word of headers, refusals and the run's own measuring"
	}
	fmt.Fprintf(w, "  limits\t%s\n", limits)
	fmt.Fprintf(w, "  throttled\t%s\tfailed: %s\n", dimensionWords(f.ThrottledBy), group(f.Failed))
	fmt.Fprintf(w, "  most in a minute\t%s\tof the clock: %s tokens in, %s out\n", count(f.PerMinute, "answer"), group(f.Sustained.Input), group(f.Sustained.Output))
	how := "does not show how it grows with the output"
	if f.PerTokenMS > 0 {
		how = fmt.Sprintf("%s, and %.3g ms for each token of output", spanMS(f.BaseMS), f.PerTokenMS)
	}
	fmt.Fprintf(w, "  latency\t%s\t95 %% below %s; %s\n", spanMS(f.Latency.Mean), spanMS(f.Latency.P95), how)
	fmt.Fprintf(w, "  jitter\t%.2g\tsigma of a lognormal factor on the latency\n", f.Jitter)
	if f.Sampled == 0 {
		fmt.Fprintf(w, "  lengths\tunknown\tno answer told its tokens\n")
	} else {
		fmt.Fprintf(w, "  lengths\t%s in, %s out\tmeans of %s\n", number(f.Input), number(f.Output), count(f.Sampled, "call"))
	}
	if f.Cut {
		fmt.Fprintf(w, "  the last line was cut off, and is left out\n")
	}
}
