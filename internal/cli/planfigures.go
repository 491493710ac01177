package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/plan"
)

// figures are a plan as it is printed.
type figures struct {
	Provider string        `json:"provider,omitempty"`
	Tier     string        `json:"tier,omitempty"`
	Model    string        `json:"model,omitempty"`
	Limits   config.Limits `json:"limits"`
	Source   *tierSource   `json:"tier_source,omitempty"`

	Workload workloadFigures   `json:"workload"`
	Assumed  []plan.Assumption `json:"assumed,omitempty"`
	Safety   float64           `json:"safety"`
	Graphs   int               `json:"graphs"`

	Slots         int                `json:"slots"`
	Workers       int                `json:"workers"`
	WorkersSafe   bool               `json:"workers_safe"`
	Exceeded      []sluice.Dimension `json:"workers_exceed,omitempty"`
	WorkersBurst  float64            `json:"workers_burst_seconds"`
	NodesPerGraph int                `json:"nodes_per_graph"`

	Throughput float64        `json:"throughput_rpm"`
	Binding    bindingFigures `json:"binding"`
	Bounds     []boundFigures `json:"bounds"`
	TimeS      *float64       `json:"time_s,omitempty"`
	Cost       *float64       `json:"cost_usd,omitempty"`
	CostEach   *float64       `json:"cost_per_request_usd,omitempty"`

	BatchAPI *batchFigures `json:"batch_api,omitempty"` // null: the provider has none that is known

	Charge   string  `json:"charge"`
	Charged  float64 `json:"charged_tokens_per_request"`
	Reserved float64 `json:"reserved_tokens_per_request"`
	TooLarge int     `json:"requests_above_a_limit,omitempty"`

	*modelFigures

	WithinDeadline *int `json:"requests_within_deadline,omitempty"`
	WithinBudget   *int `json:"requests_within_budget,omitempty"`

	Observed *observedFigures `json:"observed,omitempty"`
	Forecast *forecastFigures `json:"forecast,omitempty"`

	WhatIf []figures `json:"what_if,omitempty"`

	plan    plan.Plan
	subject subject
}

// tierSource is where published limits are from.
type tierSource struct {
	URL      string `json:"url,omitempty"`
	Date     string `json:"date,omitempty"`
	Note     string `json:"note,omitempty"`
	Doubtful bool   `json:"doubtful"`
}

type workloadFigures struct {
	Requests     int     `json:"requests,omitempty"`
	LatencyMS    float64 `json:"latency_ms"`
	InputTokens  float64 `json:"input_tokens"`
	OutputTokens float64 `json:"output_tokens"`
	OtherModels  int     `json:"requests_for_other_models,omitempty"`
}

type bindingFigures struct {
	Dimension sluice.Dimension `json:"dimension"`
	Next      string           `json:"next,omitempty"`
	Factor    float64          `json:"next_factor,omitempty"`
}

type boundFigures struct {
	Dimension sluice.Dimension `json:"dimension"`
	Limit     int              `json:"limit"`
	Charged   float64          `json:"charged_per_request"`
	PerMinute float64          `json:"requests_per_minute"`
}

// modelFigures are the usual rule of thumb and what it would offer.
type modelFigures struct {
	Calls          int                `json:"cap_model_calls"`
	Nodes          int                `json:"cap_model_nodes"`
	Throughput     float64            `json:"cap_model_throughput_rpm"`
	MaxTokens      int                `json:"cap_model_max_tokens,omitempty"`
	OffersRequests float64            `json:"cap_model_offers_rpm"`
	OffersTokens   float64            `json:"cap_model_offers_tpm"`
	Breaks         []sluice.Dimension `json:"cap_model_breaks,omitempty"`
}

func newFigures(j subject, p plan.Plan, o *planOptions) figures {
	f := figures{
		Provider: j.account.Name, Tier: j.tier.Tier, Model: j.model, Limits: j.limits,
		Workload: workloadFigures{p.Workload.Requests, p.Workload.Latency.Seconds() * 1000, p.InputTokens, p.OutputTokens, o.input.others},
		Assumed:  p.Assumed, Safety: p.Safety, Graphs: p.Graphs,
		Slots: p.Slots, Workers: p.Workers, WorkersSafe: p.WorkersSafe, Exceeded: p.Exceeded, WorkersBurst: p.WorkersBurst.Seconds(), NodesPerGraph: p.NodesPerGraph,
		Throughput: p.Throughput, Binding: bindingFigures{Dimension: p.Binding().Dimension},
		Cost: p.Cost, CostEach: p.CostPerRequest, BatchAPI: newBatchFigures(j.account.Batches, &p),
		Charge: p.Charge.String(), Charged: p.ChargedTokens, Reserved: p.ReservedTokens, TooLarge: p.TooLarge,
		plan: p, subject: j,
	}
	if j.tier.Tier != "" {
		f.Source = &tierSource{j.tier.Source, j.tier.Date, j.tier.Note, j.tier.Doubtful}
	}
	if next, factor, ok := p.Next(); ok {
		f.Binding.Next, f.Binding.Factor = next.Dimension.String(), factor
	}
	for _, b := range p.Bounds {
		f.Bounds = append(f.Bounds, boundFigures(b))
	}
	if p.Workload.Requests > 0 {
		f.TimeS = new(p.Time.Seconds())
	}
	if m := p.CapModel; m != nil {
		f.modelFigures = &modelFigures{m.ParallelCalls, m.ParallelNodes, m.Throughput, m.MaxTokens, m.OffersRequests, m.OffersTokens, m.Breaks}
	}
	if o.deadline > 0 {
		f.WithinDeadline = new(p.Within(o.deadline))
	}
	if n, ok := p.Affordable(o.maxCost); ok && o.flags.Changed("max-cost") {
		f.WithinBudget = new(n)
	}
	return f
}

