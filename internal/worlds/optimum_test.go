package worlds

import (
	"testing"
	"time"
)

// exhaustive returns the least time in which all items of a tiny world are served, over all instants on a grid at which
// each may be sent and over all orders, or over the order of the queue only.
func exhaustive(w *World, grid time.Duration, steps int, anyOrder bool) time.Duration {
	items, best := w.Items(), never
	instants := make([]int, len(items))
	var choose func(i int)
	choose = func(i int) {
		if i == len(items) {
			best = min(best, sendAt(w, items, instants, grid))
			return
		}
		first := 0
		if i > 0 && !anyOrder {
			first = instants[i-1]
		}
		for instants[i] = first; instants[i] < steps && time.Duration(instants[i])*grid < best; instants[i]++ {
			choose(i + 1)
		}
	}
	choose(0)
	return best
}

// sendAt returns when the last item is done if each is sent at its instant, or never if one is rejected.
func sendAt(w *World, items []*Item, instants []int, grid time.Duration) time.Duration {
	c := new(clock)
	p := newProvider(w, c, false)
	last := time.Duration(0)
	for i, item := range items {
		step := time.Duration(instants[i])
		c.at(step*grid+step, func() { // just after what earlier requests release at that instant
			if r := p.arrive(item, never); r.Status != 200 {
				last = never
			} else if last != never {
				last = max(last, r.done.Truncate(time.Microsecond))
			}
		})
	}
	for c.step() && last != never {
	}
	return last
}

func TestOptimumAgreesWithAnExhaustiveSearch(t *testing.T) {
	load := Load{Items: 4, Input: 100, Max: 100, Output: 0.5}
	for name, w := range map[string]*World{
		"bucket":      {Lane: []Limit{{Dim: RPM, N: 60, Burst: 2}}},
		"used bucket": {Lane: []Limit{{Dim: RPM, N: 60, Burst: 3, Used: 1}}},
		"fixed":       {Lane: []Limit{{Dim: RPM, N: 30, Burst: 4, Kind: Fixed, Phase: 1}}},
		"opened":      {Lane: []Limit{{Dim: RPM, N: 30, Burst: 4, Kind: Opened}}},
		"opened late": {Lane: []Limit{{Dim: RPM, N: 30, Burst: 4, Kind: Opened, Phase: 1, Used: 0.5}}},
		"sliding":     {Lane: []Limit{{Dim: RPM, N: 40, Burst: 3, Kind: Sliding}}},
		"estimate":    {Lane: []Limit{{Dim: RPM, N: 30, Burst: 4, Kind: Estimate, Phase: 2}}},
		"counter":     {Lane: []Limit{{Dim: RPM, N: 60, Burst: 3, Kind: Estimate}}, Charge: Charge{Rejected: true}},
		"concurrency": {Lane: []Limit{{Dim: Concurrency, N: 2}}, Serve: Serve{Latency: 2}},
		"late":        {Lane: []Limit{{Dim: Concurrency, N: 2, Late: 1}}, Serve: Serve{Latency: 2}},
		"tokens":      {Lane: []Limit{{Dim: TPM, N: 6000, Burst: 3}}},
		"sum":         {Lane: []Limit{{Dim: TPM, N: 12000, Burst: 3}}, Charge: Charge{Tokens: Sum}},
		"reserved":    {Lane: []Limit{{Dim: TPM, N: 6000, Burst: 4}}, Charge: Charge{Tokens: Reserved}},
		"storm":       {Lane: []Limit{{Dim: RPM, N: 60, Burst: 2}}, Storms: []Storm{{At: 1, For: 2, Status: 429}}},
		"change":      {Lane: []Limit{{Dim: RPM, N: 60, Burst: 1}}, Changes: []Change{{At: 2, Factor: 0.5}}},
		"two limits":  {Lane: []Limit{{Dim: RPM, N: 60, Burst: 3}, {Dim: Concurrency, N: 1}}},
		"two lanes":   {Lanes: 2, Account: []Limit{{Dim: RPM, N: 60, Burst: 2}}},
		"workers":     {Serve: Serve{Latency: 2, Workers: 2}},
	} {
		w.Load, w.Lanes, w.Serve.Latency = load, max(1, w.Lanes), max(1, w.Serve.Latency)
		want, late := exhaustive(w, time.Second, 9, true), time.Duration(0)
		if name == "reserved" { // its optimum is not on the grid
			late = time.Second
		}
		if got, ok := Optimum(w); !ok || want < got || want > got+late {
			t.Errorf("%s: optimum %v, %v; an exhaustive search finds %v", name, got, ok, want)
		}
	}
}

func TestOptimumOfUnequalItems(t *testing.T) {
	for seed := range uint64(5) {
		w := &World{Seed: seed, Lanes: 1, Load: Load{Items: 4, Input: 300, Max: 200, Spread: 0.7}, Serve: Serve{Latency: 1},
			Lane: []Limit{{Dim: TPM, N: 12000, Burst: 4}, {Dim: RPM, N: 120, Burst: 1}}}
		got, _ := Optimum(w)
		inOrder, anyOrder := exhaustive(w, time.Second/4, 18, false), exhaustive(w, time.Second/4, 18, true)
		if inOrder < got || inOrder > got+time.Second/4 {
			t.Errorf("seed %d: optimum %v; in the order of the queue an exhaustive search finds %v", seed, got, inOrder)
		}
		if got > anyOrder+anyOrder/10 {
			t.Errorf("seed %d: optimum %v; in any order an exhaustive search finds %v", seed, got, anyOrder)
		}
	}
}

func TestOptimumKeepsAGuarantee(t *testing.T) {
	w := &World{Lanes: 1, Load: Load{Items: 130}, Serve: Serve{Latency: 1, Up: 0.1, Down: 0.1}, Config: Config{Limits: []Limit{{Dim: RPM, N: 60}}}}
	if got, _ := Optimum(w); got != 121200*time.Millisecond {
		t.Errorf("60 a minute: %v, want two minutes and one response", got)
	}
	w.Config.Burst = 10
	if got, _ := Optimum(w); got != 121200*time.Millisecond {
		t.Errorf("60 a minute and 10 at once: %v, want 120 s and one response", got)
	}
}
