package pool_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/pool"
)

// slots are what the benchmark takes and gives back: of a Member, of the Scheduler alone, and of a semaphore. Each makes what
// one goroutine of a crowd uses.
var slots = map[string]func(b *testing.B, n int) func(id int) func() error{
	"member": func(b *testing.B, n int) func(int) func() error {
		p := newPool(b, n, pool.Config{})
		return func(id int) func() error {
			m := register(b, p, fmt.Sprint("m", id))
			b.Cleanup(func() { m.Close() })
			return func() error {
				held, err := m.Acquire(context.Background(), sluice.Call{})
				if err != nil {
					return err
				}
				return m.Release(held, sluice.Outcome{})
			}
		}
	},
	"member.Do": func(b *testing.B, n int) func(int) func() error {
		p := newPool(b, n, pool.Config{})
		return func(id int) func() error {
			m := register(b, p, fmt.Sprint("m", id))
			b.Cleanup(func() { m.Close() })
			try := func(context.Context, *sluice.Permit) sluice.Outcome { return sluice.Outcome{} }
			return func() error {
				_, err := m.Do(context.Background(), sluice.Call{}, try)
				return err
			}
		}
	},
	"scheduler": func(b *testing.B, n int) func(int) func() error {
		s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: n}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { s.Close() })
		return func(id int) func() error {
			call := sluice.Call{Tenant: fmt.Sprint("m", id)}
			return func() error {
				held, err := s.Acquire(context.Background(), call)
				if err != nil {
					return err
				}
				held.Release(sluice.Outcome{})
				return nil
			}
		}
	},
	"semaphore": func(_ *testing.B, n int) func(int) func() error {
		s := semaphore.NewWeighted(int64(n))
		return func(int) func() error {
			return func() error {
				if err := s.Acquire(context.Background(), 1); err != nil {
					return err
				}
				s.Release(1)
				return nil
			}
		}
	},
}

// BenchmarkSlot is a slot taken and given back: where one is free, and by 256 goroutines that share 8.
func BenchmarkSlot(b *testing.B) {
	for _, name := range []string{"member", "member.Do", "scheduler", "semaphore"} {
		b.Run(name, func(b *testing.B) {
			one := slots[name](b, 64)(0)
			b.ReportAllocs()
			for b.Loop() {
				if err := one(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, name := range []string{"member", "scheduler", "semaphore"} {
		b.Run("crowd/"+name, func(b *testing.B) {
			each := slots[name](b, 8)
			ops := make([]func() error, 256)
			for i := range ops {
				ops[i] = each(i)
			}
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for i, op := range ops {
				wg.Go(func() {
					for range b.N/len(ops) + min(1, max(0, b.N%len(ops)-i)) {
						if err := op(); err != nil {
							b.Error(err)
						}
					}
				})
			}
			wg.Wait()
		})
	}
}

func TestASlotCostsOneAllocation(t *testing.T) {
	p := newPool(t, 8, pool.Config{})
	m := register(t, p, "m")
	defer m.Close()
	if n := testing.AllocsPerRun(1000, func() {
		held, err := m.Acquire(t.Context(), sluice.Call{})
		if err != nil {
			t.Fatal(err)
		}
		held.Sent()
		if err := m.Release(held, sluice.Outcome{}); err != nil {
			t.Fatal(err)
		}
	}); n > 1 {
		t.Errorf("%v allocations", n)
	}
}