// name is what the figures are of.
func (f *figures) name() string {
	words := []string{}
	for _, w := range []string{f.Provider, f.Tier, f.Model} {
		if w != "" {
			words = append(words, escape(w))
		}
	}
	if len(words) == 0 {
		return "a provider"
	}
	return strings.Join(words, " ")
}

// print writes the figures as a table, those of other tiers beside them.
func (f *figures) print(s *streams) error {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	columns := []*figures{f}
	for i := range f.WhatIf {
		columns = append(columns, &f.WhatIf[i])
	}
	for _, c := range columns {
		fmt.Fprintf(w, "\t%s", c.name())
	}
	fmt.Fprintln(w)
	printRows(w, figureRows(), columns)
	printForecasts(w, columns)
	for _, c := range columns {
		fmt.Fprintf(w, "\nlimits of %s\n", c.name())
		c.printLimits(w)
	}
	if f.Observed != nil {
		f.Observed.print(w)
	}
	f.printAssumed(w)
	if err := w.Flush(); err != nil {
		return err
	}
	s.prior()
	return nil
}

// prior says that figures from a table are no promise.
func (s *streams) prior() {
	s.errorf("sluice: limits are a prior: what the provider's headers and refusals say wins\n")
}

// figureRow is one figure: a value, and what there is to say of it when it stands alone.
type figureRow struct {
	label string
	cell  func(*figures) (value, text string)
}

// printRows writes rows of figures, each explained where it stands alone.
func printRows(w io.Writer, rows []figureRow, columns []*figures) {
	for _, row := range rows {
		cells, said := []string{row.label}, false
		for _, c := range columns {
			value, text := row.cell(c)
			said = said || value != ""
			if len(columns) == 1 && text != "" {
				value += "\t" + text
			}
			cells = append(cells, value)
		}
		if said {
			fmt.Fprintln(w, strings.Join(cells, "\t"))
		}
	}
}

func figureRows() []figureRow {
	return []figureRow{
		{"slots", func(f *figures) (string, string) {
			text := "open calls are enough at this pace: nothing to set in sluice run, the size of a pool of your own"
			if f.Graphs > 1 {
				text += fmt.Sprintf("; %s for each of %d graphs", group(f.NodesPerGraph), f.Graphs)
			}
			return group(f.Slots), text
		}},
		{"workers", func(f *figures) (string, string) { return f.workers() }},
		{"rule of thumb", func(f *figures) (string, string) { return f.capModel() }},
		{"requests/min", func(f *figures) (string, string) {
			text := fmt.Sprintf("bound by %s", f.Binding.Dimension)
			if f.Binding.Next != "" {
				text += fmt.Sprintf("; %s would allow %s", f.Binding.Next, timesAsMany(f.Binding.Factor))
			}
			return number(f.Throughput), text
		}},
		{"time", func(f *figures) (string, string) {
			if f.TimeS == nil {
				return "", ""
			}
			return span(f.plan.Time), fmt.Sprintf("for %s", count(f.Workload.Requests, "request"))
		}},
		{"cost", func(f *figures) (string, string) { return f.cost() }},
		{"cost by batch", func(f *figures) (string, string) { return f.BatchAPI.words() }},
		{"tokens/request", func(f *figures) (string, string) {
			return number(f.Charged), fmt.Sprintf("charged as %s; reserved at first: %s; used: %s in, %s out", f.Charge,
				number(f.Reserved), number(f.Workload.InputTokens), number(f.Workload.OutputTokens))
		}},
		{"within the deadline", func(f *figures) (string, string) { return optional(f.WithinDeadline), "requests" }},
		{"within the budget", func(f *figures) (string, string) { return optional(f.WithinBudget), "requests" }},
		{"above a limit", func(f *figures) (string, string) {
			if f.TooLarge == 0 {
				return "", ""
			}
			return group(f.TooLarge), "requests that are larger than a whole limit each: the provider refuses them"
		}},
		{"other models", func(f *figures) (string, string) {
			if f.Workload.OtherModels == 0 {
				return "", ""
			}
			return group(f.Workload.OtherModels), "requests of the workload, left out: their limits are others"
		}},
	}
}

