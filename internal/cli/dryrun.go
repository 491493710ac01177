package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/plan"
)

// dryRun is what a run would do, as --json prints it.
type dryRun struct {
	DryRun  bool   `json:"dry_run"`
	Input   string `json:"input"`
	Output  string `json:"output,omitempty"`
	Total   int    `json:"total"`
	Already int    `json:"already"` // recorded by earlier runs
	Failed  int    `json:"failed"`  // of those
	Left    int    `json:"left"`
	Invalid int    `json:"invalid"`                // of those, such as would be recorded as failed, and not sent
	Twins   int    `json:"deduplicated,omitempty"` // of those, such as get the answer to an equal request

	InputTokens     int64      `json:"input_tokens"`
	MaxOutputTokens *int64     `json:"max_output_tokens"` // null: not all requests bound it
	Cost            *costRange `json:"cost_usd"`          // null: not all prices are known
	TimeS           *float64   `json:"time_s"`            // null: not all limits are known
	BoundBy         string     `json:"bound_by,omitempty"`

	Via     *dryVia           `json:"via,omitempty"` // null: calls go live
	Models  []dryLane         `json:"models"`
	Assumed []plan.Assumption `json:"assumed"`
	Unknown []string          `json:"unknown"`
	Hint    string            `json:"hint,omitempty"`
}

// costRange is what requests cost in US dollars: their input alone, and with answers as long as they may be.
type costRange struct {
	Least float64  `json:"least"`
	Most  *float64 `json:"most"` // null: not all requests bound their output
}

// dryLane is what a run would do for one model.
type dryLane struct {
	Provider        string             `json:"provider"`
	Model           string             `json:"model"`
	Items           int                `json:"items"`
	InputTokens     int64              `json:"input_tokens"`
	MaxOutputTokens *int64             `json:"max_output_tokens"`
	Unbounded       int                `json:"without_max_tokens"` // requests
	Cost            *costRange         `json:"cost_usd"`
	Limits          map[string]float64 `json:"limits"`
	TimeS           *float64           `json:"time_s"`
	PerMin          float64            `json:"per_min,omitempty"`
	BoundBy         string             `json:"bound_by,omitempty"`
	TooLarge        int                `json:"above_a_limit,omitempty"` // requests that the provider refuses

	begins []begun
}

// dry says what the run would do. Nothing is sent, and no file is written.
func (o *runOptions) dry(s *streams, cfg batch.Config) error {
	accounts, err := o.account.open(sluice.Config{}, s)
	if err != nil {
		return err
	}
	defer func() { _ = accounts.Close() }() // nothing was opened
	accounts.told = o.budget.told()
	if err := accounts.surveyUpstreams(&o.upstreams); err != nil {
		return err
	}
	cfg.Stdin, cfg.Provider, cfg.Registry, cfg.Price = s.in, accounts.provider, accounts.settings.registry, accounts.Price
	if accounts.upstreams != nil {
		cfg.Upstreams = accounts.upstreams.Upstreams
	}
	if err := accounts.checkVia(o.via.way); err != nil {
		return err
	}
	seen := newOutlook(accounts.survey)
	together := newViaOutlook(&o.via, accounts.settings.registry)
	each := func(r batch.Request) {
		seen.add(r)
		together.add(r)
	}
	if seen.preview, err = batch.Look(cfg, each); err != nil {
		return explain(err, o, accounts)
	}
	d := &dryRun{
		DryRun: true, Input: o.input, Output: o.output, Total: seen.preview.Total, Already: seen.preview.Already,
		Failed: seen.preview.AlreadyFailed, Left: seen.preview.Left(), Invalid: seen.preview.Invalid, Twins: seen.preview.Twins,
		Models: []dryLane{}, Assumed: []plan.Assumption{}, Unknown: []string{},
	}
	if err := d.fill(seen, accounts); err != nil {
		return err
	}
	if err := d.goTogether(o, together, seen.preview); err != nil {
		return err
	}
	d.weigh(o, accounts, cfg.Budget.Deadline)
	if o.reuse.cache != "" {
		d.unknown("cache: what it has is not looked at, and costs nothing")
	}
	if o.asJSON {
		return s.printJSON(d)
	}
	if err := d.print(s); err != nil {
		return err
	}
	accounts.explainLimits(s, o.verbose)
	return nil
}

// fill adds up what is left to do.
func (d *dryRun) fill(seen *outlook, a *accounts) error {
	f := &forecaster{accounts: a, begins: make(map[string]begun)}
	all := costRange{Most: new(0.0)}
	d.MaxOutputTokens, d.Cost, d.TimeS = new(int64(0)), &all, new(0.0)
	for _, l := range seen.sorted() {
		begins, err := f.of(l)
		if err != nil {
			return err
		}
		p, err := f.lane(l, begins)
		if err != nil {
			return err
		}
		lane := newDryLane(l, a, begins)
		lane.plan(p)
		d.add(lane)
		d.doubt(l, lane, p, a)
	}
	if d.TimeS != nil && len(d.Models) > 1 {
		return d.share(seen, f)
	}
	return nil
}

