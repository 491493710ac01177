//go:build bugs

package sluice_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
)

// Each of these is red for a defect that stands at the time of writing. It loses its build tag with the fix.

func TestAnObserverHearsNothingAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var closed atomic.Bool
		var late atomic.Int32
		s, err := sluice.New(sluice.Config{Observer: sluice.ObserverFunc(func(e sluice.Event) {
			if e.Call == "slow" && e.Type == sluice.EventReleased {
				time.Sleep(time.Second)
			}
			if closed.Load() {
				late.Add(1)
			}
		})})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		p := acquire(t, s, sluice.Call{ID: "slow"})
		wg.Go(func() { p.Release(ok) })
		synctest.Wait()
		acquire(t, s, sluice.Call{ID: "quick"}).Release(ok)
		s.Close()
		closed.Store(true)
		wg.Wait()
		if n := late.Load(); n > 0 {
			t.Errorf("%d events are told after Close: whoever closes its events file then loses them", n)
		}
	})
}
