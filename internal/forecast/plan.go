// Package forecast computes the cost and time of requests before they are sent: for sluice plan, for --dry-run, and for --batch with a
// deadline.
package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// PlanConfig describes an account, requests to it, and the bounds of their cost and time.
type PlanConfig struct {
	Settings *account.Settings   // with the tier, and the logger for warnings
	Provider string              // default: of the limits in Settings, or recognized from the model
	Model    string              // default: of the limits in Settings, or of all requests of Input
	Limits   sluice.Limits       // configured limits, which take precedence
	Hide     func(secret string) // is called with each text that must never be printed

	Workload plan.Workload // without Calls
	Input    string        // input of sluice run with the calls (default: none)
	Stdin    io.Reader     // of the Input "-"
	Options  plan.Options  // Charge is the provider's
	Deadline string        // Options.Deadline as messages write it
}

// Plan is the document of sluice plan.
type Plan struct {
	Provider string        `json:"provider,omitempty"`    // Provider.
	Tier     string        `json:"tier,omitempty"`        // Tier.
	Model    string        `json:"model,omitempty"`       // Model.
	Limits   config.Limits `json:"limits"`                // Limits of the plan.
	Source   *Source       `json:"tier_source,omitempty"` // Source of the tier's limits. Nil: the limits are not of a tier.
	plan.Plan
	Forecast *plan.Forecast `json:"forecast,omitempty"` // Result of `--simulate`.

	cfg     PlanConfig
	dialect provider.Dialect
}

// Source is where published limits are from.
type Source struct {
	URL      string `json:"url,omitempty"`  // Address of the source.
	Date     string `json:"date,omitempty"` // Date of the source.
	Note     string `json:"note,omitempty"` // Note.
	Doubtful bool   `json:"doubtful"`       // The source is doubtful or missing.
}

// MakePlan computes a plan. It may read the limits that the provider publishes for the account, but sends no requests to models.
func MakePlan(ctx context.Context, cfg PlanConfig) (*Plan, error) {
	if cfg.Deadline != "" && cfg.Workload.Requests == 0 && cfg.Input == "" {
		return nil, fault.New(fault.Missing, errors.New("--deadline needs a number of requests"), "add --requests or --workload")
	}
	if l := cfg.Settings.File.Limits; l != nil {
		cfg.Provider, cfg.Model = cmp.Or(cfg.Provider, l.Provider), cmp.Or(cfg.Model, l.Model)
	}
	by, err := cfg.provider()
	if err != nil {
		return nil, err
	}
	others := 0
	if cfg.Input != "" {
		if others, err = cfg.read(by); err != nil {
			return nil, err
		}
		by, _ = cfg.provider() // of the model of the requests
	}
	p := &Plan{cfg: cfg, Provider: by.Name, Model: cfg.Model, dialect: by.Dialect}
	tier, err := p.setLimits(ctx, by)
	if err != nil {
		return nil, err
	}
	if p.Tier = tier.Tier; p.Tier != "" {
		p.Source = &Source{URL: tier.Source, Date: tier.Date, Note: tier.Note, Doubtful: tier.Doubtful}
	}
	cfg.price(&tier, by)
	if p.Plan, err = plan.ForTier(tier, by, cfg.Workload, cfg.Options); err != nil {
		return nil, cfg.explain(err)
	}
	p.OtherModels = others
	if nodes := p.NodesPerProcess; nodes*p.Processes > p.Slots {
		cfg.Settings.Log.Warn(fmt.Sprintf("%d processes with %s each exceed %s",
			p.Processes, prose.Count(nodes, "node"), prose.Count(p.Slots, "slot")))
	}
	if cfg.Options.MaxCost != nil && p.WithinBudget == nil {
		return nil, account.MissingPrice()
	}
	return p, nil
}

// provider returns the provider. It has no name if neither a flag names it nor the model is known.
func (c *PlanConfig) provider() (provider.Provider, error) {
	if c.Provider == "" {
		p, _ := c.Settings.Registry.Recognise(c.Model)
		return p, nil
	}
	return account.LookupProvider(c.Settings.Registry, c.Provider)
}

// price completes a row without prices by the prices of the model.
func (c *PlanConfig) price(row *provider.Tier, by provider.Provider) {
	if row.PriceIn != nil || row.PriceOut != nil || c.Model == "" {
		return
	}
	if price := c.Settings.Price(nil, by, c.Model); price != nil {
		rate := price.Standard()
		row.PriceIn, row.PriceOut = &rate.Input, &rate.Output
	}
}

