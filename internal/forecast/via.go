package forecast

import (
	"cmp"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// Via is what a run would hand over to Batch APIs.
type Via struct {
	Cost     *Cost      `json:"cost_usd"` // Cost, if known. Nil: a price is unknown.
	Accounts []*Batches `json:"accounts"` // Batches by account.
	Pending
	Auto *Auto `json:"deadline,omitempty"` // Batches and live requests that meet the deadline.

	auto  bool // requests without a Batch API are sent live
	known *provider.Registry
}

// Pending counts what earlier runs handed over.
type Pending struct {
	Batches  int `json:"pending_batches"`  // Pending batches of earlier runs.
	Requests int `json:"pending_requests"` // Requests in pending batches.
}

// Auto is what --batch does by a deadline.
type Auto struct {
	WaitS *plan.Seconds `json:"live_after_s"` // Delay before remaining requests are sent live. Nil: all are sent live.
	TimeS plan.Seconds  `json:"live_time_s"`  // Duration if all requests are sent live.
}

// Batches is what one account would be handed.
type Batches struct {
	Provider string       `json:"provider"`           // Provider.
	Batches  int          `json:"batches"`            // Batches.
	Requests int          `json:"requests"`           // Requests in all batches.
	Bytes    int64        `json:"bytes"`              // Size of all batches.
	Tokens   int64        `json:"input_tokens"`       // Input tokens.
	Price    float64      `json:"price"`              // Price relative to live requests.
	Window   plan.Seconds `json:"window_s,omitzero"`  // Maximum duration of a batch.
	BoundBy  string       `json:"bound_by,omitempty"` // `batches_per_hour` or `pending_requests`.
	Turns    int          `json:"turns,omitempty"`    // Number of successive batch rounds.

	row  provider.BatchAPI
	open map[batchName]*openBatch
}

// batchName is what requests of one batch have in common.
type batchName struct{ provider, endpoint, model string }

// openBatch is a batch that is not full.
type openBatch struct {
	requests int
	bytes    int64
}

// NewVia returns what a run without requests would hand over.
func NewVia(auto bool, known *provider.Registry) *Via {
	return &Via{auto: auto, Accounts: []*Batches{}, known: known}
}

// Add adds a request to the batches of its account. Without a Batch API, --batch has it go live.
func (v *Via) Add(r batch.Request) {
	b := v.account(r.Provider)
	if b == nil {
		return
	}
	name := batchName{r.Provider, r.Endpoint.String(), r.Model}
	size := int64(r.Size + plan.BatchWrapping)
	o := b.open[name]
	if o == nil || b.row.Requests > 0 && o.requests+1 > b.row.Requests || b.row.Bytes > 0 && o.bytes+size > b.row.Bytes {
		o = &openBatch{}
		b.open[name] = o
		b.Batches++
	}
	o.requests, o.bytes = o.requests+1, o.bytes+size
	b.Requests, b.Bytes, b.Tokens = b.Requests+1, b.Bytes+size, b.Tokens+int64(r.Price.Cost.Input)
}

// account returns the account at a provider; nil if its requests go live.
func (v *Via) account(name string) *Batches {
	if i := slices.IndexFunc(v.Accounts, func(b *Batches) bool { return b.Provider == name }); i >= 0 {
		return v.Accounts[i]
	}
	p, _ := v.known.Lookup(name) // the request was recognised as its
	if p.Batches.API == "" && v.auto {
		return nil
	}
	b := &Batches{Provider: name, Price: p.Batches.Price, Window: plan.Seconds{Duration: p.Batches.Window}, row: p.Batches, open: make(map[batchName]*openBatch)}
	v.Accounts = append(v.Accounts, b)
	return b
}

// Sum adds up what the lanes cost by Batch APIs, and says what delays batches.
func (v *Via) Sum(lanes []*Lane) {
	slices.SortFunc(v.Accounts, func(a, b *Batches) int { return cmp.Compare(a.Provider, b.Provider) })
	for _, b := range v.Accounts {
		b.bind()
	}
	v.Cost = &Cost{Most: new(0.0)}
	for _, lane := range lanes {
		part := 1.0 // of a request that goes live
		if i := slices.IndexFunc(v.Accounts, func(b *Batches) bool { return b.Provider == lane.Provider }); i >= 0 {
			part = v.Accounts[i].Price
		}
		v.Cost = v.Cost.plus(lane.Cost, part)
	}
}

// bind names the bound with most turns.
func (b *Batches) bind() {
	for _, bound := range []struct {
		name       string
		need, most int
	}{
		{"pending_requests", b.Requests, b.row.Pending}, {"batches_per_hour", b.Batches, b.row.PerHour},
	} {
		if bound.most == 0 {
			continue
		}
		if turns := (bound.need + bound.most - 1) / bound.most; turns > max(1, b.Turns) {
			b.BoundBy, b.Turns = bound.name, turns
		}
	}
}

// Split adds what --batch does with the requests of d in the time that is left.
func (v *Via) Split(d *DryRun, left time.Duration, live *Live) {
	models, requests := make(map[string]int), 0
	for _, l := range d.Models {
		models[l.Model] += l.Items
		requests += l.Items
	}
	live.Models = func() map[string]int { return models }
	w := batch.SplitOf(left, requests, int(d.InputTokens), live.Time)
	v.Auto = &Auto{TimeS: plan.Seconds{Duration: w.Time}}
	if w.Wait > 0 {
		v.Auto.WaitS = &plan.Seconds{Duration: w.Wait}
	}
}

// PresumedRPM is the limit that is assumed if none is known: that of the lowest paid tier that several providers publish. A
// run with a deadline has to assume one.
const PresumedRPM = 500

// Live foresees the time of live calls, by the limits with which the run starts or which it has learned.
type Live struct {
	Models    func() map[string]int             // the requests of the input for each
	Place     func(model string) (Place, error) // the account at the provider of a model
	MaxTokens int                               // that the requests declare
}

// Time returns how long that many requests take, with that many tokens of input together. The largest share of any model
// decides, and of an account's models together its ceilings.
func (l *Live) Time(requests, tokens int) time.Duration {
	if requests <= 0 {
		return 0
	}
	models, all, longest := l.Models(), 0, time.Duration(0)
	for _, n := range models {
		all += n
	}
	w := plan.Workload{InputTokens: int(float64(tokens)/float64(requests) + 0.5), MaxTokens: l.MaxTokens}
	for model, n := range models {
		place, err := l.Place(model)
		w.Requests = max(1, requests*n/all)
		took := place.time(place.Lane, w)
		if err != nil || took == 0 {
			place.Lane.Limits = sluice.Limits{RPM: PresumedRPM}
			took = place.time(place.Lane, w)
		}
		longest = max(longest, took)
		if err == nil {
			w.Requests = requests
			longest = max(longest, place.time(place.All, w))
		}
	}
	return longest
}

// time is how long requests take within the limits of a tier; 0 if they are unknown.
func (p *Place) time(t provider.Tier, w plan.Workload) time.Duration {
	planned, _ := p.plan(t, w) // an error says that the limits do not bound the requests
	return planned.Time.Duration
}
