package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// planOptions are the flags of the plan command, and what they lead to.
type planOptions struct {
	flags *pflag.FlagSet

	provider string
	model    string
	settings settingsFlags
	limits   limitFlags
	stated   plan.Workload // the calls, without those of a file
	workload string
	shape    plan.Options // but for prices and the budget
	priceIn  float64
	priceOut float64
	maxCost  float64
	list     bool
	asJSON   bool
	foresee  foreseeFlags

	told  sluice.Limits // by flags
	kept  *settings
	input workloadFile

	published *config.Limits // nil: none were read
}

// newPlan returns the command that turns limits and a workload into figures.
func newPlan(s *streams) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan [--provider P --tier T | --rpm N ...]",
		Short: "Say what a provider's limits allow: slots, workers, throughput, time and cost",
		Long: `Say what a provider's limits allow: slots, workers, throughput, time and cost.

Limits are those published for a tier; over them those of a file; over them those told here.
All of them are a prior: a run believes what the provider's headers say. Slots are open calls for Sluice, which keeps to
a pace. Workers are loops without one that still stay within every limit, if any number does.

--simulate foresees the run besides: the gate that admits calls in a real run does so in virtual time, against an
imitation of the provider, for a client that is told what these flags would tell sluice run.

Exit code 4 means that --max-cost or --deadline cannot be kept.`,
		Example: `  sluice plan --list
  sluice plan --provider anthropic --tier start --model claude-sonnet-4-5 --requests 10000
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
	o.register(cmd.Flags())
	return cmd
}

func (o *planOptions) register(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVar(&o.provider, "provider", "", "whose limits (absent: recognised from the model)")
	fs.StringVar(&o.model, "model", "", "model, where limits differ by it")
	o.settings.register(fs)
	o.limits.register(fs)
	for _, name := range limitNames() {
		f := fs.Lookup(name)
		f.Usage = strings.Replace(f.Usage, "(0: learned)", "(0: as published)", 1)
	}
	fs.DurationVar(&o.stated.Latency, "latency", 0, "mean time of one call (absent: the tier's, or 2s)")
	fs.IntVar(&o.stated.InputTokens, "input-tokens", 0, "mean input tokens of a request (absent: the tier's, or 1500)")
	fs.IntVar(&o.stated.OutputTokens, "output-tokens", 0, "mean output tokens (absent: the tier's, max_tokens, or 500)")
	fs.IntVar(&o.stated.MaxTokens, "max-tokens", 0, "max_tokens that requests declare (absent: none)")
	fs.IntVar(&o.stated.Requests, "requests", 0, "how many requests (0: no end, or those of --workload)")
	fs.StringVar(&o.workload, "workload", "", "requests to plan for, as run takes them")
	o.shape.Safety = new(0.0)
	fs.Float64Var(o.shape.Safety, "safety", 0.8, "share of the limits that workers without a pace may use, from 0 to 1")
	fs.IntVar(&o.shape.Graphs, "graphs", 1, "programs side by side that share the limits")
	fs.Float64Var(&o.priceIn, "price-in", 0, "USD per million input tokens (absent: as sluice models says)")
	fs.Float64Var(&o.priceOut, "price-out", 0, "USD per million output tokens (absent: as sluice models says)")
	fs.Float64Var(&o.maxCost, "max-cost", 0, "fail if it costs more USD")
	fs.DurationVar(&o.shape.Deadline, "deadline", 0, "fail if it takes longer")
	o.foresee.register(fs)
	fs.BoolVar(&o.list, "list", false, "list what is published, of --provider and for --model if they are named, and nothing else")
	fs.BoolVar(&o.asJSON, "json", false, "print one JSON document")
}

// runPlan is the plan command.
func runPlan(ctx context.Context, s *streams, o *planOptions) error {
	if err := o.open(); err != nil {
		return err
	}
	registry := o.kept.registry
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
func (o *planOptions) read(s *streams, registry *provider.Registry) (provider.Provider, error) {
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
func (o *planOptions) answer(ctx context.Context, s *streams, registry *provider.Registry, account provider.Provider) error {
	model := cmp.Or(o.model, o.input.model)
	j, err := o.subjectOf(registry, account, model)
	if err != nil {
		return err
	}
	o.price(s, &j.tier, account, model)
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
	missed, err := o.missed(planned)
	if err != nil {
		return err
	}
	if o.asJSON {
		err = s.printJSON(planned.figures)
	} else {
		err = planned.print(s)
	}
	return cmp.Or(err, missed)
}

// warn tells of what fits together badly, although a plan can be made of it.
func (o *planOptions) warn(s *streams, r *provider.Registry, account provider.Provider) {
	model := cmp.Or(o.model, o.input.model)
	if owner, ok := r.Recognise(model); ok && len(account.Models) > 0 && owner.Name != account.Name {
		s.errorf("sluice: warning: %s is a model of %s: is --provider %s meant?\n", escape(model), owner.Name, account.Name)
	}
}

// open reads what is written down.
func (o *planOptions) open() (err error) {
	if o.kept, err = o.settings.open(); err != nil {
		return err
	}
	o.told, err = o.limits.Limits()
	return err
}

// adopt takes provider and model from the file of limits. Limits that nobody asked for are used where they fit, but do not
// say whom the plan is for, if anything else does.
func (o *planOptions) adopt() {
	l := o.kept.limits
	said := o.provider != "" || o.model != "" || o.workload != ""
	if l == nil || said && !o.kept.asked {
		return
	}
	o.provider, o.model = cmp.Or(o.provider, l.Provider), cmp.Or(o.model, l.Model)
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
	if o.flags.Changed("price-in") {
		p.PriceIn = &o.priceIn
	}
	if o.flags.Changed("price-out") {
		p.PriceOut = &o.priceOut
	}
	return p
}

// missed is an error when the plan or the forecast exceeds the user's budget or deadline, and another when that cannot be known.
func (o *planOptions) missed(f planned) (missed, err error) {
	var faults, fits []string
	if o.flags.Changed("max-cost") {
		if f.WithinBudget == nil {
			tier := f.subject.tier
			return nil, missingPrice(o.flags.Changed("price-in") || tier.PriceIn != nil, o.flags.Changed("price-out") || tier.PriceOut != nil)
		}
		cost, how := f.Cost, "cost"
		if c := f.Forecast; c != nil && c.Cost != nil && (cost == nil || *cost <= o.maxCost) {
			cost, how = c.Cost, "are foreseen to cost"
		}
		if cost != nil && *cost > o.maxCost {
			faults = append(faults, fmt.Sprintf("%s %s, above --max-cost %s", how, dollars(*cost), dollars(o.maxCost)))
			fits = append(fits, fmt.Sprintf("%s requests cost no more", group(*f.WithinBudget)))
		}
	}
	took, within, how := f.Time.Duration, f.WithinDeadline, "take"
	if c := f.Forecast; c != nil && f.Requests > 0 && c.Time.Duration > took {
		took, within, how = c.Time.Duration, c.WithinDeadline, "are foreseen to take"
	}
	if o.shape.Deadline > 0 && took > o.shape.Deadline {
		faults = append(faults, fmt.Sprintf("%s %s, longer than --deadline %s", how, span(took), o.shape.Deadline))
		fits = append(fits, fmt.Sprintf("%s requests are answered in time", group(*within)))
	}
	if len(faults) == 0 {
		return nil, nil
	}
	return &exitError{
		code: exitThreshold, hint: strings.Join(fits, "; "),
		err: fmt.Errorf("%s requests %s", group(f.Requests), strings.Join(faults, ", and ")),
	}, nil
}

// check finds what is wrong with the flags themselves, and between them.
func (o *planOptions) check() error {
	for _, name := range []string{"latency", "input-tokens", "max-tokens", "graphs", "deadline"} {
		f := o.flags.Lookup(name)
		if zero := f.Value.String(); f.Changed && (zero == "0" || zero == "0s") {
			return usageError(fmt.Errorf("--%s %s is not above zero", name, zero), "leave --%s out, or say what it is", name)
		}
	}
	switch {
	case o.shape.Deadline < 0:
		return usageError(fmt.Errorf("--deadline %s is below zero", o.shape.Deadline), "say how long it may take, such as --deadline 2h")
	case !(o.maxCost >= 0):
		return usageError(fmt.Errorf("--max-cost %v is no sum of money", o.maxCost), "say how many USD it may cost")
	}
	return o.checkTogether()
}

// checkTogether finds flags that do not go together.
func (o *planOptions) checkTogether() error {
	if o.flags.Changed("input-tokens") && o.workload != "" {
		return usageError(errors.New("--input-tokens and --workload both say how long requests are"), "leave one of them out")
	}
	if o.flags.Changed("deadline") && o.stated.Requests == 0 && o.workload == "" {
		return usageError(errors.New("--deadline for how many requests?"), "say --requests or --workload")
	}
	return o.foresee.check(o)
}

// planError names the flag whose value the plan refuses.
func (o *planOptions) planError(err error) error {
	wrong, ok := errors.AsType[*plan.FieldError](err)
	if !ok {
		return err
	}
	if errors.Is(err, plan.ErrNoLimits) {
		return usageError(wrong.Err, "tell a limit of requests, of tokens that the requests use, or of open calls: --rpm, --tpm, --concurrent")
	}
	flags := map[string]string{
		"Limits.Burst":      "rate-limit burst",
		"Workload.Requests": "requests", "Workload.Latency": "latency", "Workload.InputTokens": "input-tokens",
		"Workload.OutputTokens": "output-tokens", "Workload.MaxTokens": "max-tokens",
		"Options.Safety": "safety", "Options.Graphs": "graphs", "Options.PriceIn": "price-in", "Options.PriceOut": "price-out",
	}
	for d := range o.limits.limits.All() {
		flags["Limits."+d.Field()] = strings.TrimPrefix(limitFlag(d), "--")
	}
	name := wrong.Field
	var call int
	if n, _ := fmt.Sscanf(name, "Workload.Calls[%d]", &call); n == 1 && o.workload != "" {
		return usageError(fmt.Errorf("%s: request %d of %s: %w", o.workload, call+1, cmp.Or(o.model, o.input.model), wrong.Err), "mend the request")
	}
	if flag, ok := flags[wrong.Field]; ok {
		name = "--" + flag
	}
	return usageError(fmt.Errorf("%s: %w", name, wrong.Err), "see sluice plan --help")
}
