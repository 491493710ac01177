package find

// Which limit binds is no exported question: this test is in the package.

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-llm/sluice"
)

func TestTheTightestLimitPerMinuteBinds(t *testing.T) {
	s := newSearch(Config{MinOutputTokens: 500}, nil)
	for range 100 { // so many that the margin is the least
		s.latency.add(2)
		s.in.add(100)
		s.out.add(400)
	}
	s.charge, s.chargeFrom = sluice.ChargeActual, sluice.SourceHeader
	of := func(v float64, source sluice.Source) Finding { return Finding{Value: v, Source: source} }
	for _, c := range []struct {
		name   string
		bound  Bound
		limits map[sluice.Dimension]Finding
		want   Binding
	}{
		{"requests", BoundRequests, map[sluice.Dimension]Finding{
			sluice.Requests: of(300, sluice.SourceMeasured), sluice.Tokens: of(600_000, sluice.SourceHeader), sluice.OutputTokens: of(1, sluice.SourceAtLeast),
		}, Binding{sluice.Requests, 1, 10, 0.02}},
		{"tokens of output", BoundTokens, map[sluice.Dimension]Finding{
			sluice.Requests: of(300, sluice.SourceMeasured), sluice.OutputTokens: of(48_000, sluice.SourceHeader),
		}, Binding{sluice.OutputTokens, 400, 4, 0.02}},
		{"what was certified", BoundCertified, map[sluice.Dimension]Finding{
			sluice.Requests: of(30, sluice.SourceMeasured), sluice.InputTokens: of(9_000, sluice.SourceAtLeast), sluice.Tokens: of(90_000, sluice.SourceAtLeast),
		}, Binding{sluice.InputTokens, 100, 3, 0}},
		{"a cap", BoundConcurrency, map[sluice.Dimension]Finding{sluice.Requests: of(300, sluice.SourceMeasured)}, Binding{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := s.binding(&Result{Bound: c.bound, Limits: c.limits})
			if diff := cmp.Diff(c.want, got, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
				t.Error(diff)
			}
		})
	}
}
