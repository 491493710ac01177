package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

func TestACallThatWaitsSaysWhatHoldsItBack(t *testing.T) {
	for name, c := range map[string]struct {
		told limits.Limits
		want limits.Dimension
	}{
		"slots":    {limits.Limits{Concurrency: 1}, limits.Concurrency},
		"requests": {limits.Limits{RPM: 60, Burst: time.Second, Concurrency: 10}, limits.Requests},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: c.told})
			open := r.fill(limits.Call{}) // as many as are let out, and one that waits and gives up
			r.queue(limits.Call{})
			r.sleep(300 * time.Millisecond)
			for _, ticket := range open {
				r.release(ticket, limits.Outcome{})
			}
			r.sleep(5 * time.Second)
			var waiting, acquired, atOnce int
			for _, e := range r.events {
				switch {
				case e.Type == limits.EventSlotWaiting && e.Dimension == c.want:
					waiting++
				case e.Type == limits.EventSlotAcquired && e.Wait > 0 && e.Dimension == c.want:
					acquired++
				case e.Type == limits.EventSlotAcquired && e.Wait == 0 && e.Dimension == limits.AnyDimension:
					atOnce++
				case e.Type == limits.EventSlotWaiting || e.Type == limits.EventSlotAcquired:
					t.Errorf("%s after %v of waiting says %q", e.Type, e.Wait, e.Dimension)
				}
			}
			if waiting != 2 || acquired != 1 || atOnce == 0 {
				t.Errorf("%d wait, %d were let out after it, %d at once", waiting, acquired, atOnce)
			}
		})
	}
}
