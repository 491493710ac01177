package pool_test

import (
	"context"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/pool"
)

// BenchmarkSlot takes a slot and gives it back: by a Member, by the Scheduler alone, and with a semaphore.
func BenchmarkSlot(b *testing.B) {
	ctx := context.Background()
	b.Run("member", func(b *testing.B) {
		m := register(b, newPool(b, 64, pool.Config{}), "m")
		defer m.Close()
		b.ReportAllocs()
		for b.Loop() {
			p, err := m.Acquire(ctx, sluice.Call{})
			if err != nil {
				b.Fatal(err)
			}
			if err := m.Release(p, sluice.Outcome{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("scheduler", func(b *testing.B) {
		s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrent: 64}})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		b.ReportAllocs()
		for b.Loop() {
			p, err := s.Acquire(ctx, sluice.Call{})
			if err != nil {
				b.Fatal(err)
			}
			p.Release(sluice.Outcome{})
		}
	})
	b.Run("semaphore", func(b *testing.B) {
		s := semaphore.NewWeighted(64)
		b.ReportAllocs()
		for b.Loop() {
			if err := s.Acquire(ctx, 1); err != nil {
				b.Fatal(err)
			}
			s.Release(1)
		}
	})
}
