package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/plan"
)

// foreseeFlags are the flags of what plan foresees.
type foreseeFlags struct {
	simulate bool
	plot     string
	seed     uint64
}

// What is assumed of a run to be foreseen.
const (
	usualJitter  = 0.2 // sigma of a lognormal factor on the latency
	usualHorizon = 10 * time.Minute
)

func (f *foreseeFlags) flags() []flag {
	return []flag{
		{name: "simulate", field: &f.simulate, help: "Also simulate the run in virtual time", common: true},
		{name: "plot", field: &f.plot, metavar: "FILE", help: "Write an SVG chart of the run; needs --simulate"},
		{name: "seed", field: &f.seed, metavar: "N", help: "Set the random seed of --simulate"},
	}
}

// check finds what is wrong with the flags themselves, and with others.
func (f *foreseeFlags) check(o *planOptions) error {
	if !f.simulate {
		for _, name := range []string{"plot", "seed"} {
			if o.flags.Changed(name) {
				return fault.New(fault.Conflict, fmt.Errorf("--%s needs --simulate", name), "add --simulate")
			}
		}
		return nil
	}
	if !o.flags.Changed("plot") {
		return nil
	}
	if err := checkSVG(f.plot); err != nil {
		return err
	}
	return keepsApart("plot", f.plot, append(o.settings.Files, o.workload)...)
}

// foreseeRun foresees the run, and draws it.
func (o *planOptions) foreseeRun(ctx context.Context, s *term.Streams, f planned) error {
	chart, err := newFileFor("plot", o.foresee.plot)
	if err != nil {
		return err
	}
	ctx, end := signals.Interruptible(ctx)
	defer end()
	scenario, assumed := o.scenario(f)
	scenario.Progress = lookAhead(s, f)
	seen, err := plan.Simulate(ctx, scenario)
	s.Err.Redraw(nil)
	switch {
	case ctx.Err() != nil:
		return &fault.Error{Code: fault.Interrupted, Err: errors.New("interrupted"), Hint: "simulate fewer --requests, or omit --simulate for an immediate plan"}
	case err != nil:
		return o.planError(err)
	}
	f.Assumed = append(f.Assumed, assumed...)
	seen.Plot = o.foresee.plot
	if f.Requests == 0 && seen.Time.Duration == scenario.Horizon {
		seen.Stopped = "" // as far as was meant
	}
	if f.CostPerRequest != nil {
		seen.Cost = new(*f.CostPerRequest * float64(seen.Completed))
	}
	if o.shape.Deadline > 0 {
		seen.WithinDeadline = new(seen.Within(o.shape.Deadline))
	}
	f.Forecast = &seen
	return draw(s, chart, func(w io.Writer) error { return plan.Draw(w, f.name(), seen) })
}

// scenario is the run to foresee, and what nobody said of it.
func (o *planOptions) scenario(f planned) (plan.Scenario, []plan.Assumption) {
	s := f.Plan.Scenario(usualJitter)
	s.Workers, s.Dialect, s.Provider.Seed = mostWorkers, f.subject.account.Dialect, o.foresee.seed
	s.Told, s.Start = f.subject.told, f.subject.start
	assumed := []plan.Assumption{{What: "jitter", Value: fmt.Sprint(usualJitter), Why: "spread of the latency: sigma of a lognormal factor"}}
	if f.Plan.Limits.Burst == 0 {
		assumed = append(assumed, plan.Assumption{What: "burst", Value: fmt.Sprint(s.Provider.Burst), Why: "not set: the provider's token buckets hold the limit of one second, or four of the largest requests"})
	}
	if f.Requests == 0 {
		s.Horizon = usualHorizon
		assumed = append(assumed, plan.Assumption{What: "horizon", Value: prose.Span(s.Horizon), Why: "without --requests, this length of time is simulated"})
	}
	return s, assumed
}

// lookAhead shows on a terminal how far a simulation is.
func lookAhead(s *term.Streams, f planned) func(ended int, at time.Duration) {
	if _, _, tty := s.Err.Size(); !tty {
		return nil
	}
	shown := time.Now()
	return func(ended int, at time.Duration) {
		width, _, ok := s.Err.Size()
		if !ok || time.Since(shown) < 200*time.Millisecond {
			return
		}
		shown = time.Now()
		line := fmt.Sprintf("foreseen: %s, %s of %s", prose.Count(ended, "call"), prose.Span(at), f.name())
		if n := f.Requests; n > 0 {
			line = term.Bar(ended, n, 20) + " " + line
		}
		s.Err.Redraw([]string{term.Clip(line, width-1)})
	}
}
