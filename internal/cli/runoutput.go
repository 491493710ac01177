package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/plan"
)

// printSummary prints the items that need attention, the work of this run, and the next command.
func printSummary(s *term.Streams, sum *runinfo.Summary) {
	switch {
	case sum.Total == 0 && sum.Error == "":
		s.Errorf("nothing to do: %s has no lines\n", runinfo.InputName(sum.Input))
		return
	case sum.Total == 0: // the error has the reason
		return
	}
	done := earlierText(prose.Group(sum.Done)+" of "+prose.Group(sum.Total)+" done", sum.Done-sum.DoneNow)
	if sum.Done == sum.Total && sum.Recorded() == 0 {
		done = prose.Group(sum.Done) + " of " + prose.Group(sum.Total) + " done already"
	}
	s.Errorf("%s\n", prose.Fields(done,
		prose.If(sum.Failed, earlierText(prose.Group(sum.Failed)+" failed", sum.Failed-(sum.Recorded()-sum.DoneNow))),
		prose.If(sum.Left, prose.Group(sum.Left)+" remaining")))
	failedRows(s, sum.Kinds, sum.First)
	if sum.Recorded()+sum.Left > 0 {
		printRun(s, sum)
		printLimits(s, sum)
		allRuns(s, sum.AllRuns)
	}
	if sum.Done+sum.Failed > 0 {
		s.Row("output", "%s", sum.Output)
	}
	if sum.Error == "" && sum.Hint == "" {
		name := "answers"
		if sum.Failed > 0 {
			name = "report"
		}
		s.Errorf("next: sluice %s %s\n", name, term.Quote(sum.Output))
	}
}

// printRun prints the work of this run.
func printRun(s *term.Streams, sum *runinfo.Summary) {
	thisRun(s, sum.Recorded(), sum.Attempts, sum.WallMS, sum.Throttles)
	if n := sum.CutOff(); n > 0 {
		s.SubRow("cut off", "%s reached the maximum number of output tokens: raise max_tokens", prose.Count(n, "result"))
	}
	// An item without a result when the run stopped can be a hit in a later run.
	if all := min(sum.Cached+sum.Run.CacheMisses, sum.Recorded()); all > 0 {
		s.SubRow("cache", "%s hits of %s", prose.Group(sum.Cached), prose.Group(all))
	}
	if v := sum.Batch; v != nil && v.Text() != "" {
		s.SubRow("batch", "%s", v.Text())
		if v.Saved != nil {
			s.SubRow("saved", "%s: live requests would have cost %s", prose.Dollars(*v.Saved), prose.Dollars(*v.LiveCost))
		}
	}
	if sum.Attempts == 0 && sum.Throttles == 0 {
		return
	}
	s.SubRow("tokens", "%s", sum.InOut())
	costRow(s, sum.Bill, sum.Recorded(), sum.CostDoubts())
	if len(sum.Finish) > 0 {
		s.SubRow("finish", "%s", prose.Counts(sum.Finish))
	}
}

// printLimits prints how much of the limits this run used, and which of them were binding.
func printLimits(s *term.Streams, sum *runinfo.Summary) {
	const maxLanes = 4
	for _, up := range sum.Upstreams {
		s.SubRow("upstream", "%s", up)
	}
	lanes := slices.SortedStableFunc(slices.Values(sum.Lanes), func(a, b runinfo.LaneUse) int { return cmp.Compare(b.Granted, a.Granted) })
	others := lanes[min(maxLanes, len(lanes)):]
	for _, lane := range lanes[:len(lanes)-len(others)] {
		if text := lane.String(); text != "" {
			s.SubRow("limits", "%s", text)
		}
	}
	if len(others) > 0 {
		requests := 0
		for _, lane := range others {
			requests += lane.Granted
		}
		s.SubRow("limits", "%s with %s: see --json", prose.Count(len(others), "other model"), prose.Count(requests, "request"))
	}
	if len(sum.Bound) > 0 {
		s.SubRow("limited by", "%s", prose.Shares(sum.Bound))
	}
}

// noteFields prints the fields of rows that are sent and those that are copied to results, if there are any.
func noteFields(s *term.Streams, fields batch.PromptFields) {
	if len(fields.Sent)+len(fields.Kept) > 0 {
		s.Errorf("sluice: fields sent in requests: %s; copied to results: %s\n", namesOf(fields.Sent), namesOf(fields.Kept))
	}
}

// namesOf lists the first few names of fields.
func namesOf(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	const most = 8
	if more := len(names) - most; more > 0 {
		return term.Clip(strings.Join(names[:most], ", "), runinfo.MaxMessage) + fmt.Sprintf(" and %d more", more)
	}
	return term.Clip(strings.Join(names, ", "), runinfo.MaxMessage)
}

// printDryRun prints what a run would do.
func printDryRun(s *term.Streams, d *forecast.DryRun) error {
	s.Errorf("dry run: nothing is sent, and no file is written\n")
	s.Row("items", "%s", dryItems(d))
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
	if err := printDryModels(s, d); err != nil {
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

// dryItems counts the items.
func dryItems(d *forecast.DryRun) string {
	text := fmt.Sprintf("%s of %s remaining", prose.Group(d.Remaining), prose.Group(d.Total))
	text += prose.If(d.Done, fmt.Sprintf(", %s done", prose.Group(d.Done)))
	text += prose.If(d.Failed, fmt.Sprintf(", %s failed", prose.Group(d.Failed)))
	return text + prose.If(d.Equal, fmt.Sprintf(", %s with the result of an equal request", prose.Group(d.Equal)))
}

// printDryModels prints a line for each model.
func printDryModels(s *term.Streams, d *forecast.DryRun) error {
	if len(d.Models) > 1 {
		var t term.Table
		t.Row("  model", "items", "tokens in", "most out", "cost", "time", "limited by")
		for _, l := range d.Models {
			t.Row("  "+l.Model, prose.Group(l.Items), prose.Group(l.InputTokens), prose.Known(l.MaxOutputTokens, "?"), shortCost(l.Cost), shortTime(l.TimeS), l.BoundBy)
		}
		if err := t.Print(s.Err); err != nil {
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
			text += ", within " + prose.Hours(b.Window.Duration)
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

// megabytes writes a size as providers state it.
func megabytes(n int64) string {
	const mega = 1e6
	if n < mega/10 {
		return fmt.Sprintf("%s kB", prose.Number(float64((n+999)/1000)))
	}
	return fmt.Sprintf("%.1f MB", float64(n)/mega)
}
