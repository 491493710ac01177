package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// TestAConfiguredLimitHoldsOverARestart sends the limit of a period, stops or is killed, and starts again.
func TestAConfiguredLimitHoldsOverARestart(t *testing.T) {
	for name, killed := range map[string]bool{"stopped": false, "killed": true} {
		for _, told := range []limits.Limits{{RPM: 60}, {RPM: 60, Burst: 30 * time.Second}, {Requests: limits.Window{N: 20, Period: 10 * time.Second}},
			{Requests: limits.Window{N: 3, Period: 2 * time.Second}}, {Requests: limits.Window{N: 60, Period: 2 * time.Minute}}} {
			r := newRig(t, gate.Config{Limits: told})
			r.sleep(10 * time.Second)
			var sent []time.Time
			send := func(for_ time.Duration) {
				for end := r.now.Add(for_); r.now.Before(end); r.sleep(20 * time.Millisecond) {
					if w := r.queue(limits.Call{}); w.Granted() {
						sent = append(sent, r.now)
						r.release(w, limits.Outcome{})
					} else {
						r.cancel(w)
					}
				}
			}
			send(4 * time.Second)
			m, _ := r.g.Memory(r.now, "")
			if killed {
				send(4 * time.Second)
			} else {
				m.Close()
			}
			next := newRig(t, gate.Config{Limits: told})
			next.now = r.now.Add(time.Second)
			next.g.Recall(next.now, m)
			r = next
			send(2 * time.Minute)
			for i, first := range sent {
				window := 0
				for _, at := range sent[i:] {
					if at.Sub(first) < told.In(limits.Requests).Period {
						window++
					}
				}
				if most := told.In(limits.Requests).N + int(told.Burst.Seconds()); window > most {
					t.Fatalf("%s, %+v: %d requests in a period", name, told, window)
				}
			}
			if len(sent) < told.PerMinute().RPM*11/6 {
				t.Errorf("%s, %+v: %d requests in over two minutes", name, told, len(sent))
			}
		}
	}
}
