package forecast

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
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
	Via     *Via              `json:"batch,omitempty"` // Batches of `--batch`.
	Models  []*Lane           `json:"models"`          // Figures by model.
	Assumed []plan.Assumption `json:"assumed"`         // Assumed values.
	Unknown []string          `json:"unknown"`         // Descriptions of missing data.
	Hint    string            `json:"hint,omitempty"`  // Next step.
}

// Tokens is what requests use.
type Tokens struct {
	InputTokens     int64  `json:"input_tokens"`      // Input tokens.
	MaxOutputTokens *int64 `json:"max_output_tokens"` // Maximum output tokens. Nil: not all requests bound it.
}

// Time is how long requests take.
type Time struct {
	TimeS   *float64 `json:"time_s"`             // Duration, if known. Nil: the limits are unknown.
	PerMin  float64  `json:"per_min,omitempty"`  // Requests per minute.
	BoundBy string   `json:"bound_by,omitempty"` // Limit that determines the duration.
}

// Cost is what requests cost in US dollars: their input alone, and with output up to its bound.
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

	Places []Place `json:"-"`
	first  batch.Request
	calls  []plan.Call // a fair sample
}

// Place is one account to which requests of a lane go.
type Place struct {
	Name     string // of the upstream, or else of the provider
	Provider provider.Provider
	Lane     provider.Tier // its Limits are those with which a client starts
	All      provider.Tier // the same for all lanes together
	Prices   []*pricing.Price
}

// Forever is longer than any time that can be planned.
const Forever = time.Duration(1<<63 - 1)

// plan plans within the limits of a tier. The plan's Time is 0 if they are unknown, and Forever above a century.
func (p *Place) plan(t provider.Tier, w plan.Workload) (plan.Plan, error) {
	planned, err := plan.ForTier(t, p.Provider, w, plan.Options{})
	switch {
	case errors.Is(err, plan.ErrNoLimits):
		return plan.Plan{}, nil
	case errors.Is(err, plan.ErrTooLong):
		return plan.Plan{Pace: plan.Pace{Time: plan.Seconds{Duration: Forever}}}, nil
	}
	return planned, err
}

// among plans for several accounts, each of which takes as many requests as it can. The plan's Time is 0 if the limits of
// one are unknown.
func among(places []Place, tier func(*Place) provider.Tier, w plan.Workload) (sum plan.Plan, err error) {
	perSecond := 0.0
	for i := range places {
		p, err := places[i].plan(tier(&places[i]), w)
		if err != nil || p.Time.Duration == 0 {
			return plan.Plan{}, err
		}
		perSecond += 1 / p.Time.Seconds()
		if i == 0 {
			sum = p
			continue
		}
		sum.Throughput, sum.TooLarge = sum.Throughput+p.Throughput, min(sum.TooLarge, p.TooLarge)
		sum.Bounds = nil // of several accounts, none binds alone
	}
	if together := float64(time.Second) / perSecond; len(places) > 1 && together < float64(Forever) {
		sum.Time.Duration = time.Duration(together)
	}
	return sum, nil
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

// Accounts are where requests go.
type Accounts interface {
	// Name names the provider of a request, or the upstreams that serve it.
	Name(batch.Request) string

	// Places returns the accounts for a request, at least one. It is asked once for each name and model.
	Places(batch.Request) ([]Place, error)
}

// Survey gathers the requests of a run.
type Survey struct {
	accounts Accounts
	lanes    map[[2]string]*Lane
	all      map[string]*Lane // by name: the requests of all models
	random   *rand.Rand
}

// maxSampled is how many calls of a lane are planned with: of more, a fair sample stands for all.
const maxSampled = 10_000

// NewSurvey returns a Survey without requests.
func NewSurvey(a Accounts) *Survey {
	return &Survey{accounts: a, lanes: make(map[[2]string]*Lane), all: make(map[string]*Lane), random: rand.New(rand.NewPCG(1, 2))}
}

// Add adds a request.
func (s *Survey) Add(r batch.Request) {
	name := s.accounts.Name(r)
	lane, all := s.lanes[[2]string{name, r.Model}], s.all[name]
	if lane == nil {
		lane = &Lane{Provider: name, Model: r.Model, Tokens: Tokens{MaxOutputTokens: new(int64)}, first: r}
		s.lanes[[2]string{name, r.Model}] = lane
	}
	if all == nil {
		all = &Lane{}
		s.all[name] = all
	}
	c := plan.Call{Input: r.Price.Cost.Input, MaxTokens: r.Price.Cost.MaxOutput, Answers: r.Price.N}
	lane.InputTokens += int64(c.Input)
	switch {
	case r.Endpoint.Embeds():
		c.Output = plan.NoOutput
	case c.MaxTokens == 0:
		lane.Unbounded++
	default:
		*lane.MaxOutputTokens += int64(c.MaxTokens)
	}
	lane.add(c, s.random)
	all.add(c, s.random)
}

// add adds a call. Every call is as likely to be in the sample as any other.
func (l *Lane) add(c plan.Call, random *rand.Rand) {
	if l.Items++; len(l.calls) < maxSampled {
		l.calls = append(l.calls, c)
	} else if i := random.IntN(l.Items); i < maxSampled {
		l.calls[i] = c
	}
}

// Sum adds the lanes up in d.
func (s *Survey) Sum(d *DryRun) error {
	d.Models = slices.SortedFunc(maps.Values(s.lanes), func(a, b *Lane) int {
		return cmp.Or(cmp.Compare(b.Items, a.Items), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Model, b.Model))
	})
	d.MaxOutputTokens, d.Cost, d.TimeS = new(int64), &Cost{Most: new(0.0)}, new(0.0)
	for _, l := range d.Models {
		var err error
		if l.Places, err = s.accounts.Places(l.first); err != nil {
			return err
		}
		p, err := among(l.Places, func(p *Place) provider.Tier { return p.Lane }, plan.Workload{Requests: l.Items, Calls: l.calls})
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
		p, err := among(l.Places, func(p *Place) provider.Tier { return p.All }, plan.Workload{Requests: all.Items, Calls: all.calls})
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

// price sets the cost: the lowest and the highest of the accounts.
func (l *Lane) price() {
	output := int(*l.MaxOutputTokens)
	if l.Unbounded > 0 {
		l.MaxOutputTokens = nil
	}
	for _, place := range l.Places {
		for _, p := range place.Prices {
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

// add adds a lane to the sums. What is unknown of one lane is unknown of all.
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
