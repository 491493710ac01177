package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/telemetry"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
)

// How far a limit is to be trusted that an earlier run met, and one that stands for what it used.
const (
	trustObserved = 0.8
	trustUsed     = 0.5
)

// observation is what the events of an earlier run show of one lane.
type observation plan.ObservedLane

// readEvents reads the file of events and chooses the lane.
func (o *planOptions) readEvents(s *streams) (*observation, error) {
	var seen plan.Observed
	cut := false
	err := s.readEvents(o.events, func(in io.Reader) (err error) {
		cut, err = telemetry.ReadEvents(in, seen.Add)
		return err
	})
	if err != nil {
		return nil, err
	}
	from := inputName(o.events)
	lane, err := o.laneOf(seen.Lanes(), from)
	lane.From, lane.Cut = from, cut
	return (*observation)(&lane), err
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
	met := config.Limit{Source: limits.SourceMeasured, Confidence: trustObserved, At: ob.Last}
	switch {
	case ob.Limits != (sluice.Limits{}):
		return sourced(ob.Limits, met)
	case known:
		return nil
	}
	met.Source, met.Confidence = limits.SourceAtLeast, trustUsed
	return sourced(sluice.Limits{RPM: ob.used()}, met)
}

// used is the pace that the run kept, in requests a minute, and at least the most of any minute.
func (ob *observation) used() int {
	n := ob.PerMinute
	if took := ob.Last.Sub(ob.First); took >= 10*time.Second { // in less, a full bucket may have let it pass
		n = max(n, int(float64(ob.Answered)/took.Minutes()))
	}
	return n
}

// tooShort says of a run that met no limit, and whose pace stands for one, that it did not last for the minute over which
// limits are counted; "" if it did.
func (ob *observation) tooShort() string {
	took := ob.Last.Sub(ob.First)
	if took >= time.Minute || ob.Limits != (sluice.Limits{}) {
		return ""
	}
	return fmt.Sprintf("%s shows %s alone, in which no limit was met: a minute may allow far more than rpm %s", escape(ob.From), span(took), group(ob.used()))
}

// complete fills in what flags and file leave out of the workload.
func (ob *observation) complete(w *plan.Workload, o *planOptions) {
	if w.Latency == 0 {
		w.Latency = max(time.Millisecond, ob.Latency.Mean.Duration)
	}
	if o.workload != "" {
		return
	}
	if w.Requests == 0 {
		w.Requests = ob.Answered + ob.Failed
	}
	if o.first("input-tokens", "cached-tokens", "output-tokens") == "" {
		w.Calls = ob.Calls
		return
	}
	w.InputTokens = cmp.Or(w.InputTokens, int(ob.Input+0.5))
	if !w.NoOutput {
		w.OutputTokens = cmp.Or(w.OutputTokens, int(ob.Output+0.5))
	}
}

// apply lets the scenario's provider answer as fast as it did.
func (ob *observation) apply(s *plan.Scenario) {
	s.Provider.Latency, s.Provider.PerToken = ob.Base.Duration, ob.PerToken.Duration
	if s.Provider.Latency == 0 {
		s.Provider.Latency = -1 // to the imitation, zero is a default
	}
}

func (ob *observation) figures() *forecast.Observed {
	return &forecast.Observed{Traffic: ob.Traffic, Limits: ob.limitsBelow(true), Measured: ob.Measured}
}

// printObserved says what was inferred, and how sure that is.
func printObserved(w io.Writer, f *forecast.Observed) {
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
	fmt.Fprintf(w, "  throttled\t%s\tfailed: %s\n", dimensionWords(f.Throttled), group(f.Failed))
	fmt.Fprintf(w, "  most in a minute\t%s\tof the clock: %s tokens in, %s out\n", count(f.PerMinute, "answer"), group(f.Sustained.Input), group(f.Sustained.Output))
	how := "does not show how it grows with the output"
	if perToken := f.PerToken.Round(time.Microsecond); perToken > 0 {
		how = fmt.Sprintf("%s, and %.3g ms for each token of output", span(f.Base.Duration), 1e3*perToken.Seconds())
	}
	fmt.Fprintf(w, "  latency\t%s\t95 %% below %s; %s\n", span(f.Latency.Mean.Duration), span(f.Latency.P95.Duration), how)
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
