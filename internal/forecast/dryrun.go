package forecast

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
)

// DryRun is the document of sluice run --dry-run.
type DryRun struct {
	DryRun bool   `json:"dry_run"`          // Always true.
	Input  string `json:"input"`            // Path of the input.
	Output string `json:"output,omitempty"` // Path of the output.
	batch.Preview
	Tokens
	Cost *Cost `json:"cost_usd"` // Cost, if known. Nil: a price is unknown.
	Time
	Batches *Batches          `json:"batch,omitempty"` // Batches of `--batch`.
	Models  []*Lane           `json:"models"`          // Figures by model.
	Assumed []plan.Assumption `json:"assumed"`         // Assumed values.
	Unknown []string          `json:"unknown"`         // Descriptions of missing data.
	Hint    string            `json:"hint,omitempty"`  // Next step.
}

// Tokens are the tokens of requests.
type Tokens struct {
	InputTokens     int64  `json:"input_tokens"`      // Input tokens.
	MaxOutputTokens *int64 `json:"max_output_tokens"` // Maximum output tokens. Nil: not all requests bound it.
}

// Time is the time that requests take.
type Time struct {
	TimeS   *float64 `json:"time_s"`             // Duration, if known. Nil: the limits are unknown.
	PerMin  float64  `json:"per_min,omitempty"`  // Requests per minute.
	BoundBy string   `json:"bound_by,omitempty"` // Limit that determines the duration.
}

// Cost is what requests cost in US dollars.
type Cost struct {
	Least float64  `json:"least"` // Cost of input tokens only.
	Most  *float64 `json:"most"`  // Cost with the maximum output. Nil: not all requests bound their output.
}

// plus returns the sum of a cost and a part of another. A sum with an unknown cost is unknown.
func (c *Cost) plus(o *Cost, part float64) *Cost {
	if c == nil || o == nil || part == 0 {
		return nil
	}
	sum := Cost{Least: prose.RoundDollars(c.Least + o.Least*part)}
	if c.Most != nil && o.Most != nil {
		sum.Most = new(prose.RoundDollars(*c.Most + *o.Most*part))
	}
	return &sum
}

// Lane is what a run would do for one model at one provider, or at the same upstreams.
type Lane struct {
	Provider string `json:"provider"` // Provider or upstreams.
	Model    string `json:"model"`    // Model.
	Items    int    `json:"items"`    // Remaining items.
	Tokens
	Unbounded int                `json:"without_max_tokens"` // Requests without an output token limit.
	Cost      *Cost              `json:"cost_usd"`           // Cost, if known.
	Limits    map[string]float64 `json:"limits"`             // Limits by name.
	Time
	TooLarge int `json:"above_a_limit,omitempty"` // Requests that are larger than an entire rate limit.

	Places []Place `json:"-"` // Accounts to which the requests go.

	first batch.Request
	calls []plan.Call // all, or a fair sample
}

// survey gathers the requests of a run.
type survey struct {
	accounts *account.Accounts
	lanes    map[[2]string]*Lane
	all      map[string]*Lane // by name: the requests of all models
	random   *rand.Rand
}

// maxSampled is the number of calls of a lane in its plan. Of more calls, a fair sample represents all.
const maxSampled = 10_000

