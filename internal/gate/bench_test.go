package gate_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/gate"
)

// BenchmarkGate admits and releases a call by the gate alone: no lock, no clock, no channel.
func BenchmarkGate(b *testing.B) {
	limits := gate.Limits{RPM: 1e12, ITPM: 1e15, OTPM: 1e15, Concurrent: 64, Burst: time.Minute}
	for _, bb := range []struct {
		name    string
		cfg     gate.Config
		waiting int // calls that wait all the while
	}{
		{"plain", gate.Config{Limits: gate.Limits{Concurrent: 64}}, 0},
		{"three budgets", gate.Config{Limits: limits}, 0},
		{"three budgets, observed", gate.Config{Limits: limits, Observed: true}, 0},
		{"three budgets, 256 waiting", gate.Config{Limits: limits}, 256},
	} {
		b.Run(bb.name, func(b *testing.B) {
			b.ReportAllocs()
			bb.cfg.Attempts = 6
			g := gate.New(bb.cfg)
			now := epoch0
			tenants := [8]string{"a", "b", "c", "d", "e", "f", "g", "h"}
			var held []*gate.Ticket
			ask := func(i int) {
				g.Acquire(now, &gate.Ticket{Call: gate.Call{Tenant: tenants[i%8], Cost: gate.Cost{Input: 100, MaxOutput: 100}}})
				held = append(held, g.Granted()...)
			}
			if bb.waiting > 0 {
				for i := range 64 + bb.waiting {
					ask(i)
				}
			}
			o := gate.Outcome{}
			i := 0
			for b.Loop() {
				now = now.Add(time.Microsecond)
				ask(i)
				i++
				g.Release(now, held[0], &o)
				held = append(held[1:], g.Granted()...)
				g.Events(nil)
			}
		})
	}
}
