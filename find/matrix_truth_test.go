package find_test

import (
	"testing"

	"github.com/sluice-llm/sluice"
)

// A table that measures against a truth which is none would be worth nothing.
func TestTruthIsSafeAndNoMoreThanThat(t *testing.T) {
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
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
			refusedBeyond := bound != sluice.AnyDimension && (bound != sluice.Concurrency || r.sim.Concurrent > 0)
			if got := r.unpaced(t, beyond, 1); refusedBeyond != (got.then > mostUnpaced+strays) {
				t.Errorf("%.1f %% of the calls of %d workers are refused", 100*got.then, beyond)
			}
		})
	}
}
