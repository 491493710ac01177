package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/plan"
)

// foreseeFlags are the flags of what plan foresees.
type foreseeFlags struct {
	simulate bool
	learn    bool
	plot     string
	jitter   float64
	horizon  time.Duration
	seed     uint64
}

// What is assumed of a run to be foreseen where nobody says.
const (
	usualJitter  = 0.2
	usualHorizon = 10 * time.Minute
)

func (f *foreseeFlags) register(fs *pflag.FlagSet) {
	fs.BoolVar(&f.simulate, "simulate", false, "foresee the run, in virtual time, beside computing it")
	fs.StringVar(&f.plot, "plot", "", "with --simulate: draw the run into FILE.svg, which is replaced")
	fs.BoolVar(&f.learn, "learn", false, "with --simulate: the client is told nothing, and learns the limits from answers")
	fs.Float64Var(&f.jitter, "jitter", usualJitter, "with --simulate: spread of the latency, sigma of a lognormal factor (absent: that of --events, or 0.2)")
	fs.DurationVar(&f.horizon, "for", usualHorizon, "with --simulate: how long to look at requests without end")
	fs.Uint64Var(&f.seed, "seed", 0, "with --simulate: decides all luck")
}

// mostDrawn is how many forecasts a chart tells apart.
const mostDrawn = 7

// check finds what is wrong with the flags themselves, and with others.
func (f *foreseeFlags) check(o *planOptions) error {
	if o.events == "-" && o.workload == "-" {
		return usageError(errors.New("--events and --workload both read standard input"), "give one of them a file")
	}
	if !f.simulate {
		for _, name := range []string{"plot", "learn", "jitter", "for", "seed"} {
			if o.flags.Changed(name) {
				return usageError(fmt.Errorf("--%s is for --simulate, which is missing", name), "say --simulate, too")
			}
		}
		return nil
	}
	switch {
	case !(f.jitter >= 0 && f.jitter <= 3):
		return usageError(fmt.Errorf("--jitter %v is not between 0 and 3", f.jitter), "say how far latencies spread, such as --jitter 0.3")
	case f.horizon <= 0:
		return usageError(fmt.Errorf("--for %s is not above zero", f.horizon), "say how long to look, such as --for 1h")
	case o.flags.Changed("for") && (o.stated.Requests > 0 || o.workload != "" || o.events != ""):
		return usageError(errors.New("--for is for requests without end, and these have one"), "leave --for out, or --requests, --workload and --events")
	case o.flags.Changed("plot"):
		return f.checkPlot(o)
	}
	return nil
}

// checkPlot refuses a chart that cannot be drawn, or that would take the place of something else.
func (f *foreseeFlags) checkPlot(o *planOptions) error {
	if err := checkSVG(f.plot); err != nil {
		return err
	}
	if len(o.whatIf) >= mostDrawn {
		return usageError(fmt.Errorf("--plot: %d tiers cannot be told apart in a chart", len(o.whatIf)+1), "compare %d at most", mostDrawn)
	}
	return keepsApart("plot", f.plot, o.workload, o.events, o.settings.limits, o.settings.config)
}

// foreseeAll foresees a run for each of the figures, and draws them.
func (o *planOptions) foreseeAll(ctx context.Context, s *streams, all []planned) error {
	chart, err := newFileFor("plot", o.foresee.plot)
	if err != nil {
		return err
	}
	ctx, end := interruptible(ctx)
	defer end()
	var drawn []plan.Named
	for _, f := range all {
		scenario, assumed := o.scenario(f)
		scenario.Progress = s.lookAhead(f)
		seen, err := plan.Simulate(ctx, scenario)
		s.err.redraw(nil)
		switch {
		case ctx.Err() != nil:
			return &exitError{code: exitInterrupted, err: errors.New("interrupted"), hint: "fewer --requests are foreseen sooner; without --simulate the plan is there at once"}
		case err != nil:
			return o.planError(err)
		}
		f.Assumed = append(f.Assumed, assumed...)
		seen.Plot = o.foresee.plot
		if f.Requests == 0 && seen.Time.Duration == scenario.Horizon {
			seen.Stopped = "" // as far as was meant
		}
		if f.CostPerRequest != nil {
			seen.Cost = new(*f.CostPerRequest * float64(seen.Answered))
		}
		if o.shape.Deadline > 0 {
			seen.WithinDeadline = new(seen.Within(o.shape.Deadline))
		}
		f.Forecast = &seen
		drawn = append(drawn, plan.Named{Name: f.name(), Forecast: seen})
	}
	return s.draw(chart, func(w io.Writer) error { return plan.Draw(w, drawn...) })
}

// scenario is the run to foresee, and what nobody said of it.
func (o *planOptions) scenario(f planned) (plan.Scenario, []plan.Assumption) {
	var assumed []plan.Assumption
	jitter := o.foresee.jitter
	switch {
	case o.flags.Changed("jitter"):
	case o.seen != nil && !o.flags.Changed("latency"):
		jitter = o.seen.Jitter
	default:
		assumed = append(assumed, plan.Assumption{What: "jitter", Value: fmt.Sprint(jitter), Why: "not stated"})
	}
	s := f.Plan.Scenario(jitter)
	if o.seen != nil && !o.flags.Changed("latency") {
		o.seen.apply(&s)
	}
	s.Workers, s.Dialect, s.Provider.Seed = mostWorkers, f.subject.account.Dialect, o.foresee.seed
	if !o.foresee.learn {
		s.Told, s.Start = f.subject.told, f.subject.start
	}
	if f.Plan.Limits.Burst == 0 {
		assumed = append(assumed, plan.Assumption{What: "burst_seconds", Value: fmt.Sprint(s.Provider.Burst.Seconds()), Why: "not stated: what the provider's buckets hold, a second's worth or four of the largest calls"})
	}
	if f.Requests == 0 {
		s.Horizon = o.foresee.horizon
		if !o.flags.Changed("for") {
			assumed = append(assumed, plan.Assumption{What: "for", Value: span(s.Horizon), Why: "not stated: how long to look at requests without end"})
		}
	}
	return s, assumed
}

// lookAhead shows on a terminal how far a simulation is.
func (s *streams) lookAhead(f planned) func(ended int, at time.Duration) {
	if _, _, tty := s.terminal(); !tty {
		return nil
	}
	shown := time.Now()
	return func(ended int, at time.Duration) {
		width, _, ok := s.terminal()
		if !ok || time.Since(shown) < 200*time.Millisecond {
			return
		}
		shown = time.Now()
		line := fmt.Sprintf("foreseen: %s, %s of %s", count(ended, "call"), span(at), f.name())
		if n := f.Requests; n > 0 {
			line = bar(ended, n, 20) + " " + line
		}
		s.err.redraw([]string{clip(line, width-1)})
	}
}
