package cluster_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// scaleResult is what came of a scenario.
type scaleResult struct {
	Name            string
	Used            float64 // part of the quota
	Jain            float64 // over served/demand of the members
	P50, P99        float64 // milliseconds of wait
	Longest         time.Duration
	CallsPerStart   float64
	EmptyPerStart   float64
	Wakes           int
	Refused         int
	Busy            float64 // part of the engine's time
	Most60, Limit60 int
}

func (w *world) result() scaleResult {
	p := w.provider
	r := scaleResult{Name: w.s.Name, Longest: w.longest, Wakes: w.wakes, Refused: p.refused, Most60: p.most(time.Minute)}
	r.Limit60 = w.s.Limits.RPM + int(p.cap)
	taken := float64(len(p.taken) - p.from)
	r.Used = max(taken/(p.rate*w.s.For.Seconds()),
		taken*(w.s.Latency+2*toProvider+jitter).Seconds()/(float64(w.s.Limits.Concurrency)*w.s.For.Seconds()))
	var sum, squares float64
	n := 0
	for _, m := range w.members {
		want := float64(m.demand.Workers) + m.demand.Rate
		if want == 0 || m.dead || m.demand.Until > 0 {
			continue
		}
		x := float64(m.served) / want
		sum, squares, n = sum+x, squares+x*x, n+1
	}
	r.Jain = sum * sum / (float64(n) * squares)
	r.P50, r.P99 = quantile(w.waits, 0.5), quantile(w.waits, 0.99)
	// A member that got nothing has waited since it began.
	for _, m := range w.members {
		for t, c := range m.calls {
			if !m.dead && !t.Granted() {
				r.Longest = max(r.Longest, w.now.Sub(c.born))
			}
		}
	}
	starts := math.Max(1, float64(w.starts))
	r.CallsPerStart, r.EmptyPerStart = float64(w.exchanges)/starts, float64(w.empty)/starts
	for _, c := range w.cells {
		r.Busy = max(r.Busy, c.busy.Seconds()/w.s.For.Seconds())
	}
	return r
}

func (r scaleResult) String() string {
	return fmt.Sprintf("| %-44s | %.3f | %.3f | %8.1f | %8.1f | %8.1fs | %5.2f | %5.2f | %6d | %4d | %5.1f %% | %d/%d |", r.Name, r.Used, r.Jain,
		r.P50, r.P99, r.Longest.Seconds(), r.CallsPerStart, r.EmptyPerStart, r.Wakes, r.Refused, 100*r.Busy, r.Most60, r.Limit60)
}

func alike(n int, d demand) []demand {
	out := make([]demand, n)
	for i := range out {
		out[i] = d
	}
	return out
}

// zipf divides workers among members, the k-th of which has 1/k of the first.
func zipf(n, workers int) []demand {
	var sum float64
	for k := range n {
		sum += 1 / float64(k+1)
	}
	out := make([]demand, n)
	for k := range out {
		out[k].Workers = max(1, int(math.Round(float64(workers)/float64(k+1)/sum)))
	}
	return out
}

const lan = 300 * time.Microsecond

// TestManyMembersUseOneQuota has small cases of what BenchmarkScale shows.
func TestManyMembersUseOneQuota(t *testing.T) {
	small := limits.Limits{RPM: 50, Concurrency: 5, Burst: time.Second}
	mid := limits.Limits{RPM: 6000, Concurrency: 150, Burst: time.Second}
	far := 80 * time.Millisecond
	for _, s := range []scale{
		{Name: "50 RPM + 5 slots, even", Regions: near(alike(4, demand{Workers: 5})), Limits: small, Told: small, Latency: 3 * time.Second},
		{Name: "50 RPM + 5 slots, 32:1:0:0", Regions: near([]demand{{Workers: 64}, {Workers: 2}, {}, {}}), Limits: small, Told: small, Latency: 3 * time.Second},
		{Name: "100 members, even", Regions: near(alike(100, demand{Workers: 4})), Limits: mid, Told: mid, Latency: 600 * time.Millisecond},
		{Name: "100 members, Zipf", Regions: near(zipf(100, 800)), Limits: mid, Told: mid, Latency: 600 * time.Millisecond},
		{Name: "3 regions", Regions: []region{{lan, alike(3, demand{Workers: 50})}, {far, alike(3, demand{Workers: 50})}, {far, alike(3, demand{Workers: 50})}},
			Limits: mid, Told: mid, Latency: 600 * time.Millisecond},
		{Name: "3 cells", Cells: true, Regions: []region{{lan, alike(3, demand{Workers: 50})}, {far, alike(3, demand{Workers: 50})}, {far, alike(3, demand{Workers: 50})}},
			Limits: mid, Told: mid, Latency: 600 * time.Millisecond},
	} {
		t.Run(s.Name, func(t *testing.T) {
			s.Seed, s.Warm, s.For = 1, 10*time.Second, 20*time.Second
			if s.Limits.RPM < 100 {
				s.For = 5 * time.Minute
			}
			w := newWorld(s)
			w.run()
			r := w.result()
			t.Log(r)
			// 0.99 of a limit is used where no header says more.
			if r.Used < 0.97 || r.Jain < 0.97 || r.Refused > 0 || r.Most60 > r.Limit60 {
				t.Errorf("used %.3f, Jain %.3f, %d refused, at most %d calls in a minute, of %d", r.Used, r.Jain, r.Refused, r.Most60, r.Limit60)
			}
			if r.CallsPerStart > 6 {
				t.Errorf("the ledger was asked %.1f times for each call", r.CallsPerStart)
			}
		})
	}
}
