package pool_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
)

// sleeper is the work of a member that takes so long, or until its context ends.
func sleeper(d time.Duration) func(context.Context, *pool.Member) error {
	return func(ctx context.Context, _ *pool.Member) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func TestAHundredAndFiftyRequestsAtTenAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 5, pool.Config{MaxActive: 10, MaxQueue: 200, MaxQueuePriority: 200})
		var open, most, done atomic.Int32
		var wg sync.WaitGroup
		for i := range 150 {
			wg.Go(func() {
				cfg := pool.MemberConfig{Priority: limits.Priority(i%4) - 1}
				err := p.Run(t.Context(), fmt.Sprint("m", i), cfg, func(ctx context.Context, m *pool.Member) error {
					n := open.Add(1)
					defer open.Add(-1)
					if n > most.Load() {
						most.Store(n)
					}
					call(t, m, sluice.Call{}, time.Second)
					done.Add(1)
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		if m := p.Metrics(); m.Running != 10 || m.Queued != 140 || m.Members != 10 {
			t.Errorf("at first: %+v", m)
		}
		wg.Wait()
		if m := p.Metrics(); most.Load() != 10 || done.Load() != 150 || m.Completed != 150 || m.Calls != 150 {
			t.Errorf("%d at once, %d done, %+v", most.Load(), done.Load(), m)
		}
	})
}

// fill has members at work and in the queue until stop is closed, and returns once they are there.
func fill(t *testing.T, p *pool.Pool, stop <-chan struct{}, priorities map[limits.Priority]int) (wait func()) {
	t.Helper()
	var wg sync.WaitGroup
	for priority, n := range priorities {
		for i := range n {
			wg.Go(func() {
				p.Run(t.Context(), fmt.Sprintf("%d-%d", priority, i), pool.MemberConfig{Priority: priority}, func(context.Context, *pool.Member) error {
					<-stop
					return nil
				})
			})
		}
	}
	synctest.Wait()
	return wg.Wait
}

func TestTheQueueRefusesByPriority(t *testing.T) {
	for _, c := range []struct {
		name     string
		queued   map[limits.Priority]int // beside the one at work
		priority limits.Priority
		in       bool
	}{
		{"low at the mark", map[limits.Priority]int{limits.Normal: 30, limits.High: 30, limits.Critical: 11}, limits.Low, true},
		{"low above it", map[limits.Priority]int{limits.Normal: 30, limits.High: 30, limits.Critical: 12}, limits.Low, false},
		{"normal above it", map[limits.Priority]int{limits.Normal: 20, limits.High: 30, limits.Critical: 29, limits.Low: 1}, limits.Normal, true},
		{"normal at the second", map[limits.Priority]int{limits.Normal: 26, limits.High: 30, limits.Critical: 31, limits.Low: 4}, limits.Normal, true},
		{"high above it", map[limits.Priority]int{limits.Normal: 27, limits.High: 29, limits.Critical: 31, limits.Low: 5}, limits.High, false},
		{"critical above it", map[limits.Priority]int{limits.Normal: 28, limits.High: 30, limits.Critical: 26, limits.Low: 8}, limits.Critical, true},
		{"thirty of a priority", map[limits.Priority]int{limits.Critical: 1, limits.Normal: 30}, limits.Normal, false},
		{"thirty of another", map[limits.Priority]int{limits.Critical: 1, limits.Normal: 30}, limits.High, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPool(t, 1, pool.Config{MaxActive: 1})
				stop := make(chan struct{})
				first := fill(t, p, stop, map[limits.Priority]int{limits.Critical: 1})
				for _, priority := range []limits.Priority{limits.Low, limits.Normal, limits.High, limits.Critical} {
					if n := c.queued[priority]; n > 0 {
						ids := n
						if priority == limits.Critical {
							ids-- // the one at work
						}
						for i := range ids {
							go p.Run(t.Context(), fmt.Sprintf("w%d-%d", priority, i), pool.MemberConfig{Priority: priority}, sleeper(0))
						}
						synctest.Wait()
					}
				}
				queued := p.Metrics().Queued
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				defer cancel()
				err := p.Run(ctx, "last", pool.MemberConfig{Priority: c.priority}, sleeper(0))
				if in := !errors.Is(err, pool.ErrQueueFull); in != c.in {
					t.Errorf("behind %d: %v", queued, err)
				}
				if e, ok := errors.AsType[*pool.QueueFullError](err); ok && (e.Member != "last" || e.Queued != queued || e.Priority != c.priority) {
					t.Errorf("%+v", e)
				}
				close(stop)
				first()
				synctest.Wait()
			})
		})
	}
}

func TestAFullQueueSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{MaxActive: 1, MaxQueue: 3})
		stop := make(chan struct{})
		wait := fill(t, p, stop, map[limits.Priority]int{limits.Critical: 4})
		err := p.Run(t.Context(), "last", pool.MemberConfig{Priority: limits.Critical}, sleeper(0))
		if !errors.Is(err, pool.ErrQueueFull) || !strings.Contains(err.Error(), `member "last": the queue is full for its priority: 3 members wait, and the maximum is 3`) {
			t.Error(err)
		}
		close(stop)
		wait()
		if err := p.Run(t.Context(), "last", pool.MemberConfig{}, sleeper(0)); err != nil {
			t.Errorf("its id is not free again: %v", err)
		}
	})
}

