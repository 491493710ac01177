package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

func TestACallThatWaitsSaysWhatHoldsItBack(t *testing.T) {
	for name, c := range map[string]struct {
		limits gate.Limits
		want   gate.Dimension
	}{
		"slots":    {gate.Limits{Concurrent: 1}, gate.Concurrency},
		"requests": {gate.Limits{RPM: 60, Burst: time.Second, Concurrent: 10}, gate.Requests},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, gate.Config{Limits: c.limits})
			open := r.fill(gate.Call{}) // as many as are let out, and one that waits and gives up
			r.queue(gate.Call{})
			r.sleep(300 * time.Millisecond)
			for _, ticket := range open {
				r.release(ticket, gate.Outcome{})
			}
			r.sleep(5 * time.Second)
			var waiting, acquired, atOnce int
			for _, e := range r.events {
				switch {
				case e.Type == gate.EventSlotWaiting && e.Dimension == c.want:
					waiting++
				case e.Type == gate.EventSlotAcquired && e.Wait > 0 && e.Dimension == c.want:
					acquired++
				case e.Type == gate.EventSlotAcquired && e.Wait == 0 && e.Dimension == gate.AnyDimension:
					atOnce++
				case e.Type == gate.EventSlotWaiting || e.Type == gate.EventSlotAcquired:
					t.Errorf("%s after %v of waiting says %q", e.Type, e.Wait, e.Dimension)
				}
			}
			if waiting != 2 || acquired != 1 || atOnce == 0 {
				t.Errorf("%d wait, %d were let out after it, %d at once", waiting, acquired, atOnce)
			}
		})
	}
}
