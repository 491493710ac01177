package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
)

// dry says what the run would do. Nothing is sent, and no file is written.
func (o *runOptions) dry(s *term.Streams, cfg batch.Config) error {
	o.account.Purpose, o.account.Rate = account.Estimate, o.budget.price.rate
	accounts, err := o.account.open(s)
	if err != nil {
		return err
	}
	defer func() { _ = accounts.Close() }() // nothing was opened
	if err := accounts.OpenUpstreams(); err != nil {
		return err
	}
	accounts.Fill(&cfg)
	cfg.Stdin = s.In
	if err := checkBatches(accounts, o); err != nil {
		return err
	}
	survey := forecast.NewSurvey(accounts)
	via := forecast.NewVia(o.goesLive(), cfg.Registry)
	preview, err := batch.ReadPreview(cfg, func(r batch.Request) error {
		survey.Add(r)
		via.Add(r)
		return nil
	})
	if err != nil {
		return explain(err, o, accounts)
	}
	if !o.watch.json {
		noteFields(s, preview.Fields)
	}
	d := &dryRun{
		DryRun: true, Input: o.cfg.Input, Output: o.cfg.Output, Preview: preview,
		Models: []*forecast.Lane{}, Assumed: []plan.Assumption{}, Unknown: []string{},
	}
	if err := survey.Sum((*forecast.DryRun)(d)); err != nil {
		return err
	}
	for _, l := range d.Models {
		d.doubt(l, accounts)
	}
	if o.usesBatches() {
		if err := d.addVia(via, o, accounts, cfg.Budget.Deadline); err != nil {
			return err
		}
	}
	if o.cfg.Cache != "" {
		d.unknown("cache: ignored in this estimate; cached results cost nothing")
	}
	if o.watch.json {
		return s.JSON(d)
	}
	if err := d.print(s); err != nil {
		return err
	}
	explainSettings(s, accounts.Settings, o.watch.verbose)
	return nil
}

// dryRun is what a run would do.
type dryRun forecast.DryRun

// doubt adds what is unknown of a lane.
func (d *dryRun) doubt(l *forecast.Lane, a *account.Accounts) {
	for _, p := range l.Places {
		if l.TimeS != nil || len(l.Places) > 1 && p.Lane.Limits != (sluice.Limits{}) {
			continue // known, or the limits of another account are unknown
		}
		why := noLimits(a.Settings.Registry, p.Provider, l.Model)
		text := why.Error()
		if a.Upstreams() != nil {
			text = "upstream " + p.Name + ": " + text
		}
		d.unknown("time: " + text)
		if e, ok := errors.AsType[*fault.Error](why); ok {
			d.Hint = cmp.Or(d.Hint, e.Hint)
		}
	}
	if of := a.Settings.Foreign(l.Model); of != "" {
		d.unknown(fmt.Sprintf("limits: %s starts with the limits of %s in %s", l.Model, of, a.Settings.File.Name))
	}
	if l.Cost == nil {
		d.unknown(fmt.Sprintf("cost: the price of %s at %s is unknown", l.Model, l.Provider))
	}
	if l.Unbounded > 0 {
		d.unknown(fmt.Sprintf("output: %s to %s without an output limit such as max_tokens", prose.Count(l.Unbounded, "request"), l.Model))
	}
}

func (d *dryRun) unknown(text string) {
	if !slices.Contains(d.Unknown, text) {
		d.Unknown = append(d.Unknown, text)
	}
}

// addVia adds what would go through Batch APIs, and what is sent live by its deadline.
func (d *dryRun) addVia(via *forecast.Via, o *runOptions, to *account.Accounts, deadline time.Time) error {
	known := to.Settings.Registry
	via.Sum(d.Models)
	for _, b := range via.Accounts {
		if account, _ := known.Lookup(b.Provider); account.Batches.API == "" {
			return noBatchAPI(known, b.Provider)
		}
	}
	d.Via, via.Pending = via, forecast.Pending{Batches: d.PendingParts, Requests: d.PendingLines}
	if len(via.Accounts) == 0 {
		return nil
	}
	d.unknown("finish time of batches: providers promise only the latest time")
	if o.goesLive() {
		for _, l := range d.Models {
			if l.TimeS == nil {
				why := fmt.Sprintf("--deadline needs the rate limit of %s at %s, but the limit is unknown: set --rpm", l.Model, l.Provider)
				d.Assumed = append(d.Assumed, plan.Assumption{What: limits.Requests.String(), Value: prose.Number(forecast.PresumedRPM), Why: why})
			}
		}
		via.Split((*forecast.DryRun)(d), time.Until(deadline), &forecast.Live{Place: to.Place, MaxTokens: o.cfg.MaxTokens})
	}
	return nil
}

