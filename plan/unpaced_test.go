package plan_test

import (
	"container/heap"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/plan"
)

// instants are when workers are free, in seconds.
type instants []float64

func (h instants) Len() int           { return len(h) }
func (h instants) Less(i, j int) bool { return h[i] < h[j] }
func (h instants) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *instants) Push(x any)        { *h = append(*h, x.(float64)) }
func (h *instants) Pop() any          { last := len(*h) - 1; x := (*h)[last]; *h = (*h)[:last]; return x }

// refused imitates workers that call again as soon as they are answered, each call taking latency × a lognormal factor,
// and counts the calls that a bucket of one minute, per limit, or any 60 seconds would not have let through.
func refused(p plan.Plan, workers, calls int, sigma float64) (bucket, window int) {
	rng := rand.New(rand.NewPCG(1, 2))
	free := make(instants, workers)
	last, level := 0.0, make([]float64, len(p.Bounds))
	for i, b := range p.Bounds {
		level[i] = float64(b.Limit)
	}
	var sent []float64
	from := 0
	for range calls {
		now := heap.Pop(&free).(float64)
		fits, fitsWindow := true, true
		for sent = append(sent, now); sent[from] <= now-60; from++ {
		}
		for i, b := range p.Bounds {
			if b.Dimension == limits.Concurrency {
				continue
			}
			level[i] = min(float64(b.Limit), level[i]+(now-last)*float64(b.Limit)/60) - b.Charged
			fits = fits && level[i] >= -1e-6
			fitsWindow = fitsWindow && float64(len(sent)-from)*b.Charged <= float64(b.Limit)+1e-6
		}
		if !fits {
			bucket++
			for i, b := range p.Bounds {
				level[i] += b.Charged
			}
		}
		if !fitsWindow {
			window++
		}
		last = now
		heap.Push(&free, now+p.Workload.Latency.Seconds()*math.Exp(sigma*rng.NormFloat64()-sigma*sigma/2))
	}
	return bucket, window
}

func TestSafeWorkersAreRefusedNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		limits sluice.Limits
		w      plan.Workload
	}{
		{"requests", sluice.Limits{RPM: 600}, shortCalls(0)},
		{"tokens", sluice.Limits{RPM: 600, TPM: 400_000}, shortCalls(0)},
		{"a cap above them", sluice.Limits{RPM: 600, TPM: 400_000, Concurrency: 100}, shortCalls(0)},
		{"input and output", sluice.Limits{ITPM: 900_000, OTPM: 250_000}, shortCalls(0)},
		{"few long calls", sluice.Limits{RPM: 30}, plan.Workload{Latency: 40 * time.Second, InputTokens: 1, OutputTokens: 1}},
		{"calls longer than a minute", sluice.Limits{RPM: 30}, plan.Workload{Latency: 90 * time.Second, InputTokens: 1, OutputTokens: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := compute(t, c.limits, c.w, plan.Options{Charge: limits.ChargeActual})
			if !p.WorkersSafe {
				t.Fatal("no number of workers is safe")
			}
			if bucket, _ := refused(p, p.Workers, 5000, 0.4); bucket > 0 {
				t.Errorf("%d workers: a bucket refuses %d calls", p.Workers, bucket)
			}
			if _, window := refused(p, p.Workers, 5000, 0); window > 0 {
				t.Errorf("%d workers: %d calls are too many for their minute", p.Workers, window)
			}
			if bucket, _ := refused(p, 2*p.Workers+2, 5000, 0.4); bucket == 0 {
				t.Errorf("twice %d workers are refused nothing: the imitation refuses nobody", p.Workers)
			}
		})
	}
}

func TestTheModelsWorkersAreRefusedWherePlanSaysSo(t *testing.T) {
	for name, r := range rows() {
		w := plan.Workload{Latency: r.latency, InputTokens: 1500, OutputTokens: 500}
		p := compute(t, r.limits, w, plan.Options{Charge: limits.ChargeActual})
		if len(p.CapModel.Breaks) == 0 || p.WorkersSafe {
			t.Errorf("%s: %+v, workers safe: %v", name, p.CapModel, p.WorkersSafe)
		}
		if bucket, _ := refused(p, p.CapModel.ParallelCalls, 2000, 0.3); bucket < 100 {
			t.Errorf("%s: %d of 2000 calls are refused", name, bucket)
		}
		if bucket, _ := refused(p, 1, 2000, 0.3); bucket == 0 {
			t.Errorf("%s: one worker is refused nothing, although no number is safe", name)
		}
	}
}