func newDryLane(l *laneOutlook, a *accounts, begins []begun) dryLane {
	lane := dryLane{Provider: l.provider, Model: l.model, Items: l.n, InputTokens: l.in, Unbounded: l.unbounded, Limits: limitMap(sluice.Limits{}), begins: begins}
	if len(begins) == 1 {
		lane.Limits = limitMap(begins[0].limits)
	}
	if l.unbounded == 0 {
		lane.MaxOutputTokens = new(l.mostOut)
	}
	if least, most, ok := l.prices(a, begins); ok {
		const million = 1e6
		lane.Cost = &costRange{Least: prose.RoundDollars(float64(l.in) * least.in / million)}
		if l.unbounded == 0 {
			lane.Cost.Most = new(prose.RoundDollars((float64(l.in)*most.in + float64(l.mostOut)*most.out) / million))
		}
	}
	return lane
}

// prices are what the lane's tokens cost at least and at most, in US dollars per million; false where it is not known.
func (l *laneOutlook) prices(a *accounts, begins []begun) (least, most toldPrices, ok bool) {
	if l.upstreams != nil {
		return l.upstreams.prices()
	}
	in, out, ok := a.Price(begins[0].provider, l.model)
	return toldPrices{in, out}, toldPrices{in, out}, ok
}

// plan sets what a plan says of the lane.
func (l *dryLane) plan(p *plan.Plan) {
	if p == nil {
		return
	}
	l.TimeS, l.TooLarge = new(p.Time.Seconds()), p.TooLarge
	if len(p.Bounds) > 0 {
		l.PerMin, l.BoundBy = p.Throughput, p.Binding().Dimension.String()
	}
}

// add adds a lane to the sums. What is not known of one is not known of all.
func (d *dryRun) add(l dryLane) {
	d.Models = append(d.Models, l)
	d.InputTokens += l.InputTokens
	if l.MaxOutputTokens == nil {
		d.MaxOutputTokens = nil
	} else if d.MaxOutputTokens != nil {
		*d.MaxOutputTokens += *l.MaxOutputTokens
	}
	switch {
	case l.Cost == nil:
		d.Cost = nil
	case d.Cost != nil:
		d.Cost.Least = prose.RoundDollars(d.Cost.Least + l.Cost.Least)
		if l.Cost.Most == nil {
			d.Cost.Most = nil
		} else if d.Cost.Most != nil {
			*d.Cost.Most = prose.RoundDollars(*d.Cost.Most + *l.Cost.Most)
		}
	}
	switch {
	case l.TimeS == nil:
		d.TimeS, d.BoundBy = nil, ""
	case d.TimeS != nil && *l.TimeS >= *d.TimeS:
		d.TimeS, d.BoundBy = l.TimeS, l.BoundBy
	}
}

// doubt says what is assumed of a lane, and what is not known of it.
func (d *dryRun) doubt(l *laneOutlook, lane dryLane, p *plan.Plan, a *accounts) {
	if p == nil {
		d.doubtTime(l, lane, a)
	} else {
		for _, assumed := range p.Assumed {
			if !slices.Contains(d.Assumed, assumed) {
				d.Assumed = append(d.Assumed, assumed)
			}
		}
	}
	if a.settings.foreign(l.model) {
		d.unknown(fmt.Sprintf("limits: %s begins with those of %s, which %s has", l.model, a.settings.limits.Model, a.settings.from))
	}
	if lane.Cost == nil {
		d.unknown(fmt.Sprintf("cost: no price is known of %s at %s", l.model, l.provider))
	}
	if l.unbounded > 0 {
		d.unknown(fmt.Sprintf("output: %s to %s without a bound on the answer, such as max_tokens", count(l.unbounded, "request"), l.model))
	}
}

// doubtTime says of which limits nothing is known.
func (d *dryRun) doubtTime(l *laneOutlook, lane dryLane, a *accounts) {
	for _, b := range lane.begins {
		if len(lane.begins) > 1 && len(limitMap(b.limits)) > 0 {
			continue // it is another's that are not known
		}
		why := noLimits(a.settings.registry, b.provider, l.model)
		text := why.Error()
		if l.upstreams != nil {
			text = "upstream " + b.name + ": " + text
		}
		d.unknown("time: " + text)
		if e, ok := errors.AsType[*exitError](why); ok && d.Hint == "" {
			d.Hint = e.hint
		}
	}
}