// print writes it for people.
func (d *dryRun) print(s *term.Streams) error {
	s.Errorf("dry run: nothing is sent, and no file is written\n")
	s.Row("items", "%s", d.items())
	if len(d.Models) > 0 {
		s.Row("tokens", "about %s in, %s", prose.Group(d.InputTokens), outWords(d.MaxOutputTokens))
		s.Row("cost", "%s", costWords(d.Cost))
		s.Row("time", "%s", timeWords(d.TimeS, d.BoundBy))
		printVia(s, d.Via)
	}
	if err := d.printModels(s); err != nil {
		return err
	}
	for _, assumed := range d.Assumed {
		s.Row("assumed", "%s %s: %s", assumed.What, assumed.Value, assumed.Why)
	}
	for _, unknown := range d.Unknown {
		s.Row("unknown", "%s", unknown)
	}
	if d.Hint != "" {
		s.Errorf("hint: %s\n", d.Hint)
	}
	return nil
}

// items says how many there are.
func (d *dryRun) items() string {
	text := fmt.Sprintf("%s of %s remaining", prose.Group(d.Remaining), prose.Group(d.Total))
	if d.Done > 0 {
		text += fmt.Sprintf(", %s done", prose.Group(d.Done))
	}
	if d.Failed > 0 {
		text += fmt.Sprintf(", %s failed", prose.Group(d.Failed))
	}
	if d.Equal > 0 {
		text += fmt.Sprintf(", %s with the result of an equal request", prose.Group(d.Equal))
	}
	return text
}

// printModels writes a line for each model.
func (d *dryRun) printModels(s *term.Streams) error {
	w := tabwriter.NewWriter(s.Err, 0, 0, 2, ' ', 0)
	if len(d.Models) > 1 {
		fmt.Fprintln(w, "  model\titems\ttokens in\tmost out\tcost\ttime\tlimited by")
	}
	for _, l := range d.Models {
		if len(d.Models) > 1 {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", term.Escape(l.Model), prose.Group(l.Items), prose.Group(l.InputTokens), orUnknown(l.MaxOutputTokens),
				shortCost(l.Cost), shortTime(l.TimeS), l.BoundBy)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, l := range d.Models {
		if l.TooLarge > 0 {
			s.Row("too large", "%s to %s with more tokens than a limit allows: the provider will reject them", prose.Count(l.TooLarge, "request"), l.Model)
		}
		for _, p := range l.Places {
			if limits := limitParts(plan.LimitMap(p.Lane.Limits)); len(limits) > 0 {
				s.Row("limits", "%s at %s starts with %s", l.Model, p.Name, strings.Join(limits, ", "))
			}
		}
	}
	return nil
}

func outWords(most *int64) string {
	if most == nil {
		return "out without a bound"
	}
	return fmt.Sprintf("at most %s out", prose.Group(*most))
}

func orUnknown(n *int64) string {
	if n == nil {
		return "?"
	}
	return prose.Group(*n)
}

// costWords say what requests cost.
func costWords(c *forecast.Cost) string {
	switch {
	case c == nil:
		return "unknown"
	case c.Most == nil:
		return fmt.Sprintf("%s for the input, plus the cost of the output", prose.Dollars(c.Least))
	case *c.Most == c.Least:
		return prose.Dollars(c.Least)
	}
	return fmt.Sprintf("%s for the input alone, at most %s with responses of maximum length", prose.Dollars(c.Least), prose.Dollars(*c.Most))
}

func shortCost(c *forecast.Cost) string {
	switch {
	case c == nil:
		return "?"
	case c.Most == nil:
		return prose.Dollars(c.Least) + " + ?"
	}
	return prose.Dollars(c.Least) + " to " + prose.Dollars(*c.Most)
}

func timeWords(seconds *float64, boundBy string) string {
	if seconds == nil {
		return "unknown"
	}
	text := "about " + shortTime(seconds)
	if boundBy != "" {
		text += ", limited by " + prose.LimitName(boundBy)
	}
	return text
}

func shortTime(seconds *float64) string {
	switch {
	case seconds == nil:
		return "?"
	case *seconds >= forecast.Forever.Seconds():
		return "more than a century"
	}
	return prose.Span(time.Duration(*seconds * float64(time.Second)))
}
