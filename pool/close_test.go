package pool_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
)

// Close, a release, a second release and the sending of the call at once, by real goroutines: one release takes effect, the
// call counts once if it left, and nothing is kept of it that would count against a limit.
func TestCloseRacingRelease(t *testing.T) {
	rounds := suite.Size(2_000, 20_000)
	most := int64(rounds) + 1
	p := newPool(t, 2, pool.Config{Limits: limits.ResourceLimits{LLMCalls: &most}})
	var sent int64
	for i := range rounds {
		m := register(t, p, fmt.Sprint(i))
		held, err := m.Acquire(t.Context(), sluice.Call{})
		if err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
		var wg sync.WaitGroup
		var errs [2]error
		for k := range errs {
			wg.Go(func() { errs[k] = m.Release(held, sluice.Outcome{Unsent: i%2 == 0}) })
		}
		wg.Go(func() { m.Close() })
		if i%3 == 0 {
			wg.Go(held.Sent)
		}
		wg.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || !errors.Is(errors.Join(errs[:]...), pool.ErrNotHeld) {
			t.Fatalf("round %d: %v", i, errs)
		}
		if n := m.State().Calls; n > 1 || n < int64(i%2) {
			t.Fatalf("round %d: %d calls", i, n)
		}
		sent += m.State().Calls
	}
	if n := p.Metrics(); n.Calls != sent || n.Active != 0 || n.Orphans != 0 || n.Completed != int64(rounds) {
		t.Errorf("%d were sent: %+v", sent, n)
	}
	last := register(t, p, "last")
	for ; sent < most; sent++ {
		held, err := last.Acquire(t.Context(), sluice.Call{})
		if err != nil {
			t.Fatalf("at %d of %d calls: %v", sent, most, err)
		}
		last.Release(held, sluice.Outcome{})
	}
	if _, err := last.Acquire(t.Context(), sluice.Call{}); !errors.Is(err, pool.ErrLimitExceeded) {
		t.Error(err)
	}
	last.Close()
}