func (d *dryRun) unknown(text string) {
	if !slices.Contains(d.Unknown, text) {
		d.Unknown = append(d.Unknown, text)
	}
}

// share takes into account that ceilings hold for all models of a provider together.
func (d *dryRun) share(seen *outlook, f *forecaster) error {
	for _, l := range seen.sorted() {
		begins, err := f.of(l)
		if err != nil {
			return err
		}
		p, err := f.account(begins, seen.all[l.provider])
		if err != nil {
			return err
		}
		if p != nil && p.Time.Seconds() > *d.TimeS {
			d.TimeS, d.BoundBy = new(p.Time.Seconds()), ""
			if len(p.Bounds) > 0 {
				d.BoundBy = p.Binding().Dimension.String()
			}
		}
	}
	return nil
}

// print writes it for people.
func (d *dryRun) print(s *streams) error {
	s.errorf("dry run: nothing is sent, and no file is written\n")
	s.row("items", "%s", d.items())
	if len(d.Models) > 0 {
		s.row("tokens", "about %s in, %s", group(d.InputTokens), outWords(d.MaxOutputTokens))
		s.row("cost", "%s", d.Cost.words())
		s.row("time", "%s", timeWords(d.TimeS, d.BoundBy))
		d.Via.print(s)
	}
	if err := d.printModels(s); err != nil {
		return err
	}
	for _, assumed := range d.Assumed {
		s.row("assumed", "%s %s: %s", assumed.What, assumed.Value, assumed.Why)
	}
	for _, unknown := range d.Unknown {
		s.row("not known", "%s", unknown)
	}
	if d.Hint != "" {
		s.errorf("hint: %s\n", d.Hint)
	}
	return nil
}

// items says how many there are.
func (d *dryRun) items() string {
	text := fmt.Sprintf("%s of %s left", group(d.Left), group(d.Total))
	if d.Already > 0 {
		text += fmt.Sprintf(", %s done already", group(d.Already-d.Failed))
	}
	if d.Failed > 0 {
		text += fmt.Sprintf(", %s failed", group(d.Failed))
	}
	if d.Invalid > 0 {
		text += fmt.Sprintf("; %s of those left are wrong, and would be recorded as failed", group(d.Invalid))
	}
	if d.Twins > 0 {
		text += fmt.Sprintf("; %s of those left get the answer to an equal request", group(d.Twins))
	}
	return text
}

// printModels writes a line for each model.
func (d *dryRun) printModels(s *streams) error {
	w := tabwriter.NewWriter(s.err, 0, 0, 2, ' ', 0)
	if len(d.Models) > 1 {
		fmt.Fprintln(w, "  model\titems\ttokens in\tmost out\tcost\ttime\tbound by")
	}
	for _, l := range d.Models {
		if len(d.Models) > 1 {
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\t%s\t%s\t%s\n", escape(l.Model), group(l.Items), group(l.InputTokens), orUnknown(l.MaxOutputTokens),
				l.Cost.short(), shortTime(l.TimeS), l.BoundBy)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, l := range d.Models {
		if l.TooLarge > 0 {
			s.row("too large", "%s to %s larger than a whole limit: the provider refuses them", count(l.TooLarge, "request"), l.Model)
		}
		for _, b := range l.begins {
			if limits := limitParts(limitMap(b.limits)); len(limits) > 0 {
				s.row("limits", "%s at %s begins with %s", l.Model, b.name, strings.Join(limits, ", "))
			}
		}
	}
	return nil
}

func outWords(most *int64) string {
	if most == nil {
		return "out without a bound"
	}
	return fmt.Sprintf("at most %s out", group(*most))
}

func orUnknown(n *int64) string {
	if n == nil {
		return "?"
	}
	return group(*n)
}

// words says what it costs.
func (c *costRange) words() string {
	switch {
	case c == nil:
		return "not known"
	case c.Most == nil:
		return fmt.Sprintf("%s for the input, and what comes out", dollars(c.Least))
	case *c.Most == c.Least:
		return dollars(c.Least)
	}
	return fmt.Sprintf("%s for the input alone, at most %s with whole answers", dollars(c.Least), dollars(*c.Most))
}

func (c *costRange) short() string {
	switch {
	case c == nil:
		return "?"
	case c.Most == nil:
		return dollars(c.Least) + " + ?"
	}
	return dollars(c.Least) + " to " + dollars(*c.Most)
}

func timeWords(seconds *float64, boundBy string) string {
	if seconds == nil {
		return "not known"
	}
	text := "about " + shortTime(seconds)
	if boundBy != "" {
		text += ", bound by " + boundBy
	}
	return text
}

func shortTime(seconds *float64) string {
	switch {
	case seconds == nil:
		return "?"
	case *seconds >= forever.Seconds():
		return "more than a century"
	}
	return span(time.Duration(*seconds * float64(time.Second)))
}
