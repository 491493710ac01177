package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// figures is a plan as it is printed.
type figures forecast.Plan

// name names the account of the figures.
func (f *figures) name() string {
	words := strings.Join([]string{term.Escape(f.Provider), term.Escape(f.Tier), term.Escape(f.Model)}, " ")
	return cmp.Or(strings.Join(strings.Fields(words), " "), "the provider")
}

// print writes the figures as a table.
func (f *figures) print(s *term.Streams) error {
	var t term.Table
	t.Row("", f.name())
	printRows(&t, f.rows())
	if f.Forecast != nil {
		t.Linef("\nsimulated in virtual time, with %s", clientWords(f.Forecast.Client))
		printRows(&t, f.foreseen())
	}
	t.Linef("\nlimits of %s", f.name())
	f.printLimits(&t)
	for i, a := range f.Assumed {
		if i == 0 {
			t.Linef("\nassumed")
		}
		t.Row("  "+a.What, a.Value, a.Why)
	}
	if err := t.Print(s.Out); err != nil {
		return err
	}
	s.Errorf("sluice: the provider's headers and rejections override these limits\n")
	return nil
}

// figureRow is one figure with an explanation. A row without a value is omitted.
type figureRow struct{ label, value, text string }

func printRows(t *term.Table, rows []figureRow) {
	for _, row := range rows {
		if row.value != "" {
			t.Row(row.label, row.value, row.text)
		}
	}
}

// rows returns the rows of the plan.
func (f *figures) rows() []figureRow {
	slots := "requests in flight suffice for this rate: sluice run sets this number, and your own worker pool needs this size"
	if f.Processes > 1 {
		slots += fmt.Sprintf("; %s for each of %d processes", prose.Group(f.NodesPerProcess), f.Processes)
	}
	bound, took := "limited by "+prose.LimitName(f.Binding.Dimension.String()), ""
	if f.Binding.Next != limits.AnyDimension {
		bound += fmt.Sprintf("; %s would allow %s", prose.LimitName(f.Binding.Next.String()), timesAsMany(f.Binding.Factor))
	}
	if f.Requests > 0 {
		took = prose.Span(f.Time.Duration)
	}
	workers, workersText := f.workers()
	rule, ruleText := f.capModel()
	cost, costText := f.cost()
	byBatch, byBatchText := batchWords(f.BatchAPI)
	return []figureRow{
		{"slots", prose.Group(f.Slots), slots},
		{"workers", workers, workersText},
		{"rule of thumb", rule, ruleText},
		{"requests/min", prose.Number(f.Throughput), bound},
		{"time", took, "for " + prose.Count(f.Requests, "request")},
		{"cost", cost, costText},
		{"cost by batch", byBatch, byBatchText},
		{"tokens/request", prose.Number(f.ChargedTokens), fmt.Sprintf("charged as %s; reserved at first: %s; used: %s in, %s out", f.Charge,
			prose.Number(f.ReservedTokens), prose.Number(f.InputTokens), prose.Number(f.OutputTokens))},
		{"within the deadline", prose.Known(f.WithinDeadline, ""), "requests"},
		{"within the budget", prose.Known(f.WithinBudget, ""), "requests"},
		{"above a limit", prose.If(f.TooLarge, prose.Group(f.TooLarge)), "requests use more tokens than a limit allows, and the provider rejects them"},
		{"other models", prose.If(f.OtherModels, prose.Group(f.OtherModels)), "requests of the workload are omitted, because other limits apply to them"},
	}
}

func (f *figures) workers() (value, text string) {
	if f.WorkersSafe {
		share, most := 0.0, f.Bounds[0]
		for _, b := range f.Bounds {
			if used := f.Offered(f.Workers, b) / float64(b.Limit); used > share {
				share, most = used, b
			}
		}
		text = fmt.Sprintf("workers without pacing stay within every limit, and use at most %s of %s %s",
			prose.Percent(share), most.Dimension, prose.Group(most.Limit))
		if burst := f.WorkersBurst.Duration; burst > 0 {
			text += fmt.Sprintf(", and need token buckets that hold %s", atLeast(burst))
		}
		return prose.Group(f.Workers), text
	}
	var uses []string
	for _, d := range f.Exceeded {
		for _, b := range f.Bounds {
			if used := f.Busiest(1, b); b.Dimension == d && used > float64(b.Limit) {
				uses = append(uses, fmt.Sprintf("%s %s, above the limit of %s", prose.Number(used), d.Counted("/min", "/day"), prose.Group(b.Limit)))
			}
		}
	}
	text = "even one worker without pacing exceeds a limit: " + strings.Join(uses, ", ")
	if len(uses) == 0 {
		text = fmt.Sprintf("even one worker without pacing needs token buckets that hold %s, but the configured buckets hold %s", atLeast(f.WorkersBurst.Duration),
			prose.Span(f.Plan.Limits.Burst))
	}
	return prose.Group(f.Workers) + " NOT SAFE", text
}

