package plan

import (
	"cmp"
	"math"
	"time"

	"github.com/sluice-llm/sluice"
)

// usualTokens is what the model takes a request for that nobody measured.
const usualTokens = 2000

// ConcurrencyModel is the rule of thumb that many programs bound themselves by: as many open calls as the provider's
// cap allows, or else as Little's law gives for its requests a minute, less a margin. It ignores tokens, and with a cap
// also the requests a minute, so that it can break the limits it is made from: five calls of 2 s under a limit of 50
// requests a minute make four open calls, which come to 120 requests a minute. It stands here beside Workers, which
// keep all limits.
type ConcurrencyModel struct {
	ParallelCalls int     // max(1, trunc(cap × margin)), or max(1, trunc(RPM/60 × latency × margin)) without a cap
	ParallelNodes int     // max(1, trunc(ParallelCalls / graphs)): nodes of each graph
	Throughput    float64 // min(RPM, TPM / tokens, cap / latency × 60) × margin, in requests a minute
	MaxTokens     int     // TPM / 4, for each graph; 0 when TPM is not known

	OffersRequests float64            // a minute, by ParallelCalls workers without a pace
	OffersTokens   float64            // a minute
	Breaks         []sluice.Dimension // limits that these workers exceed
}

// Model is the rule of thumb for limits and calls of that length: 0 tokens are 2,000, and 0 latency is 2 s. It fails
// with a *FieldError, also when the limits hold neither a cap nor requests a minute.
func Model(l sluice.Limits, tokens int, latency time.Duration, o Options) (ConcurrencyModel, error) {
	err := cmp.Or(checkLimits(l), inRange("tokens", tokens, LargestCall), inRange("latency", latency, mostLatency), o.check())
	switch {
	case err != nil:
		return ConcurrencyModel{}, err
	case l.Concurrent == 0 && l.RPM == 0:
		return ConcurrencyModel{}, wrong("Limits", "neither Concurrent nor RPM is known: %w", ErrNoLimits)
	}
	perCall, took := float64(cmp.Or(tokens, usualTokens)), cmp.Or(latency, usualLatency)
	return model(l, perCall, took.Seconds(), o.safety(), max(1, o.Graphs)), nil
}

// model is the arithmetic. The order of its operations is part of it: results are cut to whole numbers.
func model(l sluice.Limits, tokens, latency, margin float64, graphs int) ConcurrencyModel {
	var m ConcurrencyModel
	rpm, perTokens, byCap := math.Inf(1), math.Inf(1), math.Inf(1)
	if l.RPM > 0 {
		rpm = float64(l.RPM)
	}
	if l.TPM > 0 {
		perTokens = float64(l.TPM) / tokens
	}
	if l.Concurrent > 0 {
		limit := float64(l.Concurrent)
		byCap = limit / latency * 60
		m.ParallelCalls = max(1, int(limit*margin))
	} else {
		m.ParallelCalls = max(1, int(rpm/60*latency*margin))
	}
	m.ParallelNodes = max(1, int(float64(m.ParallelCalls)/float64(graphs)))
	m.Throughput = min(rpm, perTokens, byCap) * margin
	m.MaxTokens = l.TPM / 4

	m.OffersRequests = float64(m.ParallelCalls) / latency * 60
	m.OffersTokens = m.OffersRequests * tokens
	if m.OffersRequests > rpm {
		m.Breaks = append(m.Breaks, sluice.Requests)
	}
	if l.TPM > 0 && m.OffersTokens > float64(l.TPM) {
		m.Breaks = append(m.Breaks, sluice.Tokens)
	}
	return m
}

// modelOf is the rule of thumb for a plan's workload; nil when the limits do not determine it. It counts the tokens
// that are used.
func modelOf(l sluice.Limits, p Plan) *ConcurrencyModel {
	if l.Concurrent == 0 && l.RPM == 0 {
		return nil
	}
	tokens := max(1, p.InputTokens+p.OutputTokens)
	m := model(l, tokens, p.Workload.Latency.Seconds(), p.Safety, p.Graphs)
	return &m
}

// ResourceLimits are the model's bounds: nodes at once in each graph, calls at once, and tokens for each graph. The
// model says nothing of how many calls there may be in all.
func (m ConcurrencyModel) ResourceLimits() sluice.ResourceLimits {
	l := sluice.ResourceLimits{
		ConcurrentNodes: new(int64(m.ParallelNodes)), ConcurrentCalls: new(int64(m.ParallelCalls)),
	}
	if m.MaxTokens > 0 {
		l.Tokens = new(int64(m.MaxTokens))
	}
	return l
}
