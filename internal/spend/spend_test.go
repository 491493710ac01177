package spend_test

import (
	"math/rand/v2"
	"testing"

	"github.com/sluice-llm/sluice/internal/spend"
	"github.com/sluice-llm/sluice/limits"
)

func tokens(n float64) spend.Amount { return spend.Amount{spend.Tokens: n} }

// TestACapIsExceededByTheOpenRequestsAtMost has requests that use up to a hundred times their estimates, open in random numbers.
func TestACapIsExceededByTheOpenRequestsAtMost(t *testing.T) {
	for seed := range uint64(200) {
		luck := rand.New(rand.NewPCG(seed, 1))
		limit, factor, most := 50_000+float64(luck.IntN(100_000)), 1+luck.Float64()*99, 1+luck.IntN(8)
		c := spend.Cap{Limit: tokens(limit)}
		m := spend.NewModel(4096)
		var open []spend.Estimate
		largest := 0.0
		for range 10_000 {
			cost := limits.Cost{Input: 1 + luck.IntN(300), MaxOutput: luck.IntN(2) * luck.IntN(500)}
			e := spend.Estimate{Model: m, Input: tokens(float64(cost.Input)), Declared: tokens(float64(cost.MaxOutput))}
			if cost.MaxOutput == 0 {
				e.Unstated = tokens(1)
			}
			if len(open) < most && c.Fits(e.Amount()) {
				c.Open(&e)
				open = append(open, e)
				continue
			}
			if len(open) == 0 {
				break
			}
			used := factor * (open[0].Input[spend.Tokens] + 100)
			largest = max(largest, used)
			m.Learn(limits.Cost{Input: int(open[0].Input[spend.Tokens])}, used-100, 100)
			c.Close(&open[0], tokens(used))
			open = open[1:]
		}
		if over := c.Used[spend.Tokens] - limit; over > float64(most)*largest {
			t.Errorf("seed %d: exceeded by %v, with %d open requests of %v at most", seed, over, most, largest)
		}
		if len(open) == 0 && c.Held() != (spend.Amount{}) {
			t.Errorf("seed %d: %v is held by nothing", seed, c.Held())
		}
	}
}

func TestOpenRequestsAreCorrectedByResponses(t *testing.T) {
	m := spend.NewModel(8000)
	c := spend.Cap{Limit: tokens(100_000)}
	e := spend.Estimate{Model: m, Input: tokens(10), Unstated: tokens(1)}
	if got := e.Amount(); got != tokens(8010) {
		t.Errorf("before any response: %v", got)
	}
	c.Open(&e)
	c.Open(&e)
	for range 95 {
		m.Learn(limits.Cost{Input: 10}, 250, 100)
	}
	m.Learn(limits.Cost{Input: 10}, 250, 9000) // beyond the 95th percentile of the last 64
	if got := c.Held(); got != tokens(2*350) {
		t.Errorf("two open requests hold %v", got)
	}
	m.Learn(limits.Cost{Input: 10, MaxOutput: 10}, 10, 40)
	declared := spend.Estimate{Model: m, Declared: tokens(10)}
	if got := declared.Amount(); got != tokens(40) {
		t.Errorf("a model that exceeds the declared maximum four times: %v", got)
	}
}

func TestLimitsOfBothUnitsHold(t *testing.T) {
	c := spend.Cap{Limit: spend.Amount{spend.USD: spend.Dollar, spend.Tokens: 100}, Used: spend.Amount{spend.USD: 0.5 * spend.Dollar, spend.Tokens: 90}}
	for unit, more := range map[int]spend.Amount{-1: tokens(10), spend.Tokens: tokens(11), spend.USD: {spend.USD: 0.51 * spend.Dollar}} {
		if got := c.Exceeded(more); got != unit {
			t.Errorf("%v exceeds the limit of unit %d, want %d", more, got, unit)
		}
	}
}