// timesAsMany writes a factor that is not below 1.
func timesAsMany(factor float64) string {
	switch {
	case factor < 1.005:
		return "no more"
	case factor < 10:
		return fmt.Sprintf("%.3g times as many", factor)
	}
	return prose.Number(factor) + " times as many"
}

// atLeast writes a time that must not be less.
func atLeast(d time.Duration) string {
	unit := time.Second
	switch {
	case d <= time.Second:
		unit = time.Millisecond
	case d <= 9900*time.Millisecond:
		unit = 100 * time.Millisecond
	}
	return prose.Span((d + unit - 1).Truncate(unit))
}

func (f *figures) capModel() (value, text string) {
	m := f.CapModel
	if m == nil {
		return "", ""
	}
	text = fmt.Sprintf("requests in flight, if only the cap or requests/min counts: without pacing, this number makes %s requests/min", prose.Number(m.OffersRequests))
	if limit := f.Plan.Limits.RPM; limit > 0 {
		text += fmt.Sprintf(" (rpm %s)", prose.Group(limit))
	}
	text += fmt.Sprintf(", %s tokens/min", prose.Number(m.OffersTokens))
	if limit := f.Plan.Limits.TPM; limit > 0 {
		text += fmt.Sprintf(" (tpm %s)", prose.Group(limit))
	}
	if len(m.Breaks) > 0 {
		text += ": too many"
	}
	return prose.Group(m.ParallelCalls), text
}

func (f *figures) cost() (value, text string) {
	switch {
	case f.Cost != nil:
		return prose.Dollars(*f.Cost), fmt.Sprintf("%s each", prose.Dollars(*f.CostPerRequest))
	case f.CostPerRequest != nil:
		return prose.Dollars(*f.CostPerRequest), "for each request"
	}
	return "unknown", "the prices are unknown: add --price IN/OUT"
}

// printLimits lists the limits with their sources.
func (f *figures) printLimits(t *term.Table) {
	for d := range new(sluice.Limits).All() {
		if l := *f.Limits.At(d); l != nil {
			t.Row(append([]string{"  " + d.String(), prose.Number(l.Value)}, f.sourceWords(l)...)...)
		}
		if window := f.Limits.WindowOf(d); window != nil && window.N > 0 {
			t.Row("  "+d.WindowName(), window.String(), string(limits.SourceConfigured))
		}
	}
	if burst := f.Limits.Burst; burst > 0 {
		t.Row("  burst", prose.Span(time.Duration(burst)), string(limits.SourceConfigured))
	}
}

// sourceWords writes the source of a limit in cells.
func (f *figures) sourceWords(l *config.Limit) []string {
	from := []string{string(l.Source)}
	if t := f.Source; l.Source == limits.SourceRegistry && t != nil {
		from = []string{"published", t.Date, t.URL, t.Note}
		if t.Doubtful {
			from[0] = "doubtful"
		}
	} else if !l.At.IsZero() {
		from = append(from, l.At.Format(time.DateOnly))
	}
	return slices.DeleteFunc(from, func(text string) bool { return text == "" })
}

// batchWords writes the cost of the requests by the Batch API.
func batchWords(b *plan.BatchAPI) (value, text string) {
	if b == nil {
		return "", ""
	}
	text = prose.Percent(b.Price) + " of the live price, with sluice run --batch"
	if b.Window.Duration > 0 {
		text += "; each ends within " + prose.Hours(b.Window.Duration)
	}
	if b.Batches > 0 {
		text = prose.Count(b.Batches, "batch") + ", " + text
	}
	if cost := cmp.Or(b.Cost, b.CostPerRequest); cost != nil {
		return prose.Dollars(*cost), text
	}
	return prose.Percent(b.Price), text
}

// dimensionWords writes how often each limit was met, the most frequent first.
func dimensionWords(counts plan.Counts) string {
	by := counts.ByName()
	names := prose.LargestFirst(by)
	for i, name := range names {
		names[i] = fmt.Sprintf("%s by %s", prose.Group(by[name]), name)
	}
	return cmp.Or(strings.Join(names, ", "), "never")
}

