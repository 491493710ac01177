package plan_test

import (
	"slices"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
)

// row is what the rule of thumb was first made for.
type row struct {
	name    string
	limits  sluice.Limits
	latency time.Duration
}

func rows() map[string]row {
	return map[string]row{
		"anthropic": {"anthropic", sluice.Limits{RPM: 50, TPM: 40_000, Concurrency: 5}, 2 * time.Second},
		"openai":    {"openai", sluice.Limits{RPM: 500, TPM: 30_000}, 1500 * time.Millisecond},
		"modal":     {"modal", sluice.Limits{RPM: 600, TPM: 100_000, Concurrency: 4}, 500 * time.Millisecond},
	}
}

// capModel is the rule of thumb for calls of 2,000 tokens.
func capModel(t *testing.T, l sluice.Limits, latency time.Duration, o plan.Options) plan.CapModel {
	t.Helper()
	p := compute(t, l, plan.Workload{Latency: latency, InputTokens: 1500, OutputTokens: 500}, o)
	if p.CapModel == nil {
		t.Fatalf("no model of %+v", l)
	}
	return *p.CapModel
}

func TestTheModelKeepsItsFigures(t *testing.T) {
	for _, c := range []struct {
		row          string
		margin       *float64
		graphs       int
		calls, nodes int
		throughput   float64
		tokens       int
	}{
		{"anthropic", nil, 1, 4, 4, 16, 10_000},
		{"openai", nil, 1, 10, 10, 12, 7_500},
		{"modal", nil, 1, 3, 3, 40, 25_000},
		{"anthropic", nil, 2, 4, 2, 16, 10_000},
		{"anthropic", nil, 100, 4, 1, 16, 10_000},
		{"openai", nil, 3, 10, 3, 12, 7_500},
		{"anthropic", new(0.0), 1, 1, 1, 0, 10_000},
		{"openai", new(0.0), 1, 1, 1, 0, 7_500},
		{"anthropic", new(0.8), 1, 4, 4, 16, 10_000},
		{"anthropic", new(1.0), 1, 5, 5, 20, 10_000},
		{"openai", new(1.0), 1, 12, 12, 15, 7_500},
		{"modal", new(1.0), 1, 4, 4, 50, 25_000},
	} {
		r := rows()[c.row]
		m := capModel(t, r.limits, r.latency, plan.Options{Safety: c.margin, Processes: c.graphs})
		if m.ParallelCalls != c.calls || m.ParallelNodes != c.nodes || m.PerMinute != c.throughput || m.MaxTokens != c.tokens {
			t.Errorf("%s, %d graphs: %+v, want %+v", c.row, c.graphs, m, c)
		}
	}
}

func TestTheModelSaysWhatItWouldOffer(t *testing.T) {
	for _, c := range []struct {
		row              string
		requests, tokens float64
		breaks           []limits.Dimension
	}{
		{"anthropic", 120, 240_000, []limits.Dimension{limits.Requests, limits.Tokens}},
		{"openai", 400, 800_000, []limits.Dimension{limits.Tokens}},
		{"modal", 360, 720_000, []limits.Dimension{limits.Tokens}},
	} {
		r := rows()[c.row]
		m := capModel(t, r.limits, r.latency, plan.Options{})
		if m.OffersRequests != c.requests || m.OffersTokens != c.tokens || !slices.Equal(m.Breaks, c.breaks) {
			t.Errorf("%s: %+v", c.row, m)
		}
	}
}

func TestTheModelGrowsWithItsLimits(t *testing.T) {
	one := capModel(t, sluice.Limits{RPM: 500, TPM: 30_000}, 0, plan.Options{})
	two := capModel(t, sluice.Limits{RPM: 1000, TPM: 60_000}, 0, plan.Options{})
	if two.ParallelCalls <= one.ParallelCalls || two.PerMinute != 2*one.PerMinute || two.MaxTokens != 2*one.MaxTokens {
		t.Errorf("%+v, doubled %+v", one, two)
	}
}

func TestTheModelBoundsConcurrencyAndNotTheCallsInAll(t *testing.T) {
	r := rows()["anthropic"]
	m := capModel(t, r.limits, r.latency, plan.Options{Processes: 2})
	l := m.ResourceLimits()
	if *l.ConcurrentNodes != 2 || *l.ConcurrentCalls != 4 || *l.Tokens != 10_000 || l.LLMCalls != nil {
		t.Errorf("%+v", l)
	}
}

func TestTheModelNeedsACapOrRequests(t *testing.T) {
	if p := compute(t, sluice.Limits{TPM: 1000}, plan.Workload{}, plan.Options{}); p.CapModel != nil {
		t.Errorf("%+v", p.CapModel)
	}
}
