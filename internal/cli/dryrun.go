package cli

import (
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/plan"
)

// dry prints what the run would do. Nothing is sent, and no file is written.
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
	cfg.Stdin = s.In
	d, err := forecast.MakeDryRun(accounts, cfg)
	if err != nil {
		return explain(err, o, accounts)
	}
	if o.watch.json {
		return s.JSON(d)
	}
	noteFields(s, d.Fields)
	if err := (*dryRun)(d).print(s); err != nil {
		return err
	}
	explainSettings(s, accounts.Settings, o.watch.verbose)
	return nil
}

// dryRun is a dry run as it is printed.
type dryRun forecast.DryRun

// print prints the dry run.
func (d *dryRun) print(s *term.Streams) error {
	s.Errorf("dry run: nothing is sent, and no file is written\n")
	s.Row("items", "%s", d.items())
	if len(d.Models) > 0 {
		out := "out without a bound"
		if most := d.MaxOutputTokens; most != nil {
			out = fmt.Sprintf("at most %s out", prose.Group(*most))
		}
		s.Row("tokens", "about %s in, %s", prose.Group(d.InputTokens), out)
		s.Row("cost", "%s", costWords(d.Cost))
		took := "unknown"
		if d.TimeS != nil {
			took = "about " + shortTime(d.TimeS)
		}
		if d.BoundBy != "" {
			took += ", limited by " + prose.LimitName(d.BoundBy)
		}
		s.Row("time", "%s", took)
		printBatches(s, d.Batches)
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

// items counts the items.
func (d *dryRun) items() string {
	text := fmt.Sprintf("%s of %s remaining", prose.Group(d.Remaining), prose.Group(d.Total))
	text += prose.If(d.Done, fmt.Sprintf(", %s done", prose.Group(d.Done)))
	text += prose.If(d.Failed, fmt.Sprintf(", %s failed", prose.Group(d.Failed)))
	return text + prose.If(d.Equal, fmt.Sprintf(", %s with the result of an equal request", prose.Group(d.Equal)))
}

// printModels prints a line for each model.
func (d *dryRun) printModels(s *term.Streams) error {
	if len(d.Models) > 1 {
		w := tabwriter.NewWriter(s.Err, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "  model\titems\ttokens in\tmost out\tcost\ttime\tlimited by")
		for _, l := range d.Models {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", term.Escape(l.Model), prose.Group(l.Items), prose.Group(l.InputTokens),
				known(l.MaxOutputTokens, "?"), shortCost(l.Cost), shortTime(l.TimeS), l.BoundBy)
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	for _, l := range d.Models {
		if l.TooLarge > 0 {
			s.Row("too large", "%s to %s with more tokens than a limit allows: the provider will reject them",
				prose.Count(l.TooLarge, "request"), l.Model)
		}
		for _, p := range l.Places {
			if limits := limitParts(plan.LimitMap(p.Lane.Limits)); len(limits) > 0 {
				s.Row("limits", "%s at %s starts with %s", l.Model, p.Name, strings.Join(limits, ", "))
			}
		}
	}
	return nil
}

// costWords writes the cost of requests.
func costWords(c *forecast.Cost) string {
	switch {
	case c == nil:
		return "unknown"
	case c.Most == nil:
		return fmt.Sprintf("%s for the input, plus the cost of the output", prose.Dollars(c.Least))
	case *c.Most == c.Least:
		return prose.Dollars(c.Least)
	}
	return fmt.Sprintf("%s for the input alone, at most %s with responses of maximum length",
		prose.Dollars(c.Least), prose.Dollars(*c.Most))
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

func shortTime(seconds *float64) string {
	switch {
	case seconds == nil:
		return "?"
	case *seconds >= forecast.Forever.Seconds():
		return "more than a century"
	}
	return prose.Span(time.Duration(*seconds * float64(time.Second)))
}

// splitWords says how --batch divides the time until the deadline.
func splitWords(a *forecast.Split) string {
	took := shortTime(new(a.TimeS.Seconds()))
	if a.WaitS == nil {
		return fmt.Sprintf("all items are sent live immediately and take about %s, because no batch can finish before the deadline", took)
	}
	return fmt.Sprintf("all items go into batches; after %s, items without a result are sent live: sending all items live would take about %s",
		prose.Span(a.WaitS.Duration), took)
}

// printBatches prints the batches, below the rows of live requests.
func printBatches(s *term.Streams, v *forecast.Batches) {
	if v == nil || len(v.Accounts) == 0 {
		return
	}
	s.Row("by batch", "%s", batchCost(v))
	for _, b := range v.Accounts {
		text := fmt.Sprintf("%s at %s: %s, about %s", prose.Count(b.Batches, "batch"), b.Provider, prose.Count(b.Requests, "request"), megabytes(b.Bytes))
		if b.Window.Duration > 0 {
			text += ", within " + hours(b.Window.Duration)
		}
		if b.BoundBy != "" {
			text += fmt.Sprintf("; %s turns for %s", prose.Group(b.Turns), strings.ReplaceAll(b.BoundBy, "_", " "))
		}
		s.Row("batches", "%s", text)
	}
	if v.Pending.Batches > 0 {
		s.Row("pending", "%s in %s of earlier runs, which are resumed and not submitted again: the numbers above include them",
			prose.Count(v.Requests, "request"), prose.Count(v.Batches, "batch"))
	}
	if v.Split != nil {
		s.Row("deadline", "%s", splitWords(v.Split))
	}
}

// batchCost writes the cost by Batch APIs, or the share of an unknown price.
func batchCost(v *forecast.Batches) string {
	price := v.Accounts[0].Price
	alike := !slices.ContainsFunc(v.Accounts, func(b *forecast.AccountBatches) bool { return b.Price != price })
	if v.Cost == nil && alike && price > 0 {
		return fmt.Sprintf("unknown, but %s of the live price", prose.Percent(price))
	}
	return costWords(v.Cost)
}

// hours writes the maximum duration of a batch as providers state it.
func hours(d time.Duration) string {
	if d%time.Hour != 0 {
		return prose.Span(d)
	}
	return prose.Number(d.Hours()) + " h"
}

// megabytes writes a size as providers state it.
func megabytes(n int64) string {
	const mega = 1e6
	if n < mega/10 {
		return fmt.Sprintf("%s kB", prose.Number(float64((n+999)/1000)))
	}
	return fmt.Sprintf("%.1f MB", float64(n)/mega)
}