// clientWords writes the limits that the client knows.
func clientWords(c plan.Client) string {
	var said []string
	if parts := limitParts(c.Configured); len(parts) > 0 {
		said = append(said, "configured "+strings.Join(parts, ", "))
	}
	if parts := limitParts(c.BeginsWith); len(parts) > 0 {
		said = append(said, "initial "+strings.Join(parts, ", "))
	}
	return cmp.Or(strings.Join(said, " and "), "no limits")
}

// foreseen returns the rows of the forecast.
func (f *figures) foreseen() []figureRow {
	c, took, cost := f.Forecast, "simulated", ""
	if f.Requests > 0 {
		took = "computed: " + prose.Span(f.Time.Duration)
	}
	if c.Cost != nil {
		cost = prose.Dollars(*c.Cost)
	}
	quota, quotas := quotaWords(c.Quotas)
	return []figureRow{
		{"time", prose.Span(c.Time.Duration), took},
		{"stopped", c.Stopped, "before the end"},
		{"requests/min", prose.Number(c.Throughput), fmt.Sprintf("computed: %s in the long run", prose.Number(f.Throughput))},
		{"throttled", dimensionWords(c.Refused), "of " + prose.Count(c.Tries, "attempt")},
		{"failed", prose.If(c.Failed, prose.Group(c.Failed)), "requests that exceed a limit, or failed after their last attempt"},
		{"quota used", quota, quotas},
		{"in flight", prose.Group(c.Peak), f.inFlight()},
		{"waits", prose.Span(c.Wait.Mean.Duration), fmt.Sprintf("on average, in a queue of at most 16 requests; 95 %% below %s", prose.Span(c.Wait.P95.Duration))},
		{"cost", cost, fmt.Sprintf("for %s", prose.Count(c.Completed, "response"))},
		{"within the deadline", prose.Known(c.WithinDeadline, ""), "requests"},
	}
}

// inFlight explains the maximum of requests in flight beside the computed slots.
func (f *figures) inFlight() string {
	peak, text := f.Forecast.Peak, "at most"
	start, ceiling := f.Forecast.Client.BeginsWith["concurrency"], f.Forecast.Client.Configured["concurrency"]
	switch {
	case peak == work.UsualWorkers:
		text = "the maximum that a run allows"
	case start > 0 && ceiling == 0 && float64(peak) > start:
		text = fmt.Sprintf("at most: the run starts with concurrency %s and tries more; --concurrency %[1]s limits the run", prose.Number(start))
	}
	text += fmt.Sprintf("; computed slots: %s", prose.Group(f.Slots))
	if peak > f.Slots && start == 0 && ceiling == 0 {
		text += ", enough for the rate; more are in flight if requests take longer, a full token bucket lets many start, or no limit is known yet"
	}
	return text
}

// quotaWords writes the used share of the limits, the largest first.
func quotaWords(quotas []plan.QuotaUse) (value, text string) {
	for i, q := range quotas {
		words := fmt.Sprintf("%s of %s %s", prose.Percent(q.Share), q.Dimension, prose.Group(q.Limit))
		if i == 0 {
			value, text = words, "of the amount that the limit allows in this time"
		} else {
			text += "; " + words
		}
	}
	return value, text
}

// listRegistry prints the registry as a table or as one JSON document: all providers, or one, and all models, or one.
func listRegistry(s *term.Streams, r *provider.Registry, name, model string, asJSON bool) error {
	if _, err := account.LookupProvider(r, name); name != "" && err != nil {
		return err
	}
	list := r.List(name, model)
	if asJSON {
		return s.JSON(list)
	}
	var table term.Table
	table.Row("PROVIDER", "TIER", "MODELS", "LIMITS", "$ IN/OUT", "DATE", "SOURCE")
	for _, e := range list.Providers {
		if len(e.Tiers) == 0 {
			table.Row(e.Name, "-", cmp.Or(model, "-"), "not published", "-", doubted(e.Date, e.Doubtful), e.Source)
		}
		for _, t := range e.Tiers {
			table.Row(e.Name, t.Tier, cmp.Or(strings.Join(t.Families(), " "), "all"), prose.Limits(t.Limits), bothPrices(t.PriceIn, t.PriceOut), doubted(t.Date, t.Doubtful), t.Source)
		}
	}
	table.Linef("A ? marks doubtful values: old, contradicted, or not from the provider itself. Missing values are unknown.")
	return table.Print(s.Out)
}

// doubted returns a date, with a mark if the values are doubtful.
func doubted(date string, doubtful bool) string {
	date = cmp.Or(date, "-")
	if doubtful {
		date += " ?"
	}
	return date
}
