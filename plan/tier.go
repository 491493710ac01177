package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
)

// ForTier plans with the limits of a tier, as its provider counts them, whatever o says of that. Latency, tokens and
// prices that neither w nor o states are the tier's, where it states them.
func ForTier(t provider.Tier, by provider.Provider, w Workload, o Options) (Plan, error) {
	o.Charge, o.CountsCached = by.Charge, by.CountsCached
	if o.PriceIn == nil {
		o.PriceIn = t.PriceIn
	}
	if o.PriceOut == nil {
		o.PriceOut = t.PriceOut
	}
	var published []Assumption
	why := fmt.Sprintf("published with %s %s", t.Provider, t.Tier)
	if w.Latency == 0 && t.Latency > 0 {
		w.Latency = t.Latency
		published = append(published, Assumption{"latency", t.Latency.String(), why})
	}
	if n := t.TokensPerRequest; n > 0 && len(w.Calls) == 0 && w.InputTokens+w.OutputTokens+w.MaxTokens == 0 && !w.NoOutput {
		w.OutputTokens = n * usualOutput / (usualInput + usualOutput)
		w.InputTokens = n - w.OutputTokens
		published = append(published, Assumption{"input_tokens", fmt.Sprint(w.InputTokens), why},
			Assumption{"output_tokens", fmt.Sprint(w.OutputTokens), why})
	}
	p, err := Compute(t.Limits, w, o)
	p.Assumed = append(published, p.Assumed...)
	p.BatchAPI = newBatchAPI(by.Batches, &p)
	return p, err
}

// BatchAPI is what a provider's Batch API makes of a plan.
type BatchAPI struct {
	Price          float64  `json:"price"` // of a request; a live one has 1
	Cost           *float64 `json:"cost_usd,omitempty"`
	CostPerRequest *float64 `json:"cost_per_request_usd,omitempty"`
	Batches        int      `json:"batches,omitempty"` // for all requests
	Requests       int      `json:"requests_per_batch,omitempty"`
	Window         Seconds  `json:"window_s,omitzero"` // in which a batch ends; 0 is unknown
	Source         string   `json:"source,omitempty"`
}

const (
	// BatchWrapping is about how many bytes stand around the body of a request in a batch: its id, method and path.
	BatchWrapping = 110

	bytesPerToken = 4 // the estimate by which providers count tokens, too
)

func newBatchAPI(row provider.BatchAPI, p *Plan) *BatchAPI {
	if row.API == "" || row.Price == 0 {
		return nil
	}
	b := &BatchAPI{Price: row.Price, Requests: row.Requests, Window: Seconds{row.Window}, Source: row.Source}
	if p.CostPerRequest != nil {
		b.CostPerRequest = new(prose.RoundDollars(*p.CostPerRequest * row.Price))
	}
	if p.Cost != nil {
		b.Cost = new(prose.RoundDollars(*p.Cost * row.Price))
	}
	if n := float64(p.Requests); n > 0 {
		b.Batches = 1
		for _, bound := range [...]struct{ all, most float64 }{
			{n, float64(row.Requests)}, {n * (p.InputTokens*bytesPerToken + BatchWrapping), float64(row.Bytes)},
		} {
			if bound.most > 0 {
				b.Batches = max(b.Batches, int(math.Ceil(bound.all/bound.most)))
			}
		}
	}
	return b
}

// By is what plans are ranked by.
type By uint8

// What plans are ranked by. Ties go to the other.
const (
	ByTime By = iota // the shortest first; without end, the highest throughput
	ByCost           // the cheapest first
)

// Choice is one tier among several.
type Choice struct {
	Tier provider.Tier
	Plan Plan   // of a tier that is ranked
	Why  string // why the tier is left out; "" when it is ranked
}

// Rank plans for each tier and puts them in order, the best first. Those that cannot be ranked (without limits that
// bound the workload, or without prices where those decide) come as left, with the reason. A wrong workload or option is
// a *FieldError.
func Rank(r *provider.Registry, tiers []provider.Tier, w Workload, o Options, by By) (ranked, left []Choice, err error) {
	for _, t := range tiers {
		c := Choice{Tier: t}
		account, ok := r.Lookup(t.Provider)
		if !ok {
			account.Name = t.Provider
		}
		c.Plan, err = ForTier(t, account, w, o)
		switch {
		case errors.Is(err, ErrNoLimits):
			c.Why = ErrNoLimits.Error()
		case errors.Is(err, ErrTooLong):
			c.Why = ErrTooLong.Error()
		case err != nil:
			return nil, nil, err
		case by == ByCost && c.Plan.CostPerRequest == nil:
			c.Why = "no price is published"
		}
		if c.Why != "" {
			left = append(left, c)
		} else {
			ranked = append(ranked, c)
		}
	}
	slices.SortStableFunc(ranked, func(a, b Choice) int {
		if by == ByCost {
			return cmp.Or(byCost(a.Plan, b.Plan), byTime(a.Plan, b.Plan))
		}
		return cmp.Or(byTime(a.Plan, b.Plan), byCost(a.Plan, b.Plan))
	})
	return ranked, left, nil
}

func byTime(a, b Plan) int {
	return cmp.Or(cmp.Compare(a.Time.Duration, b.Time.Duration), cmp.Compare(b.Throughput, a.Throughput))
}

func byCost(a, b Plan) int { return cmp.Compare(a.costs(), b.costs()) }

// costs is the cost of a request, an unknown one above all.
func (p *Plan) costs() float64 {
	if p.CostPerRequest == nil {
		return math.Inf(1)
	}
	return *p.CostPerRequest
}
