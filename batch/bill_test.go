package batch_test

import (
	"math"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

func TestResultsAndTheReportSayWhatCallsCost(t *testing.T) {
	const in, out = 2.5, 10 // dollars per million tokens
	for name, test := range map[string]struct {
		price  func(provider.Provider, string) (float64, float64, bool)
		costed int
	}{
		"a price":            {func(provider.Provider, string) (float64, float64, bool) { return in, out, true }, 20},
		"no price":           {func(provider.Provider, string) (float64, float64, bool) { return in, out, false }, 0},
		"nobody to be asked": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFiles(t, chats(20))
			cfg := f.config(t, newSim(t, sim.Config{Latency: -1}).Transport())
			cfg.Price = test.price
			rep, err := run(t, cfg)
			if err != nil || rep.Costed != test.costed {
				t.Fatalf("%d results have a cost, want %d; error %v", rep.Costed, test.costed, err)
			}
			var sum float64
			for id, r := range f.results(t) {
				if (r.Sluice.CostUSD != nil) != (test.costed > 0) {
					t.Fatalf("%s costs %v", id, r.Sluice.CostUSD)
				}
				if r.Sluice.CostUSD == nil {
					continue
				}
				want := (float64(r.Sluice.InputTokens)*in + float64(r.Sluice.OutputTokens)*out) / 1e6
				if got := *r.Sluice.CostUSD; got <= 0 || math.Abs(got-want) > 1e-11 {
					t.Errorf("%s costs %v, want %v", id, got, want)
				}
				sum += *r.Sluice.CostUSD
			}
			if math.Abs(rep.Cost-sum) > 1e-10 {
				t.Errorf("the report says %v, the results %v", rep.Cost, sum)
			}
		})
	}
}

func TestWhatUsedNothingHasNoCost(t *testing.T) {
	f := newFiles(t, chats(3))
	cfg := f.config(t, newSim(t, sim.Config{Latency: -1, Faults: sim.Faults{BadRequest: 1}}).Transport())
	cfg.Price = func(provider.Provider, string) (float64, float64, bool) { return 1, 1, true }
	rep, err := run(t, cfg)
	if err != nil || rep.Kinds[sluice.BadRequest] != 3 || rep.Costed != 0 {
		t.Errorf("%v, %d with a cost, error %v", rep.Kinds, rep.Costed, err)
	}
}