// MakeDryRun returns what a run with the options of cfg would do. Nothing is sent, and no file is written. a must be open for
// account.Estimate, with open upstreams.
func MakeDryRun(a *account.Accounts, cfg batch.Config) (*DryRun, error) {
	live := cfg.Batches != nil && !cfg.Budget.Deadline.IsZero()
	d := &DryRun{
		DryRun: true, Input: cfg.Input, Output: cfg.Output, Tokens: Tokens{MaxOutputTokens: new(int64)}, Cost: &Cost{Most: new(0.0)},
		Time: Time{TimeS: new(0.0)}, Models: []*Lane{}, Assumed: []plan.Assumption{}, Unknown: []string{},
	}
	if cfg.Batches != nil {
		if err := CheckBatches(a, live); err != nil {
			return nil, err
		}
		d.Batches = &Batches{Accounts: []*AccountBatches{}}
	}
	a.Fill(&cfg)
	s := &survey{accounts: a, lanes: make(map[[2]string]*Lane), all: make(map[string]*Lane), random: rand.New(rand.NewPCG(1, 2))}
	var err error
	d.Preview, err = batch.ReadPreview(cfg, func(r batch.Request) error {
		s.add(&r)
		if d.Batches != nil {
			d.Batches.add(&r, cfg.Registry, live)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := d.sum(s); err != nil {
		return nil, err
	}
	for _, l := range d.Models {
		d.doubt(l, a)
	}
	if d.Batches != nil {
		if err := d.sumBatches(a, &cfg, live); err != nil {
			return nil, err
		}
	}
	if cfg.Cache != "" {
		d.unknown("cache: ignored in this estimate; cached results cost nothing")
	}
	return d, nil
}

// add adds a request.
func (s *survey) add(r *batch.Request) {
	name := nameOf(s.accounts, r)
	lane, all := s.lanes[[2]string{name, r.Model}], s.all[name]
	if lane == nil {
		lane = &Lane{Provider: name, Model: r.Model, Tokens: Tokens{MaxOutputTokens: new(int64)}, first: *r}
		s.lanes[[2]string{name, r.Model}] = lane
	}
	if all == nil {
		all = &Lane{}
		s.all[name] = all
	}
	c := callOf(r)
	lane.InputTokens += int64(c.Input)
	switch {
	case c.Output == plan.NoOutput:
	case c.MaxTokens == 0:
		lane.Unbounded++
	default:
		*lane.MaxOutputTokens += int64(c.MaxTokens)
	}
	lane.add(c, s.random)
	all.add(c, s.random)
}

// callOf returns a request as plans take it.
func callOf(r *batch.Request) plan.Call {
	c := plan.Call{Input: r.Price.Cost.Input, MaxTokens: r.Price.Cost.MaxOutput, Answers: r.Price.N}
	if r.Endpoint.Embeds() {
		c.Output = plan.NoOutput
	}
	return c
}

// add adds a call. All calls are equally likely to be in the sample.
func (l *Lane) add(c plan.Call, random *rand.Rand) {
	if l.Items++; len(l.calls) < maxSampled {
		l.calls = append(l.calls, c)
	} else if i := random.IntN(l.Items); i < maxSampled {
		l.calls[i] = c
	}
}

// sum sets the lanes and their sums.
func (d *DryRun) sum(s *survey) (err error) {
	d.Models = slices.AppendSeq(d.Models, maps.Values(s.lanes))
	slices.SortFunc(d.Models, func(a, b *Lane) int {
		return cmp.Or(cmp.Compare(b.Items, a.Items), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model))
	})
	for _, l := range d.Models {
		if l.Places, err = placesOf(s.accounts, &l.first); err != nil {
			return err
		}
		p, err := planAt(l.Places, false, plan.Workload{Requests: l.Items, Calls: l.calls})
		if err != nil {
			return err
		}
		l.Limits = plan.LimitMap(sluice.Limits{})
		if len(l.Places) == 1 {
			l.Limits = plan.LimitMap(l.Places[0].Lane.Limits)
		}
		l.Time, l.TooLarge = timeOf(&p), p.TooLarge
		l.price()
		d.add(l)
		for _, assumed := range p.Assumed {
			if !slices.Contains(d.Assumed, assumed) {
				d.Assumed = append(d.Assumed, assumed)
			}
		}
	}
	d.PerMin = 0
	if d.TimeS == nil || len(d.Models) < 2 {
		return nil
	}
	for _, l := range d.Models { // ceilings hold for all models together
		all := s.all[l.Provider]
		p, err := planAt(l.Places, true, plan.Workload{Requests: all.Items, Calls: all.calls})
		if err != nil {
			return err
		}
		if p.Time.Seconds() > *d.TimeS {
			d.Time = timeOf(&p)
			d.PerMin = 0
		}
	}
	return nil
}

// timeOf returns the time of a plan.
func timeOf(p *plan.Plan) (t Time) {
	if p.Time.Duration > 0 {
		t.TimeS = new(p.Time.Seconds())
	}
	if len(p.Bounds) > 0 {
		t.PerMin, t.BoundBy = p.Throughput, p.Binding.Dimension.String()
	}
	return t
}

// price sets the cost: the lowest and the highest of the accounts.
func (l *Lane) price() {
	output := int(*l.MaxOutputTokens)
	if l.Unbounded > 0 {
		l.MaxOutputTokens = nil
	}
	for _, place := range l.Places {
		for _, p := range place.prices {
			if p == nil {
				l.Cost = nil
				return
			}
			least := prose.RoundDollars(p.Cost(sluice.Usage{Input: int(l.InputTokens)}).USD)
			most := prose.RoundDollars(p.Cost(sluice.Usage{Input: int(l.InputTokens), Output: output}).USD)
			if l.Cost == nil {
				l.Cost = &Cost{least, &most}
			}
			l.Cost.Least, *l.Cost.Most = min(l.Cost.Least, least), max(*l.Cost.Most, most)
		}
	}
	if l.Unbounded > 0 && l.Cost != nil {
		l.Cost.Most = nil
	}
}

// add adds a lane to the sums. If a figure of one lane is unknown, its sum is unknown.
func (d *DryRun) add(l *Lane) {
	d.InputTokens += l.InputTokens
	if l.MaxOutputTokens == nil || d.MaxOutputTokens == nil {
		d.MaxOutputTokens = nil
	} else {
		*d.MaxOutputTokens += *l.MaxOutputTokens
	}
	d.Cost = d.Cost.plus(l.Cost, 1)
	if l.TimeS == nil || d.TimeS == nil {
		d.Time = Time{}
	} else if *l.TimeS >= *d.TimeS {
		d.Time = l.Time
	}
}

// doubt adds the unknown figures of a lane.
func (d *DryRun) doubt(l *Lane, a *account.Accounts) {
	for _, p := range l.Places {
		if l.TimeS != nil || len(l.Places) > 1 && p.Lane.Limits != (sluice.Limits{}) {
			continue // known, or the limits of another account are unknown
		}
		why := noLimits(a.Settings, p.Provider, l.Model)
		text := why.Error()
		if a.Upstreams() != nil {
			text = "upstream " + p.Name + ": " + text
		}
		d.unknown("time: " + text)
		d.Hint = cmp.Or(d.Hint, why.Hint)
	}
	if of := a.Settings.Foreign(l.Model); of != "" {
		d.unknown(fmt.Sprintf("limits: %s starts with the limits of %s", l.Model, of))
	}
	if l.Cost == nil {
		d.unknown(fmt.Sprintf("cost: the price of %s at %s is unknown", l.Model, l.Provider))
	}
	if l.Unbounded > 0 {
		d.unknown(fmt.Sprintf("output: %s to %s without an output limit such as max_tokens", prose.Count(l.Unbounded, "request"), l.Model))
	}
}

func (d *DryRun) unknown(text string) {
	if !slices.Contains(d.Unknown, text) {
		d.Unknown = append(d.Unknown, text)
	}
}

// sumBatches completes the batches. With live, late requests are sent live by the deadline.
func (d *DryRun) sumBatches(a *account.Accounts, cfg *batch.Config, live bool) error {
	d.Batches.sum(d.Models)
	for _, b := range d.Batches.Accounts {
		if b.row.API == "" {
			return noBatchAPI(cfg.Registry, b.Provider)
		}
	}
	d.Batches.Pending = Pending{Batches: d.PendingParts, Requests: d.PendingLines}
	if len(d.Batches.Accounts) == 0 {
		return nil
	}
	d.unknown("finish time of batches: providers promise only the latest time")
	if !live {
		return nil
	}
	models, requests := make(map[string]int), 0
	for _, l := range d.Models {
		models[l.Model] += l.Items
		requests += l.Items
		if l.TimeS == nil {
			why := fmt.Sprintf("--deadline needs the rate limit of %s at %s, but the limit is unknown: set --rpm", l.Model, l.Provider)
			d.Assumed = append(d.Assumed, plan.Assumption{What: limits.Requests.String(), Value: prose.Number(presumedRPM), Why: why})
		}
	}
	estimate := LiveTime(a, cfg.MaxTokens, func() map[string]int { return models })
	split := batch.SplitOf(time.Until(cfg.Budget.Deadline), requests, int(d.InputTokens), estimate)
	d.Batches.Split = &Split{TimeS: plan.Seconds{Duration: split.Time}}
	if split.Wait > 0 {
		d.Batches.Split.WaitS = &plan.Seconds{Duration: split.Wait}
	}
	return nil
}
