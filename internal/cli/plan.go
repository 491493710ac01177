package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/plan"
)

// planOptions are the flags of the plan command.
type planOptions struct {
	flags *pflag.FlagSet

	cfg      forecast.PlanConfig
	settings account.Sources
	tier     string
	price    priceFlag
	maxCost  float64
	deadline deadlineFlag
	plot     string
	seed     uint64

	simulate, list, asJSON bool
}

// newPlan returns the command that turns limits and a workload into figures.
func newPlan(s *term.Streams) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan [--provider P --tier T | --rpm N ...]",
		Short: "Compute workers, throughput, time and cost from limits",
		Long: `Compute the possible workers, throughput, time and cost from rate limits. Nothing is sent.

Plan uses published limits of the tier. Limits in --config replace published limits, and flags replace both. A run
learns the real limits from the provider's headers. Slots are the number of requests in flight that a
client with pacing needs. Workers are the number of loops without pacing that stay within every limit.

--simulate runs the scheduler in virtual time against a simulated provider. Exit code 4 means that the plan exceeds
--max-cost or --deadline.`,
		Example: `  sluice plan --list
  sluice plan --tier start --model claude-sonnet-4-5 --requests 10000
  sluice plan --rpm 500 --tpm 30000 --latency 1.5s --input-tokens 1200 --max-tokens 300
  sluice plan --tier start --model claude-sonnet-4-5 --workload prompts.jsonl --max-tokens 500 --deadline 2h
  sluice plan --rpm 500 --tpm 30000 --workload prompts.jsonl --max-tokens 500 --simulate --plot forecast.svg
  sluice plan --model claude-sonnet-4 --tier tier1 --requests 5000 --simulate`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.flags = cmd.Flags()
			return runPlan(cmd.Context(), s, &o)
		},
	}
	define(cmd, o.table()...)
	return cmd
}

// table returns the flags of plan.
func (o *planOptions) table() []flagGroup {
	work, options := &o.cfg.Workload, &o.cfg.Options
	options.Safety, options.Processes = new(0.8), 1
	return []flagGroup{
		{"Limits", append([]flag{
			{name: "provider", field: &o.cfg.Provider, metavar: "NAME", help: "Use this provider (default: recognized from the model)", common: true},
			{name: "model", field: &o.cfg.Model, metavar: "MODEL", help: "Use the limits and prices of this model", common: true},
			{name: "tier", field: &o.tier, metavar: "NAME", help: "Use the published limits of this account tier", common: true},
			configFlag(&o.settings),
			{name: "list", field: &o.list, help: "List the published limits and exit", common: true},
		}, limitFlags(&o.cfg.Limits, "as published")...)},
		{"Workload", []flag{
			{name: "requests", field: countFrom(&work.Requests, 1), help: "Plan N requests (default: all requests of --workload)", common: true, sets: "Workload.Requests"},
			{name: "workload", field: &o.cfg.Input, metavar: "FILE", help: "Plan the requests in this input file of sluice run",
				sets: "Input", fix: "name a file of JSON lines, or - for standard input"},
			{name: "latency", field: durationFrom(&work.Latency, 1), help: "Set the mean duration of a request (default: 2s)", sets: "Workload.Latency"},
			{name: "input-tokens", field: countFrom(&work.InputTokens, 1), help: "Set the mean input tokens per request (default: 1500)", without: "workload", sets: "Workload.InputTokens"},
			{name: "output-tokens", field: &work.OutputTokens, metavar: "N", help: "Set the mean output tokens per request (default: 500)", sets: "Workload.OutputTokens"},
			{name: "max-tokens", field: countFrom(&work.MaxTokens, 1), help: "Set max_tokens of the requests", sets: "Workload.MaxTokens"},
			{name: "safety", field: shareOf(options.Safety), help: "Let workers use this share of the limits", sets: "Options.Safety"},
			{name: "processes", field: countFrom(&options.Processes, 1), help: "Share the limits among N processes", sets: "Options.Processes"},
		}},
		{"Cost and time", []flag{
			o.price.flag(),
			{name: "max-cost", field: usd(&o.maxCost), help: "Exit with code 4 if the plan costs more than this amount", common: true},
			{name: "deadline", field: o.deadline.option(), help: "Exit with code 4 if the plan needs more time than this", common: true},
		}},
		{"Simulation", []flag{
			{name: "simulate", field: &o.simulate, help: "Also simulate the run in virtual time", common: true},
			{name: "plot", field: &o.plot, metavar: "FILE", help: "Write an SVG chart of the run; needs --simulate"},
			{name: "seed", field: &o.seed, metavar: "N", help: "Set the random seed of --simulate"},
		}},
		{"Output", []flag{{name: "json", field: &o.asJSON, help: "Print one JSON document"}}},
	}
}

