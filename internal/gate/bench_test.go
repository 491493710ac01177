package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
	"github.com/sluice-llm/sluice/limits"
)

// BenchmarkGate admits and releases a call by the gate alone: no lock, no clock, no channel.
func BenchmarkGate(b *testing.B) {
	told := limits.Limits{RPM: 1e12, ITPM: 1e15, OTPM: 1e15, Concurrency: 64, Burst: time.Minute}
	for _, bb := range []struct {
		name    string
		cfg     gate.Config
		waiting int // calls that wait all the while
	}{
		{"plain", gate.Config{Limits: limits.Limits{Concurrency: 64}}, 0},
		{"three budgets", gate.Config{Limits: told}, 0},
		{"three budgets, observed", gate.Config{Limits: told, Observed: true}, 0},
		{"three budgets, 256 waiting", gate.Config{Limits: told}, 256},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			bb.cfg.Attempts = 6
			g := gate.New(bb.cfg)
			now := epoch0
			tenants := [8]string{"a", "b", "c", "d", "e", "f", "g", "h"}
			var held, free []*gate.Ticket // held is the oldest first
			var events []limits.Event
			ask := func(i int) {
				var t *gate.Ticket
				if n := len(free); n > 0 { // as the Scheduler does
					t, free = free[n-1], free[:n-1]
				} else {
					t = new(gate.Ticket)
				}
				*t = gate.Ticket{Call: limits.Call{Tenant: tenants[i%8], Cost: limits.Cost{Input: 100, MaxOutput: 100}}}
				g.Acquire(now, t)
				held = append(held, g.Granted()...)
			}
			for i := range 64 + bb.waiting {
				if bb.waiting > 0 {
					ask(i)
				}
			}
			o := limits.Outcome{}
			i := 0
			for b.Loop() {
				now = now.Add(time.Microsecond)
				ask(i)
				i++
				oldest := held[0]
				held = held[:copy(held, held[1:])]
				g.Release(now, oldest, &o)
				free = append(free, oldest)
				held = append(held, g.Granted()...)
				events = g.Events(events[:0])
			}
		})
	}
}
