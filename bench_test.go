package sluice_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/sluice-llm/sluice"
)

// shape is how many goroutines contend for how many slots.
type shape struct{ goroutines, slots int }

var shapes = []shape{{1, 64}, {2, 64}, {256, 512}, {256, 8}}

// hold lets others run while a permit is held, where slots are short: else two cores never fill eight slots.
func (s shape) hold() {
	if s.slots < s.goroutines {
		runtime.Gosched()
	}
}

func (s shape) String() string {
	return fmt.Sprintf("%d goroutines on %d slots", s.goroutines, s.slots)
}

// run shares b.N turns among the shape's goroutines. Where slots are short it reports how evenly turns are waited for.
func (s shape) run(b *testing.B, turn func(g int)) {
	b.ReportAllocs()
	waits := make([][]time.Duration, s.goroutines)
	tight := s.slots < s.goroutines
	b.ResetTimer()
	var wg sync.WaitGroup
	for g := range s.goroutines {
		n := b.N / s.goroutines
		if g < b.N%s.goroutines {
			n++
		}
		if tight {
			waits[g] = make([]time.Duration, 0, n)
		}
		wg.Go(func() {
			for range n {
				if !tight {
					turn(g)
					continue
				}
				start := time.Now()
				turn(g)
				waits[g] = append(waits[g], time.Since(start))
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	if all := slices.Concat(waits...); len(all) > 10_000 {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)*99/100])/float64(max(1, all[len(all)/2])), "p99/p50")
	}
}

func BenchmarkScheduler(b *testing.B) {
	for _, sh := range shapes {
		b.Run(sh.String(), func(b *testing.B) {
			s, err := sluice.New(sluice.Config{
				Limits:   sluice.Limits{RPM: 1e12, ITPM: 1e15, OTPM: 1e15, Concurrency: sh.slots, Burst: time.Minute},
				Observer: sluice.ObserverFunc(func(sluice.Event) {}),
			})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			tenants := make([]string, 8)
			for i := range tenants {
				tenants[i] = strconv.Itoa(i)
			}
			ctx := context.Background()
			sh.run(b, func(g int) {
				p, err := s.Acquire(ctx, sluice.Call{Tenant: tenants[g%8], Cost: sluice.Cost{Input: 100, MaxOutput: 100}})
				if err != nil {
					b.Error(err)
					return
				}
				sh.hold()
				p.Release(sluice.Outcome{})
			})
		})
	}
}

// BenchmarkSchedulerPlain has neither Observer nor tenants nor budgets: what a semaphore does.
func BenchmarkSchedulerPlain(b *testing.B) {
	for _, sh := range shapes {
		b.Run(sh.String(), func(b *testing.B) {
			s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: sh.slots}})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			ctx := context.Background()
			sh.run(b, func(int) {
				p, err := s.Acquire(ctx, sluice.Call{})
				if err != nil {
					b.Error(err)
					return
				}
				sh.hold()
				p.Release(sluice.Outcome{})
			})
		})
	}
}

func BenchmarkSemaphore(b *testing.B) {
	for _, sh := range shapes {
		b.Run(sh.String(), func(b *testing.B) {
			s := semaphore.NewWeighted(int64(sh.slots))
			ctx := context.Background()
			sh.run(b, func(int) {
				if err := s.Acquire(ctx, 1); err != nil {
					b.Error(err)
					return
				}
				sh.hold()
				s.Release(1)
			})
		})
	}
}

// BenchmarkWait measures how evenly 256 callers wait for 8 slots that each holds for a millisecond.
func BenchmarkWait(b *testing.B) {
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 8}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	sem := semaphore.NewWeighted(8)
	ctx := context.Background()
	for _, bb := range []struct {
		name string
		turn func() time.Duration // and how long it waited
	}{
		{"scheduler", func() time.Duration {
			start := time.Now()
			p, err := s.Acquire(ctx, sluice.Call{})
			if err != nil {
				b.Error(err)
				return 0
			}
			waited := time.Since(start)
			time.Sleep(time.Millisecond)
			p.Release(sluice.Outcome{})
			return waited
		}},
		{"semaphore", func() time.Duration {
			start := time.Now()
			if err := sem.Acquire(ctx, 1); err != nil {
				b.Error(err)
				return 0
			}
			waited := time.Since(start)
			time.Sleep(time.Millisecond)
			sem.Release(1)
			return waited
		}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			const callers, turns = 256, 20
			for b.Loop() {
				waits := make([][]time.Duration, callers)
				var wg sync.WaitGroup
				for g := range callers {
					wg.Go(func() {
						for range turns {
							waits[g] = append(waits[g], bb.turn())
						}
					})
				}
				wg.Wait()
				var settled []time.Duration // the first turn's wait is the place in the first queue
				for _, w := range waits {
					settled = append(settled, w[1:]...)
				}
				slices.Sort(settled)
				b.ReportMetric(float64(settled[len(settled)*99/100])/float64(settled[len(settled)/2]), "p99/p50")
			}
		})
	}
}
