package find_test

import (
	"cmp"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// A table that measures against a truth which is none would be worth nothing.
func TestTruthIsSafeAndNoMoreThanThat(t *testing.T) {
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			r.inSuite(t)
			exact, bound, _ := r.truth()
			strays := r.sim.Faults.Throttled
			most := refusals{}
			for seed := range uint64(3) {
				safe := r.unpaced(t, r.whole(), seed)
				most.then = max(most.then, safe.then)
			}
			if most.then > mostUnpaced+strays && !r.unsafe || most.then <= mostUnpaced && r.unsafe {
				t.Errorf("%.1f %% of the calls of %d workers are refused; unsafe: %v", 100*most.then, r.whole(), r.unsafe)
			}
			beyond := int(1.25*exact) + 1
			refusedBeyond := bound != limits.AnyDimension && (bound != limits.Concurrency || r.sim.Concurrency > 0)
			if got := r.unpaced(t, beyond, 1); refusedBeyond != (got.then > mostUnpaced+strays) {
				t.Errorf("%.1f %% of the calls of %d workers are refused", 100*got.then, beyond)
			}
		})
	}
}

// Workers in virtual time by arithmetic alone are many times as fast as real ones in a bubble, and must fare the same.
func TestUnpacedWorkersFareAsWithAServer(t *testing.T) {
	for _, r := range rows() {
		if !chosen(r.name, "cap 5,burst 10 s,window,tpm 60k,headers: rpm 500,anthropic,stray") {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			r.inSuite(t)
			t.Parallel()
			workers := r.whole()
			var got tally
			synctest.Test(t, func(t *testing.T) { got = r.unpacedAtAServer(t, workers) })
			want := r.unpaced(t, workers, 1).all
			if math.Abs(got.share()-want) > max(0.02, 0.15*want) {
				t.Errorf("%.1f %% of the calls of %d workers are refused, and of a Limiter %.1f %%", 100*got.share(), workers, 100*want)
			}
		})
	}
}

// unpacedAtAServer is unpaced with real workers. It runs in a bubble.
func (r row) unpacedAtAServer(t *testing.T, workers int) tally {
	server, err := sim.New(r.later(1))
	if err != nil {
		t.Fatal(err)
	}
	p, target := r.provider()
	target.Endpoint = p.PromptEndpoint(target.Model)
	begun := time.Now()
	var serial atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for time.Since(begun) < lasting {
				req, err := p.NewRequest(t.Context(), target, realBody(target.Model, serial.Add(1)))
				if err != nil {
					t.Error(err)
					return
				}
				answer, o := provider.Exchange(t.Context(), server.Transport(), nil, req,
					provider.ExchangeConfig{Provider: p, Endpoint: target.Endpoint})
				if o.Kind == sluice.RateLimit {
					seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After")) // none is none
					time.Sleep(cmp.Or(time.Duration(seconds)*time.Second, time.Second))
				}
			}
		})
	}
	wg.Wait()
	return counted(server)
}
