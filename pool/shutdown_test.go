package pool_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/pool"
)

func TestShutdownDrainsAndIsSafeToCallTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{MaxActive: 2})
		byHand := register(t, p, "by hand")
		var wg sync.WaitGroup
		run := func(id string, work time.Duration, want error) {
			wg.Go(func() {
				if err := p.Run(t.Context(), id, pool.MemberConfig{}, sleeper(work)); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", id, err, want)
				}
			})
		}
		run("short", 10*time.Second, nil)
		run("long", time.Hour, pool.ErrQueueStopped)
		synctest.Wait()
		run("waits", 0, pool.ErrQueueStopped)
		synctest.Wait()
		start := time.Now()
		for range 3 {
			wg.Go(func() {
				if err := p.Shutdown(t.Context()); err != nil || time.Since(start) != 30*time.Second {
					t.Errorf("shutdown: %v after %v", err, time.Since(start))
				}
			})
		}
		synctest.Wait()
		run("comes late", 0, pool.ErrQueueStopped)
		if _, err := p.Register("late", pool.MemberConfig{}); err != pool.ErrQueueStopped {
			t.Errorf("registered after the shutdown: %v", err)
		}
		wg.Wait()
		if err := p.Shutdown(t.Context()); err != nil {
			t.Errorf("again: %v", err)
		}
		call(t, byHand, sluice.Call{}, 0)
		byHand.Close()
	})
}

func TestShutdownCancelsWhenItsOwnContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{})
		done := make(chan error)
		go func() { done <- p.Run(t.Context(), "m", pool.MemberConfig{}, sleeper(time.Hour)) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		go func() { done <- p.Shutdown(ctx) }()
		if err := errors.Join(<-done, <-done); !errors.Is(err, pool.ErrQueueStopped) {
			t.Error(err)
		}
	})
}

func TestShutdownNamesWhoDoesNotEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{DrainTimeout: -1})
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for _, id := range []string{"b", "a"} {
			wg.Go(func() {
				p.Run(t.Context(), id, pool.MemberConfig{}, func(context.Context, *pool.Member) error {
					<-stop // whatever its context says
					return nil
				})
			})
		}
		synctest.Wait()
		start := time.Now()
		err := p.Shutdown(t.Context())
		if e, ok := errors.AsType[*pool.ShutdownError](err); !ok || !slices.Equal(e.Members, []string{"a", "b"}) || time.Since(start) != 5*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		close(stop)
		wg.Wait()
		if err := p.Shutdown(t.Context()); err != nil {
			t.Errorf("once they ended: %v", err)
		}
	})
}

// Run and Shutdown at once, by real goroutines: each member either works to its end, or is told.
func TestShutdownRacingRun(t *testing.T) {
	for range suite.Size(60, 300) {
		p := newPool(t, 1, pool.Config{MaxActive: 2, DrainTimeout: -1})
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				err := p.Run(t.Context(), fmt.Sprint(i), pool.MemberConfig{}, func(ctx context.Context, _ *pool.Member) error {
					if i%2 == 0 {
						<-ctx.Done() // which only the shutdown ends
						return context.Cause(ctx)
					}
					return nil
				})
				if err != nil && !errors.Is(err, pool.ErrQueueStopped) {
					t.Error(err)
				}
			})
		}
		for range 2 {
			wg.Go(func() {
				if err := p.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
	}
}
