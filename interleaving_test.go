package sluice_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

func TestAPanicInTheObserverLeaksNoPermit(t *testing.T) {
	{
		{
			synctest.Test(t, func(t *testing.T) {
				var once atomic.Bool
				s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: 1}, Observer: sluice.ObserverFunc(func(e sluice.Event) {
					if e.Call == "bad" && once.CompareAndSwap(false, true) {
						panic("observer")
					}
				})})
				if err != nil {
					t.Fatal(err)
				}
				defer s.Close()
				func() {
					defer func() { recover() }() // as net/http does for its handlers
					s.Do(t.Context(), sluice.Call{ID: "bad"}, func(context.Context, *sluice.Permit) sluice.Outcome { return ok })
				}()
				if n := lane(t, s).InFlight; n != 0 {
					t.Errorf("%d in flight for ever", n)
				}
			})
		}
	}
}

func TestACallAfterCloseTakesNoLanesLock(t *testing.T) {
	dir := t.TempDir()
	first, err := sluice.New(sluice.Config{StateDir: dir})
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	if _, err := first.Acquire(t.Context(), sluice.Call{Lane: "m"}); !errors.Is(err, sluice.ErrClosed) {
		t.Fatal(err)
	}
	var shared atomic.Int32
	second, err := sluice.New(sluice.Config{StateDir: dir, Observer: sluice.ObserverFunc(func(e sluice.Event) {
		if e.Type == limits.EventShared {
			shared.Add(1)
		}
	})})
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	second.TryAcquire(sluice.Call{Lane: "m"}).Release(ok)
	if shared.Load() > 0 {
		t.Error("a closed Scheduler holds the lane's lock for ever: nobody writes its state any more")
	}
}

// slowTake grants after a while and counts what comes back.
type slowTake struct {
	delay time.Duration
	mu    sync.Mutex
	taken limits.Vector
}

func (l *slowTake) Take(ctx context.Context, asks limits.Asks) (limits.Reply, error) {
	time.Sleep(l.delay) // the script runs; its answer is on the way
	l.mu.Lock()
	defer l.mu.Unlock()
	var r limits.Reply
	for _, a := range asks.Calls {
		r.Granted++
		for d := range a.Cost {
			l.taken[d] += a.Cost[d]
		}
		r.Marks = append(r.Marks, l.taken)
	}
	return r, nil
}

func (l *slowTake) Settle(_ context.Context, s limits.Settlement) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for d := range s.Refund {
		l.taken[d] -= s.Refund[d]
	}
	return nil
}

func (l *slowTake) Watch(func(string, limits.LaneState, bool)) (stop func()) { return func() {} }

func (l *slowTake) Correct(context.Context, limits.Correction) error { return nil }

func TestACloseGivesBackWhatItsLastAskWasGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &slowTake{delay: 50 * time.Millisecond}
		s, err := sluice.New(sluice.Config{Ledger: l})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				if _, err := s.Acquire(t.Context(), sluice.Call{}); !errors.Is(err, sluice.ErrClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		s.Close() // waits for the Take under way
		wg.Wait()
		l.mu.Lock()
		defer l.mu.Unlock()
		if n := l.taken[limits.Requests]; n != 0 {
			t.Errorf("%v requests were taken from the shared budget and neither used nor given back", n)
		}
	})
}

func TestSentMayComeLate(t *testing.T) {
	s := open(t, sluice.Config{})
	var wg sync.WaitGroup
	for range 200 {
		s.Do(t.Context(), sluice.Call{}, func(_ context.Context, p *sluice.Permit) sluice.Outcome {
			// httptrace.WroteRequest runs in the transport's own goroutine, also after RoundTrip has returned.
			wg.Go(p.Sent)
			time.Sleep(50 * time.Microsecond)
			return ok
		})
	}
	wg.Wait()
}