// explain returns an error of package plan. If it is about a request of the input, it names the input.
func (c *PlanConfig) explain(err error) error {
	wrong, ok := errors.AsType[*plan.FieldError](err)
	var call int
	switch {
	case ok && errors.Is(err, plan.ErrNoLimits):
		return fault.New(fault.Limits, wrong.Err, "set a limit with --rpm, --tpm or --concurrency")
	case ok && c.Input != "":
		if n, _ := fmt.Sscanf(wrong.Field, "Workload.Calls[%d]", &call); n == 1 {
			return fault.New(fault.Input, fmt.Errorf("%s: request %d of %s: %w", c.Input, call+1, c.Model, wrong.Err), "correct the request")
		}
	}
	return err
}

// Assumptions about a simulated run.
const (
	usualJitter  = 0.2 // sigma of a lognormal factor on the latency
	usualHorizon = 10 * time.Minute
)

// Simulate adds the forecast of a simulated run to the plan. progress, if not nil, is called as in plan.Scenario.
func (p *Plan) Simulate(ctx context.Context, seed uint64, progress func(ended int, at time.Duration)) error {
	s := p.Scenario(usualJitter)
	s.Workers, s.Dialect, s.Provider.Seed, s.Progress = work.UsualWorkers, p.dialect, seed, progress
	s.Told, s.Start = p.Limits.Split()
	assume := func(what, value, why string) {
		p.Assumed = append(p.Assumed, plan.Assumption{What: what, Value: value, Why: why})
	}
	assume("jitter", fmt.Sprint(usualJitter), "spread of the latency: sigma of a lognormal factor")
	if p.Plan.Limits.Burst == 0 {
		assume("burst", fmt.Sprint(s.Provider.Burst),
			"not set: the provider's token buckets hold the limit of one second, or four of the largest requests")
	}
	if p.Requests == 0 {
		s.Horizon = usualHorizon
		assume("horizon", prose.Span(s.Horizon), "without --requests, this length of time is simulated")
	}
	f, err := plan.Simulate(ctx, s)
	switch {
	case ctx.Err() != nil:
		return &fault.Error{Code: fault.Interrupted, Err: errors.New("interrupted"),
			Hint: "simulate fewer --requests, or omit --simulate for an immediate plan"}
	case err != nil:
		return p.cfg.explain(err)
	}
	if p.Requests == 0 && f.Time.Duration == s.Horizon {
		f.Stopped = "" // as intended
	}
	if p.CostPerRequest != nil {
		f.Cost = new(*p.CostPerRequest * float64(f.Completed))
	}
	if p.cfg.Options.Deadline > 0 {
		f.WithinDeadline = new(f.Within(p.cfg.Options.Deadline))
	}
	p.Forecast = &f
	return nil
}

// Missed returns an error if the plan or its forecast exceeds the maximum cost or the deadline.
func (p *Plan) Missed() error {
	var faults, fits []string
	cost, costs := p.Cost, "cost"
	took, within, takes := p.Time.Duration, p.WithinDeadline, "take"
	bound := p.cfg.Options.MaxCost
	if f := p.Forecast; f != nil {
		if bound != nil && f.Cost != nil && (cost == nil || *cost <= *bound) {
			cost, costs = f.Cost, "would cost"
		}
		if p.Requests > 0 && f.Time.Duration > took {
			took, within, takes = f.Time.Duration, f.WithinDeadline, "would take"
		}
	}
	if bound != nil && cost != nil && *cost > *bound {
		faults = append(faults, fmt.Sprintf("%s %s, above --max-cost %s", costs, prose.Dollars(*cost), prose.Dollars(*bound)))
		fits = append(fits, fmt.Sprintf("%s requests stay within --max-cost", prose.Group(*p.WithinBudget)))
	}
	if within != nil && took > p.cfg.Options.Deadline {
		faults = append(faults, fmt.Sprintf("%s %s, longer than --deadline %s", takes, prose.Span(took), p.cfg.Deadline))
		fits = append(fits, fmt.Sprintf("%s requests finish before the deadline", prose.Group(*within)))
	}
	if len(faults) == 0 {
		return nil
	}
	return &fault.Error{
		Code: fault.Bounds, Hint: strings.Join(fits, "; "),
		Err: fmt.Errorf("%s requests %s", prose.Group(p.Requests), strings.Join(faults, ", and ")),
	}
}
