package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// planOptions are the flags of the plan command, and what they lead to.
type planOptions struct {
	flags *pflag.FlagSet

	provider string
	model    string
	settings account.Sources
	limits   limitFlags
	stated   plan.Workload // the calls, without those of a file
	workload string
	shape    plan.Options // but for prices and the budget
	price    price
	maxCost  float64
	deadline deadline
	list     bool
	asJSON   bool
	foresee  foreseeFlags

	told  sluice.Limits // by flags
	kept  *account.Settings
	input workloadFile

	published *config.Limits // nil: none were read
}

// newPlan returns the command that turns limits and a workload into figures.
func newPlan(s *term.Streams) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan [--provider P --tier T | --rpm N ...]",
		Short: "Compute workers, throughput, time and cost from limits",
		Long: `Compute the possible workers, throughput, time and cost from rate limits. Nothing is sent.

Plan uses the published limits of --tier. Limits in --config replace published limits, and flags replace both. A run
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
	o.shape.Safety, o.shape.Processes = new(0.8), 1
	return []flagGroup{
		{"Limits", append([]flag{
			{name: "provider", field: &o.provider, metavar: "NAME", help: "Use this provider (default: recognized from the model)", common: true},
			{name: "model", field: &o.model, metavar: "MODEL", help: "Use the limits and prices of this model", common: true},
			{name: "tier", field: &o.settings.Tier, metavar: "NAME", help: "Use the published limits of this account tier", common: true},
			configFlag(&o.settings),
			{name: "list", field: &o.list, help: "List the published limits and exit", common: true},
		}, o.limits.flags("as published")...)},
		{"Workload", []flag{
			{name: "requests", field: countFrom(&o.stated.Requests, 1), help: "Plan N requests (default: all requests of --workload)", common: true, sets: "Workload.Requests"},
			{name: "workload", field: &o.workload, metavar: "FILE", help: "Plan the requests in this input file of sluice run"},
			{name: "latency", field: durationFrom(&o.stated.Latency, 1), help: "Set the mean duration of a request (default: 2s)", sets: "Workload.Latency"},
			{name: "input-tokens", field: countFrom(&o.stated.InputTokens, 1), help: "Set the mean input tokens per request (default: 1500)", without: "workload", sets: "Workload.InputTokens"},
			{name: "output-tokens", field: &o.stated.OutputTokens, metavar: "N", help: "Set the mean output tokens per request (default: 500)", sets: "Workload.OutputTokens"},
			{name: "max-tokens", field: countFrom(&o.stated.MaxTokens, 1), help: "Set max_tokens of the requests", sets: "Workload.MaxTokens"},
			{name: "safety", field: shareOf(o.shape.Safety), help: "Let workers use this share of the limits", sets: "Options.Safety"},
			{name: "processes", field: countFrom(&o.shape.Processes, 1), help: "Share the limits among N processes", sets: "Options.Processes"},
		}},
		{"Cost and time", []flag{
			o.price.flag(),
			{name: "max-cost", field: usd(&o.maxCost), help: "Exit with code 4 if the plan costs more than this amount", common: true},
			{name: "deadline", field: &o.deadline, help: "Exit with code 4 if the plan needs more time than this", common: true},
		}},
		{"Simulation", o.foresee.flags()},
		{"Output", []flag{{name: "json", field: &o.asJSON, help: "Print one JSON document"}}},
	}
}

// runPlan is the plan command.
func runPlan(ctx context.Context, s *term.Streams, o *planOptions) error {
	if err := o.open(); err != nil {
		return err
	}
	registry := o.kept.Registry
	if o.list {
		return listRegistry(s, registry, o.provider, o.model, o.asJSON)
	}
	o.adopt()
	if err := o.check(); err != nil {
		return err
	}
	account, err := o.read(s, registry)
	if err != nil {
		return err
	}
	o.published = o.readPublished(ctx, s, account, cmp.Or(o.model, o.input.model))
	o.warn(s, registry, account)
	return o.answer(ctx, s, registry, account)
}

// read reads the file of the workload, and finds whose limits are planned with.
func (o *planOptions) read(s *term.Streams, registry *provider.Registry) (provider.Provider, error) {
	account, err := o.accountOf(registry, o.model)
	if err != nil || o.workload == "" {
		return account, err
	}
	if o.input, err = o.readWorkload(s, account); err != nil {
		return account, err
	}
	if o.model == "" && o.input.model != "" {
		return o.accountOf(registry, o.input.model)
	}
	return account, nil
}

// answer plans, foresees, prints, and says which of the user's bounds cannot be kept.
func (o *planOptions) answer(ctx context.Context, s *term.Streams, registry *provider.Registry, account provider.Provider) error {
	model := cmp.Or(o.model, o.input.model)
	j, err := o.subjectOf(registry, account, model)
	explainSettings(s, o.kept, false)
	if err != nil {
		return err
	}
	o.priceOf(s, &j.tier, account, model)
	p, err := plan.ForTier(j.tier, j.account, o.work(), o.options())
	if err != nil {
		return o.planError(err)
	}
	planned := newPlanned(j, p, o.input.others)
	if o.foresee.simulate {
		if err := o.foreseeRun(ctx, s, planned); err != nil {
			return err
		}
	}
	if nodes := planned.NodesPerProcess; nodes*planned.Processes > planned.Slots {
		s.Errorf("sluice: warning: %d processes with %s each exceed %s\n", planned.Processes, prose.Count(nodes, "node"), prose.Count(planned.Slots, "slot"))
	}
	missed, err := o.missed(planned)
	if err != nil {
		return err
	}
	if o.asJSON {
		err = s.JSON(planned.figures)
	} else {
		err = planned.print(s)
	}
	return cmp.Or(err, missed)
}

// warn tells of what fits together badly, although a plan can be made of it.
func (o *planOptions) warn(s *term.Streams, r *provider.Registry, account provider.Provider) {
	model := cmp.Or(o.model, o.input.model)
	if owner, ok := r.Recognise(model); ok && len(account.Models) > 0 && owner.Name != account.Name {
		s.Errorf("sluice: warning: %s is a model of %s: is --provider %s meant?\n", term.Escape(model), owner.Name, account.Name)
	}
}

// open reads what is written down.
func (o *planOptions) open() (err error) {
	if o.kept, err = o.settings.Open(); err != nil {
		return err
	}
	if o.shape.Deadline = o.deadline.after; !o.deadline.at.IsZero() {
		o.shape.Deadline = time.Until(o.deadline.at)
	}
	o.told, err = o.limits.Limits()
	return err
}

// adopt takes provider and model from the file of limits. Limits that nobody asked for are used where they fit, but do not
// say whom the plan is for, if anything else does.
func (o *planOptions) adopt() {
	if l := o.kept.File.Limits; l != nil {
		o.provider, o.model = cmp.Or(o.provider, l.Provider), cmp.Or(o.model, l.Model)
	}
}

// work is the workload that the flags and the file describe.
func (o *planOptions) work() plan.Workload {
	w := o.stated
	w.Calls = o.input.calls
	w.NoOutput = o.flags.Changed("output-tokens") && o.stated.OutputTokens == 0
	if o.workload != "" {
		w.MaxTokens = 0 // the lines were completed with it, as run does: others declare nothing
	}
	return w
}

// options are those of the plan.
func (o *planOptions) options() plan.Options {
	p := o.shape
	if o.flags.Changed("max-cost") {
		p.MaxCost = &o.maxCost
	}
	if told := o.price.rate; told != nil {
		p.PriceIn, p.PriceOut = &told.Input, &told.Output
	}
	return p
}

// missed is an error when the plan or the forecast exceeds the user's budget or deadline, and another when that cannot be known.
func (o *planOptions) missed(f planned) (missed, err error) {
	var faults, fits []string
	if o.flags.Changed("max-cost") {
		if f.WithinBudget == nil {
			return nil, missingPrice()
		}
		cost, how := f.Cost, "cost"
		if c := f.Forecast; c != nil && c.Cost != nil && (cost == nil || *cost <= o.maxCost) {
			cost, how = c.Cost, "would cost"
		}
		if cost != nil && *cost > o.maxCost {
			faults = append(faults, fmt.Sprintf("%s %s, above --max-cost %s", how, prose.Dollars(*cost), prose.Dollars(o.maxCost)))
			fits = append(fits, fmt.Sprintf("%s requests stay within --max-cost", prose.Group(*f.WithinBudget)))
		}
	}
	took, within, how := f.Time.Duration, f.WithinDeadline, "take"
	if c := f.Forecast; c != nil && f.Requests > 0 && c.Time.Duration > took {
		took, within, how = c.Time.Duration, c.WithinDeadline, "would take"
	}
	if within != nil && took > o.shape.Deadline {
		faults = append(faults, fmt.Sprintf("%s %s, longer than --deadline %s", how, prose.Span(took), o.deadline.text))
		fits = append(fits, fmt.Sprintf("%s requests finish before the deadline", prose.Group(*within)))
	}
	if len(faults) == 0 {
		return nil, nil
	}
	return &fault.Error{
		Code: fault.Bounds, Hint: strings.Join(fits, "; "),
		Err: fmt.Errorf("%s requests %s", prose.Group(f.Requests), strings.Join(faults, ", and ")),
	}, nil
}

// check finds flags that do not go together.
func (o *planOptions) check() error {
	if o.deadline.text != "" && o.stated.Requests == 0 && o.workload == "" {
		return fault.New(fault.Missing, errors.New("--deadline needs a number of requests"), "add --requests or --workload")
	}
	return o.foresee.check(o)
}

// planError returns an error of the plan, which is about the workload file if this has the request.
func (o *planOptions) planError(err error) error {
	wrong, ok := errors.AsType[*plan.FieldError](err)
	var call int
	switch {
	case ok && errors.Is(err, plan.ErrNoLimits):
		return fault.New(fault.Limits, wrong.Err, "set a limit with --rpm, --tpm or --concurrency")
	case ok && o.workload != "":
		if n, _ := fmt.Sscanf(wrong.Field, "Workload.Calls[%d]", &call); n == 1 {
			return fault.New(fault.Input, fmt.Errorf("%s: request %d of %s: %w", o.workload, call+1, cmp.Or(o.model, o.input.model), wrong.Err), "correct the request")
		}
	}
	return err
}