// runPlan is the plan command.
func runPlan(ctx context.Context, s *term.Streams, o *planOptions) (err error) {
	if err := o.config(s); err != nil {
		return err
	}
	if o.list {
		return listRegistry(s, o.cfg.Settings.Registry, o.cfg.Provider, o.cfg.Model, o.asJSON)
	}
	if err := o.checkSimulation(); err != nil {
		return err
	}
	p, err := forecast.MakePlan(ctx, o.cfg)
	if err != nil {
		return err
	}
	f := (*figures)(p)
	if o.simulate {
		if err := o.simulateRun(ctx, s, f); err != nil {
			return err
		}
	}
	if o.asJSON {
		err = s.JSON(f)
	} else {
		err = f.print(s)
	}
	return cmp.Or(err, p.Missed())
}

// config completes the PlanConfig.
func (o *planOptions) config(s *term.Streams) (err error) {
	c := &o.cfg
	if c.Settings, err = o.settings.Open(s.Logger(false)); err != nil {
		return err
	}
	if o.tier != "" {
		c.Settings.File.Tier, c.Settings.TierFlag = o.tier, "--tier"
	}
	if c.Options.Deadline = o.deadline.after; !o.deadline.at.IsZero() {
		c.Options.Deadline = time.Until(o.deadline.at)
	}
	if o.flags.Changed("max-cost") {
		c.Options.MaxCost = &o.maxCost
	}
	if rate := o.price.rate; rate != nil {
		c.Options.PriceIn, c.Options.PriceOut = &rate.Input, &rate.Output
	}
	c.Deadline, c.Stdin, c.Hide = o.deadline.text, s.In, s.Hide
	c.Workload.NoOutput = o.flags.Changed("output-tokens") && c.Workload.OutputTokens == 0
	return checkLimits(&c.Limits)
}

// checkSimulation checks the flags of the simulation.
func (o *planOptions) checkSimulation() error {
	for _, name := range []string{"plot", "seed"} {
		if o.flags.Changed(name) && !o.simulate {
			return fault.New(fault.Conflict, fmt.Errorf("--%s needs --simulate", name), "add --simulate")
		}
	}
	if !o.flags.Changed("plot") {
		return nil
	}
	if !strings.EqualFold(filepath.Ext(o.plot), ".svg") {
		return fault.New(fault.Value, fmt.Errorf("--plot %q does not end in .svg", o.plot), "name an SVG file, for example --plot chart.svg")
	}
	return regular.KeepApart("--plot", o.plot, append(o.settings, o.cfg.Input)...)
}

// simulateRun simulates the run and draws its chart.
func (o *planOptions) simulateRun(ctx context.Context, s *term.Streams, f *figures) error {
	chart, err := regular.Plan("--plot", o.plot)
	if err != nil {
		return err
	}
	ctx, end := signals.Interruptible(ctx)
	defer end()
	begun, shown := time.Now(), term.NewStaged(s, term.ProgressAuto)
	err = (*forecast.Plan)(f).Simulate(ctx, o.seed, func(ended int, at time.Duration) {
		line := fmt.Sprintf("simulated: %s, %s of %s", prose.Count(ended, "request"), prose.Span(at), f.name())
		if n := f.Requests; n > 0 {
			line = term.Bar(ended, n, 20) + " " + line
		}
		shown.Show("", time.Since(begun), line, nil)
	})
	shown.Stop()
	if err != nil {
		return err
	}
	f.Forecast.Plot = o.plot
	if chart == nil {
		return nil
	}
	if err := chart.Write(func(w io.Writer) error { return plan.Draw(w, f.name(), *f.Forecast) }); err != nil {
		return err
	}
	s.Errorf("sluice: the chart is in %s\n", chart.Name)
	return nil
}
