package batch_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
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

// TestASumBelowAnyPriceIsABoundToo: a budget that rounds to nothing is not one of any sum.
func TestASumBelowAnyPriceIsABoundToo(t *testing.T) {
	f, rt := newFiles(t, chats(3)), &stub{}
	cfg := f.config(t, rt)
	cfg.Price = func(provider.Provider, string) (in, out float64, ok bool) { return 1, 1, true }
	cfg.Budget.Cost = 1e-13
	_, err := run(t, cfg)
	if spent, ok := errors.AsType[*batch.BudgetError](err); !ok || spent.What != batch.LimitedCost || len(rt.sent) != 0 {
		t.Errorf("%d calls, %v", len(rt.sent), err)
	}
}

func TestNothingIsSentAfterADeadlineThatIsPastAtTheStart(t *testing.T) {
	f, rt := newFiles(t, chats(3)), &stub{}
	cfg := f.config(t, rt)
	cfg.Budget.Deadline = time.Now().Add(-time.Millisecond)
	_, err := run(t, cfg)
	if spent, ok := errors.AsType[*batch.BudgetError](err); !ok || spent.What != batch.LimitedTime || len(rt.sent) != 0 {
		t.Errorf("%d calls, %v", len(rt.sent), err)
	}
}
