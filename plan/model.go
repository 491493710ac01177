package plan

import (
	"math"

	"github.com/sluice-llm/sluice/limits"
)

// CapModel is a common rule of thumb that sets concurrency to the provider's concurrency limit minus a margin. Without
// a concurrency limit, the rule applies Little's law to the limit of requests per minute. The rule ignores token limits
// and, with a concurrency limit, also the limit of requests per minute. The resulting concurrency can therefore exceed
// limits. For example, a limit of 5 concurrent calls gives a concurrency of 4. At 2 s per call, 4 calls make 120 requests
// per minute, even if the limit is 50. In contrast, Plan.Workers stays within all limits.
type CapModel struct {
	ParallelCalls int     `json:"cap_model_calls"`                // Concurrency by a rule of thumb. The formula is max(1, trunc(cap × margin)), or max(1, trunc(RPM/60 × latency × margin)) without a cap.
	ParallelNodes int     `json:"cap_model_nodes"`                // Concurrency per process by a rule of thumb. The formula is max(1, trunc(ParallelCalls / graphs)).
	PerMinute     float64 `json:"cap_model_throughput_rpm"`       // Throughput by a rule of thumb. The formula is min(RPM, TPM / tokens, cap / latency × 60) × margin, in requests.
	MaxTokens     int     `json:"cap_model_max_tokens,omitempty"` // A quarter of the tokens-per-minute limit. The value applies to each graph; 0 if TPM is unknown.

	OffersRequests float64            `json:"cap_model_offers_rpm"`       // Requests per minute at a concurrency of cap_model_calls.
	OffersTokens   float64            `json:"cap_model_offers_tpm"`       // Tokens per minute at a concurrency of cap_model_calls.
	Breaks         []limits.Dimension `json:"cap_model_breaks,omitempty"` // Limits that a concurrency of cap_model_calls exceeds.
}

// capModel is the rule of thumb for a plan's workload, by the tokens that are used; nil when the limits do not determine it. The order
// of its operations is part of it: results are cut to whole numbers.
func (p *Plan) capModel() *CapModel {
	l := &p.Limits
	if l.Concurrency == 0 && l.RPM == 0 {
		return nil
	}
	tokens, latency := max(1, p.InputTokens+p.OutputTokens), p.Workload.Latency.Seconds()
	rpm, perTokens, byCap := math.Inf(1), math.Inf(1), math.Inf(1)
	if l.RPM > 0 {
		rpm = float64(l.RPM)
	}
	if l.TPM > 0 {
		perTokens = float64(l.TPM) / tokens
	}
	calls := rpm / 60 * latency * p.Safety
	if limit := float64(l.Concurrency); limit > 0 {
		byCap, calls = limit/latency*60, limit*p.Safety
	}
	m := &CapModel{ParallelCalls: max(1, int(calls)), PerMinute: min(rpm, perTokens, byCap) * p.Safety, MaxTokens: l.TPM / 4}
	m.ParallelNodes = max(1, int(float64(m.ParallelCalls)/float64(p.Processes)))
	m.OffersRequests = float64(m.ParallelCalls) / latency * 60
	m.OffersTokens = m.OffersRequests * tokens
	if m.OffersRequests > rpm {
		m.Breaks = append(m.Breaks, limits.Requests)
	}
	if l.TPM > 0 && m.OffersTokens > float64(l.TPM) {
		m.Breaks = append(m.Breaks, limits.Tokens)
	}
	return m
}

// ResourceLimits returns the model's limits for the concurrent nodes and tokens of each graph, and for concurrent
// calls. The total number of calls is not limited.
func (m CapModel) ResourceLimits() limits.ResourceLimits {
	l := limits.ResourceLimits{
		ConcurrentNodes: new(int64(m.ParallelNodes)), ConcurrentCalls: new(int64(m.ParallelCalls)),
	}
	if m.MaxTokens > 0 {
		l.Tokens = new(int64(m.MaxTokens))
	}
	return l
}
