package forecast

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// Batches is what a run would submit to Batch APIs.
type Batches struct {
	Cost     *Cost             `json:"cost_usd"` // Cost, if known. Nil: a price is unknown.
	Accounts []*AccountBatches `json:"accounts"` // Batches by account.
	Pending
	Split *Split `json:"deadline,omitempty"` // Batches and live requests that meet the deadline.
}

// Pending counts the submissions of earlier runs.
type Pending struct {
	Batches  int `json:"pending_batches"`  // Pending batches of earlier runs.
	Requests int `json:"pending_requests"` // Requests in pending batches.
}

// Split is how --batch divides the time until a deadline.
type Split struct {
	WaitS *plan.Seconds `json:"live_after_s"` // Delay before remaining requests are sent live. Nil: all are sent live.
	TimeS plan.Seconds  `json:"live_time_s"`  // Duration if all requests are sent live.
}

// AccountBatches are the batches of one account.
type AccountBatches struct {
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
	open map[[2]string]*openBatch // by endpoint and model, which the requests of a batch share
}

// openBatch is a batch that is not full.
type openBatch struct {
	requests int
	bytes    int64
}

// CheckBatches rejects accounts without a Batch API. With live, requests without a Batch API are sent live. If the models of items name the
// provider, the run checks it.
func CheckBatches(a *account.Accounts, live bool) error {
	switch {
	case a.Upstreams() != nil:
		return fault.New(fault.Conflict, errors.New("--batch uses one account, but the settings have upstreams"),
			"set --provider instead of upstreams")
	case !live && a.Provider.Name != "" && a.Provider.Batches.API == "":
		return noBatchAPI(a.Settings.Registry, a.Provider.Name)
	}
	return nil
}

// noBatchAPI is the error about a provider without a Batch API.
func noBatchAPI(known *provider.Registry, name string) error {
	with := slices.DeleteFunc(known.Names(), func(name string) bool {
		p, _ := known.Lookup(name)
		return p.Batches.API == ""
	})
	return fault.New(fault.Provider, fmt.Errorf("the Batch API of %s is unknown", name),
		"omit --batch, use one of %s, or add the Batch API to the provider in the settings with batches:", strings.Join(with, ", "))
}

// add adds a request to the batches of its account. With live, a request without a Batch API is sent live.
func (all *Batches) add(r *batch.Request, known *provider.Registry, live bool) {
	b := all.of(r.Provider)
	if b == nil {
		p, _ := known.Lookup(r.Provider) // the request was recognized as one of a known provider
		if p.Batches.API == "" && live {
			return
		}
		b = &AccountBatches{Provider: r.Provider, Price: p.Batches.Price, Window: plan.Seconds{Duration: p.Batches.Window},
			row: p.Batches, open: make(map[[2]string]*openBatch)}
		all.Accounts = append(all.Accounts, b)
	}
	name := [2]string{r.Endpoint.String(), r.Model}
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

// of returns the batches of the account at a provider; nil if there are none.
func (all *Batches) of(provider string) *AccountBatches {
	if i := slices.IndexFunc(all.Accounts, func(b *AccountBatches) bool { return b.Provider == provider }); i >= 0 {
		return all.Accounts[i]
	}
	return nil
}

// sum sets the cost of the lanes by Batch APIs, and the bounds that delay batches.
func (all *Batches) sum(lanes []*Lane) {
	slices.SortFunc(all.Accounts, func(a, b *AccountBatches) int { return cmp.Compare(a.Provider, b.Provider) })
	for _, b := range all.Accounts {
		b.bind("pending_requests", b.Requests, b.row.Pending)
		b.bind("batches_per_hour", b.Batches, b.row.PerHour)
	}
	all.Cost = &Cost{Most: new(0.0)}
	for _, lane := range lanes {
		part := 1.0 // of a request that is sent live
		if b := all.of(lane.Provider); b != nil {
			part = b.Price
		}
		all.Cost = all.Cost.plus(lane.Cost, part)
	}
}

// bind applies a bound, if it needs more turns than the bounds before it.
func (b *AccountBatches) bind(name string, need, bound int) {
	if bound == 0 {
		return
	}
	if turns := (need + bound - 1) / bound; turns > max(1, b.Turns) {
		b.BoundBy, b.Turns = name, turns
	}
}
