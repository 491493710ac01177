package find_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/sim"
)

// A search that is cancelled, at whatever instant, ends at once and alone: the bubble finds what goes on after it. It claims
// no more than what was proven, and tells of nothing any more.
func TestSearchThatIsCancelledEndsAtOnce(t *testing.T) {
	for seed := range suite.Size[uint64](4, 20) {
		rng := rand.New(rand.NewPCG(seed, 5))
		synctest.Test(t, func(t *testing.T) {
			w := drawWild(seed + 1)
			server, err := sim.New(w.sim)
			if err != nil {
				t.Fatal(err)
			}
			cfg := over(server.Transport())
			cfg.Prompt, cfg.Seed = w.search.Prompt, seed+1
			var telling, ended atomic.Bool
			tells := func() {
				if ended.Load() || !telling.CompareAndSwap(false, true) {
					t.Error("told twice at the same time, or after the end")
				}
				runtime.Gosched()
				telling.Store(false)
			}
			cfg.Progress = func(find.Progress) { tells() }
			at := time.Duration(rng.Float64() * rng.Float64() * float64(4*time.Minute))
			ctx, cancel := context.WithTimeout(t.Context(), at)
			defer cancel()
			began := time.Now()
			r, err := find.Auto(ctx, cfg)
			ended.Store(true)
			if late := time.Since(began) - at; late > 100*time.Millisecond {
				t.Errorf("seed %d: ended %v after it was cancelled", seed, late)
			}
			proven := 1
			if r.Soak.Requests > 0 && r.Soak.Rejected == 0 {
				proven = max(1, r.Soak.Workers)
			}
			if errors.Is(err, context.DeadlineExceeded) && (r.Workers > proven || r.Bound != find.BoundStopped) {
				t.Errorf("seed %d, after %v: %d workers by %s, soak %+v", seed, at, r.Workers, r.Bound, r.Soak)
			}
		})
	}
}