func TestAWaitForAPlaceEndsAndSaysWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{MaxActive: 1})
		stop := make(chan struct{})
		wait := fill(t, p, stop, map[limits.Priority]int{limits.Normal: 2})
		go p.Run(t.Context(), "urgent", pool.MemberConfig{Priority: limits.High}, sleeper(0))
		time.Sleep(time.Second)
		start := time.Now()
		err := p.Run(t.Context(), "late", pool.MemberConfig{}, sleeper(0))
		e, ok := errors.AsType[*pool.QueueTimeoutError](err)
		if !ok || !errors.Is(err, pool.ErrQueueTimeout) || e.Member != "late" || e.Wait != 5*time.Minute || time.Since(start) != e.Wait {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if errors.Is(err, context.DeadlineExceeded) {
			t.Error("it passes for the caller's own deadline")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Run(ctx, "late", pool.MemberConfig{}, sleeper(0)); err != context.DeadlineExceeded {
			t.Errorf("the caller's deadline: %v", err)
		}
		if m := p.Metrics(); m.Queued != 0 {
			t.Errorf("left in the queue: %+v", m)
		}
		close(stop)
		wait()
	})
}

func TestAPlaceThatComesWithACancelIsLeftToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{MaxActive: 1})
		for i := range 300 {
			stop := make(chan struct{})
			wait := fill(t, p, stop, map[limits.Priority]int{limits.Normal: 1})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error)
			go func() {
				done <- p.Run(ctx, "m", pool.MemberConfig{}, func(context.Context, *pool.Member) error {
					if i%2 == 0 {
						t.Error("it is at work, cancelled")
					}
					return nil
				})
			}()
			synctest.Wait()
			if i%2 == 0 {
				cancel()
				close(stop)
			} else {
				close(stop)
				cancel()
			}
			if err := <-done; i%2 == 0 && err != context.Canceled {
				t.Fatal(err)
			}
			wait()
			if m := p.Metrics(); m.Running != 0 || m.Queued != 0 || m.Members != 0 {
				t.Fatalf("left: %+v", m)
			}
		}
	})
}

func TestWhoCancelledBeforeItsPlaceCameIsNotAtWork(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that the waiting one sees both at once
	p := newPool(t, 1, pool.Config{MaxActive: 1})
	for range 100 {
		ctx, cancel := context.WithCancel(t.Context())
		stop, done := make(chan struct{}), make(chan error)
		go func() {
			p.Run(t.Context(), "first", pool.MemberConfig{}, func(context.Context, *pool.Member) error {
				<-stop
				return nil
			})
			cancel()
		}()
		for p.Metrics().Running == 0 {
			runtime.Gosched()
		}
		go func() {
			done <- p.Run(ctx, "second", pool.MemberConfig{}, func(ctx context.Context, _ *pool.Member) error {
				if ctx.Err() != nil {
					t.Error("it is at work, cancelled")
				}
				return ctx.Err()
			})
		}()
		for p.Metrics().Queued == 0 {
			runtime.Gosched()
		}
		runtime.Gosched() // it waits
		close(stop)
		if err := <-done; err != nil && err != context.Canceled {
			t.Fatal(err)
		}
		cancel()
	}
}

func TestTheUrgentGoFirstAndTheOldBecomeUrgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{MaxActive: 1})
		var order []string
		var wg sync.WaitGroup
		start := func(id string, priority limits.Priority) {
			wg.Go(func() {
				if err := p.Run(t.Context(), id, pool.MemberConfig{Priority: priority}, func(context.Context, *pool.Member) error {
					order = append(order, id)
					time.Sleep(20 * time.Second)
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		start("first", limits.Low)
		start("low", limits.Low)
		start("normal", limits.Normal)
		start("high", limits.High)
		start("normal2", limits.Normal)
		for i := range 6 { // a critical one every 20 s, for ever: after 90 s, low is as urgent
			start(fmt.Sprint("critical", i), limits.Critical)
			time.Sleep(20 * time.Second)
		}
		wg.Wait()
		want := []string{"first", "critical0", "high", "normal", "normal2", "low", "critical1"}
		if len(order) != 11 || !slices.Equal(order[:len(want)], want) {
			t.Errorf("they went in the order %v", order)
		}
	})
}

func TestRunTellsHowAMemberEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{})
		own := errors.New("its own")
		var seen *pool.Member
		run := func(fn func(context.Context, *pool.Member) error) error {
			return p.Run(t.Context(), "m", pool.MemberConfig{}, func(ctx context.Context, m *pool.Member) error {
				seen = m
				return fn(ctx, m)
			})
		}
		if err := run(func(context.Context, *pool.Member) error { return own }); err != own || seen.State().Phase != pool.Failed || seen.State().Err != own {
			t.Errorf("%v, %+v", err, seen.State())
		}
		err := run(func(context.Context, *pool.Member) error { panic("a bug") })
		if e, ok := errors.AsType[*sluice.PanicError](err); !ok || e.Value != "a bug" || seen.State().Phase != pool.Failed {
			t.Errorf("%v, %+v", err, seen.State())
		}
		var left *sluice.Permit
		err = run(func(ctx context.Context, m *pool.Member) (err error) {
			left, err = m.Acquire(ctx, sluice.Call{})
			return err
		})
		if err == nil || !strings.Contains(err.Error(), "open requests (1)") || p.Metrics().Orphans != 1 {
			t.Errorf("with a permit left: %v, %+v", err, p.Metrics())
		}
		left.Release(sluice.Outcome{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			run(func(context.Context, *pool.Member) error {
				runtime.Goexit()
				return nil
			})
		}()
		<-done
		if seen.State().Phase != pool.Failed {
			t.Errorf("one that ended its goroutine: %+v", seen.State())
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := p.Run(ctx, "m", pool.MemberConfig{}, nil); err != context.Canceled {
			t.Errorf("one that is cancelled before: %v", err)
		}
		if m := p.Metrics(); m.Failed != 3 || m.Completed != 1 || m.Running != 0 {
			t.Errorf("%+v", m)
		}
	})
}
