package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
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
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\t%s\n", f.name())
	printRows(w, f.rows())
	if f.Forecast != nil {
		fmt.Fprintf(w, "\nsimulated in virtual time, with %s\n", clientWords(f.Forecast.Client))
		printRows(w, f.foreseen())
	}
	fmt.Fprintf(w, "\nlimits of %s\n", f.name())
	f.printLimits(w)
	for i, a := range f.Assumed {
		if i == 0 {
			fmt.Fprintf(w, "\nassumed\n")
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", a.What, a.Value, term.Escape(a.Why))
	}
	w.Flush() // into memory
	if _, err := io.WriteString(s.Out, s.Out.Fit(table.String())); err != nil {
		return err
	}
	s.Errorf("sluice: the provider's headers and rejections override these limits\n")
	return nil
}

// figureRow is one figure with an explanation. A row without a value is omitted.
type figureRow struct{ label, value, text string }

func printRows(w io.Writer, rows []figureRow) {
	for _, row := range rows {
		if row.value == "" {
			continue
		}
		line := row.label + "\t" + row.value
		if row.text != "" {
			line += "\t" + row.text
		}
		fmt.Fprintln(w, line)
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
		{"within the deadline", known(f.WithinDeadline, ""), "requests"},
		{"within the budget", known(f.WithinBudget, ""), "requests"},
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
func (f *figures) printLimits(w io.Writer) {
	for d := range new(sluice.Limits).All() {
		if l := *f.Limits.At(d); l != nil {
			fmt.Fprintf(w, "  %s\t%s\t%s\n", d, prose.Number(l.Value), f.sourceWords(l))
		}
		if window := f.Limits.WindowOf(d); window != nil && *window != nil {
			fmt.Fprintf(w, "  %s\t%s\t%s\n", d.WindowName(), *window, limits.SourceConfigured)
		}
	}
	if burst := f.Limits.Burst; burst > 0 {
		fmt.Fprintf(w, "  burst\t%s\t%s\n", prose.Span(time.Duration(burst)), limits.SourceConfigured)
	}
}

// sourceWords writes the source of a limit in cells.
func (f *figures) sourceWords(l *config.Limit) string {
	from := []string{string(l.Source)}
	if t := f.Source; l.Source == limits.SourceRegistry && t != nil {
		from = []string{"published", t.Date, t.URL, t.Note}
		if t.Doubtful {
			from[0] = "doubtful"
		}
	} else if !l.At.IsZero() {
		from = append(from, l.At.Format(time.DateOnly))
	}
	for i := range from {
		from[i] = term.Escape(from[i])
	}
	return strings.Join(slices.DeleteFunc(from, func(text string) bool { return text == "" }), "\t")
}

// known writes a number, or the text for an unknown number.
func known[N int | int64](n *N, unknown string) string {
	if n == nil {
		return unknown
	}
	return prose.Group(*n)
}

// batchWords writes the cost of the requests by the Batch API.
func batchWords(b *plan.BatchAPI) (value, text string) {
	if b == nil {
		return "", ""
	}
	text = prose.Percent(b.Price) + " of the live price, with sluice run --batch"
	if b.Window.Duration > 0 {
		text += "; each ends within " + hours(b.Window.Duration)
	}
	if b.Batches > 0 {
		text = prose.Count(b.Batches, "batch") + ", " + text
	}
	if cost := cmp.Or(b.Cost, b.CostPerRequest); cost != nil {
		return prose.Dollars(*cost), text
	}
	return prose.Percent(b.Price), text
}
