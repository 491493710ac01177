package plan

import (
	"fmt"
	"math"

	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
)

// ForTier computes a Plan with the limits of a tier. The provider determines the method of counting tokens, so
// o.Charge has no effect. If w and o do not contain the latency, tokens or prices, the tier's published values apply.
func ForTier(t provider.Tier, by provider.Provider, w Workload, o Options) (Plan, error) {
	o.Charge = by.Charge
	if o.PriceIn == nil {
		o.PriceIn = t.PriceIn
	}
	if o.PriceOut == nil {
		o.PriceOut = t.PriceOut
	}
	var published []Assumption
	why := fmt.Sprintf("published with %s %s", t.Provider, t.Tier)
	if w.Latency == 0 && t.Latency.Duration > 0 {
		w.Latency = t.Latency.Duration
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

// BatchAPI describes a Plan's requests when sent through the provider's Batch API.
type BatchAPI struct {
	Price          float64  `json:"price"`                          // Price relative to live requests. The price of live requests is 1.
	Cost           *float64 `json:"cost_usd,omitempty"`             // Cost, if known.
	CostPerRequest *float64 `json:"cost_per_request_usd,omitempty"` // Mean cost of a request.
	Batches        int      `json:"batches,omitempty"`              // Batches.
	Requests       int      `json:"requests_per_batch,omitempty"`   // Requests in each batch.
	Window         Seconds  `json:"window_s,omitzero"`              // Maximum duration of a batch. The value 0 means unknown.
	Source         string   `json:"source,omitempty"`               // Address of the source.
}

const (
	// BatchWrapping is the approximate number of bytes for ID, method and path around each request body in a batch.
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