func (f *figures) workers() (value, text string) {
	if f.WorkersSafe {
		share, most := 0.0, f.plan.Bounds[0]
		for _, b := range f.plan.Bounds {
			if used := f.plan.Offered(f.Workers, b) / float64(b.Limit); used > share {
				share, most = used, b
			}
		}
		text = fmt.Sprintf("loops without a pace that stay within every limit; they use %s of %s %s at most",
			prose.Percent(share), most.Dimension, group(most.Limit))
		if burst := f.plan.WorkersBurst; burst > 0 {
			text += fmt.Sprintf(", of buckets that hold %s", atLeast(burst))
		}
		return group(f.Workers), text
	}
	var uses []string
	for _, d := range f.Exceeded {
		for _, b := range f.plan.Bounds {
			if used := f.plan.Busiest(1, b); b.Dimension == d && used > float64(b.Limit) {
				uses = append(uses, fmt.Sprintf("%s of %s %s", number(used), d, group(b.Limit)))
			}
		}
	}
	text = "even one loop without a pace exceeds a limit: " + strings.Join(uses, ", ")
	if len(uses) == 0 {
		text = fmt.Sprintf("even one loop without a pace needs buckets that hold %s; they are said to hold %s", atLeast(f.plan.WorkersBurst),
			span(f.plan.Limits.Burst))
	}
	return group(f.Workers) + " NOT SAFE", text
}

// timesAsMany writes a factor that is not below 1.
func timesAsMany(factor float64) string {
	switch {
	case factor < 1.005:
		return "no more"
	case factor < 10:
		return fmt.Sprintf("%.3g times as many", factor)
	}
	return number(factor) + " times as many"
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
	return span((d + unit - 1).Truncate(unit))
}

func (f *figures) capModel() (value, text string) {
	m := f.modelFigures
	if m == nil {
		return "", ""
	}
	text = fmt.Sprintf("calls at once, by the cap or requests/min alone: without a pace they come to %s requests/min", number(m.OffersRequests))
	if limit := f.plan.Limits.RPM; limit > 0 {
		text += fmt.Sprintf(" (rpm %s)", group(limit))
	}
	text += fmt.Sprintf(", %s tokens/min", number(m.OffersTokens))
	if limit := f.plan.Limits.TPM; limit > 0 {
		text += fmt.Sprintf(" (tpm %s)", group(limit))
	}
	if len(m.Breaks) > 0 {
		text += ": too many"
	}
	return group(m.Calls), text
}

func (f *figures) cost() (value, text string) {
	switch {
	case f.Cost != nil:
		return dollars(*f.Cost), fmt.Sprintf("%s each", dollars(*f.CostEach))
	case f.CostEach != nil:
		return dollars(*f.CostEach), "for each request"
	}
	return "unknown", "no prices: say --price-in and --price-out"
}

// printLimits lists the limits and where each is from.
func (f *figures) printLimits(w io.Writer) {
	for d := range new(sluice.Limits).All() {
		f.printLimit(w, d.String(), *f.Limits.At(d))
	}
	f.printLimit(w, "burst_seconds", f.Limits.BurstSeconds)
}

func (f *figures) printLimit(w io.Writer, name string, l *config.Limit) {
	if l == nil {
		return
	}
	from := string(l.Source)
	if l.Source == config.SourceRegistry && f.Source != nil {
		from = "published"
		if f.Source.Doubtful {
			from = "doubtful"
		}
		for _, text := range []string{f.Source.Date, f.Source.URL, f.Source.Note} {
			if text != "" {
				from += "\t" + text
			}
		}
	} else if !l.At.IsZero() {
		from += "\t" + l.At.Format(time.DateOnly)
	}
	fmt.Fprintf(w, "  %s\t%s\t%s\n", name, number(l.Value), escapeCells(from))
}

// escapeCells escapes text but for the tabs between its cells.
func escapeCells(text string) string {
	cells := strings.Split(text, "\t")
	for i, c := range cells {
		cells[i] = escape(c)
	}
	return strings.Join(cells, "\t")
}

func (f *figures) printAssumed(w io.Writer) {
	if len(f.Assumed) == 0 {
		return
	}
	fmt.Fprintf(w, "\nassumed\n")
	for _, a := range f.Assumed {
		fmt.Fprintf(w, "  %s\t%s\t%s\n", a.What, a.Value, escape(a.Why))
	}
}

func optional(n *int) string {
	if n == nil {
		return ""
	}
	return group(*n)
}
