package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
)

var (
	ok        = sluice.Outcome{}
	throttled = sluice.Outcome{Kind: sluice.RateLimit, Err: errors.New("429")}
)

// script is an attempt that gives one outcome after the other, and counts.
type script struct {
	mu       sync.Mutex
	outcomes []sluice.Outcome // the last stays
	calls    int
	attempts []int
}

func (s *script) run(_ context.Context, p *sluice.Permit) sluice.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.outcomes[min(s.calls, len(s.outcomes)-1)]
	s.calls++
	s.attempts = append(s.attempts, p.Attempt())
	return o
}

// crew runs items on workers, each item's tries by tries(item, try), and returns the calls per item.
func crew(t *testing.T, s *sluice.Scheduler, workers, items int, tries func(item, try int) sluice.Outcome) (calls []int, failed int) {
	t.Helper()
	calls = make([]int, items)
	var next, bad atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= items {
					return
				}
				_, err := s.Do(t.Context(), sluice.Call{ID: fmt.Sprint(i)}, func(context.Context, *sluice.Permit) sluice.Outcome {
					calls[i]++
					time.Sleep(10 * time.Millisecond)
					return tries(i, calls[i])
				})
				if err != nil {
					bad.Add(1)
				}
			}
		})
	}
	wg.Wait()
	return calls, int(bad.Load())
}

func throttleFirst(n int) func(item, try int) sluice.Outcome {
	return func(_, try int) sluice.Outcome {
		if try <= n {
			return throttled
		}
		return ok
	}
}

func sum(of []int) (n int) {
	for _, v := range of {
		n += v
	}
	return n
}

func TestTenWorkersThrottledAtOnceAllComeThrough(t *testing.T) {
	hinted := throttled
	hinted.Wait = time.Second
	for name, refusal := range map[string]sluice.Outcome{"bare": throttled, "with a hint": hinted} {
		t.Run(name, func(t *testing.T) {
			for range 1000 {
				synctest.Test(t, func(t *testing.T) {
					s := open(t, sluice.Config{Limits: sluice.Limits{Concurrent: 10}})
					start := time.Now()
					calls, failed := crew(t, s, 10, 10, func(_, try int) sluice.Outcome {
						if try == 1 {
							return refusal
						}
						return ok
					})
					if n := sum(calls); n != 20 || failed != 0 {
						t.Fatalf("%d calls, %d failed; want 20 and 0", n, failed)
					}
					if d := time.Since(start); d > 5*time.Second {
						t.Fatalf("it took %v", d)
					}
				})
			}
		})
	}
}

func TestItemsThrottledTwiceAllSucceed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, failed := crew(t, open(t, sluice.Config{}), 5, 15, throttleFirst(2))
		if slices.Min(calls) < 3 || failed != 0 {
			t.Errorf("calls per item %v, %d failed; want 3 each", calls, failed)
		}
	})
}

func TestItemsOfWhichHalfAreThrottledOnceTakeThirtyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls, failed := crew(t, open(t, sluice.Config{}), 5, 20, func(item, try int) sluice.Outcome { return throttleFirst(item%2)(item, try) })
		if sum(calls) != 30 || failed != 0 {
			t.Errorf("%d calls, %d failed; want 30 and 0", sum(calls), failed)
		}
	})
}

func TestAThrottleSpendsNoAttempt(t *testing.T) {
	invalid := sluice.Outcome{Kind: sluice.InvalidOutput, Err: errors.New("not JSON")}
	broken := sluice.Outcome{Kind: sluice.ServerError, Err: errors.New("500")}
	for _, tt := range []struct {
		name     string
		cfg      sluice.Config
		outcomes []sluice.Outcome
		attempts []int // as the permits say
		kind     sluice.Kind
		tally    sluice.Tally
	}{
		{"attempts count what was answered", sluice.Config{}, []sluice.Outcome{throttled, invalid, throttled, ok}, []int{1, 1, 2, 2}, sluice.OK, sluice.Tally{Attempts: 2, Throttles: 2}},
		{"at most two throttles", sluice.Config{MaxThrottles: 2}, []sluice.Outcome{throttled}, []int{1, 1, 1}, sluice.RateLimit, sluice.Tally{Throttles: 3}},
		{"no throttles", sluice.Config{MaxThrottles: -1}, []sluice.Outcome{throttled}, []int{1}, sluice.RateLimit, sluice.Tally{Throttles: 1}},
		{"twenty throttles unless told", sluice.Config{}, []sluice.Outcome{throttled}, slices.Repeat([]int{1}, 21), sluice.RateLimit, sluice.Tally{Throttles: 21}},
		{"more throttles than attempts", sluice.Config{Attempts: 3}, []sluice.Outcome{throttled, throttled, throttled, throttled, throttled, ok}, []int{1, 1, 1, 1, 1, 1}, sluice.OK, sluice.Tally{Attempts: 1, Throttles: 5}},
		{"six attempts unless told", sluice.Config{}, []sluice.Outcome{invalid}, []int{1, 2, 3, 4, 5, 6}, sluice.InvalidOutput, sluice.Tally{Attempts: 6}},
		{"one attempt", sluice.Config{Attempts: 1}, []sluice.Outcome{broken}, []int{1}, sluice.ServerError, sluice.Tally{Attempts: 1}},
		{"what cannot succeed is not repeated", sluice.Config{}, []sluice.Outcome{{Kind: sluice.BadRequest}}, []int{1}, sluice.BadRequest, sluice.Tally{Attempts: 1}},
		{"a spent quota is not repeated", sluice.Config{}, []sluice.Outcome{{Kind: sluice.QuotaExhausted}}, []int{1}, sluice.QuotaExhausted, sluice.Tally{Attempts: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := &script{outcomes: tt.outcomes}
				tally, err := open(t, tt.cfg).Do(t.Context(), sluice.Call{}, sc.run)
				if diff := cmp.Diff(tt.attempts, sc.attempts); diff != "" {
					t.Errorf("attempts (-want +got):\n%s", diff)
				}
				if tally.Attempts != tt.tally.Attempts || tally.Throttles != tt.tally.Throttles {
					t.Errorf("tally %+v, want %+v", tally, tt.tally)
				}
				var ce *sluice.CallError
				switch {
				case tt.kind == sluice.OK && err != nil:
					t.Error(err)
				case tt.kind != sluice.OK && (!errors.As(err, &ce) || ce.Kind != tt.kind || ce.Tally != tally):
					t.Errorf("%#v is no CallError of %v with its tally", err, tt.kind)
				case tt.kind != sluice.OK && !errors.Is(err, tt.outcomes[len(tt.outcomes)-1].Err) && ce.Err != nil:
					t.Errorf("%v does not wrap the last cause", err)
				}
			})
		})
	}
}

func TestATallyAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrent: 1}})
		holder := acquire(t, s, sluice.Call{})
		time.AfterFunc(3*time.Second, func() { holder.Release(ok) })
		start := time.Now()
		try := 0
		tally, err := s.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
			time.Sleep(time.Second)
			try++
			used := sluice.Usage{Input: 100, Output: 10}
			switch try {
			case 1:
				return sluice.Outcome{Kind: sluice.RateLimit, Wait: 5 * time.Second}
			case 2:
				return sluice.Outcome{Kind: sluice.InvalidOutput, HasUsage: true, Usage: used}
			}
			return sluice.Outcome{HasUsage: true, Usage: used}
		})
		if err != nil {
			t.Fatal(err)
		}
		if tally.Usage != (sluice.Usage{Input: 200, Output: 20}) || !tally.HasUsage || tally.Latency != time.Second {
			t.Errorf("%+v", tally)
		}
		if tally.Queued != 3*time.Second || tally.Cooldown < 5*time.Second || tally.Cooldown > 5300*time.Millisecond || tally.Backoff > 200*time.Millisecond {
			t.Errorf("waited %v for its turn, %v in pauses, %v by itself", tally.Queued, tally.Cooldown, tally.Backoff)
		}
		if got, want := tally.Wait()+3*time.Second, time.Since(start); got != want {
			t.Errorf("waits and tries are %v of %v", got, want)
		}
	})
}

func TestAnUnnamedMistakeInAConfigIsNamed(t *testing.T) {
	for _, tt := range []struct {
		cfg  sluice.Config
		want string
	}{
		{sluice.Config{Limits: sluice.Limits{RPM: -1}}, "Limits.RPM"},
		{sluice.Config{Start: sluice.Limits{TPD: -1}}, "Start.TPD"},
		{sluice.Config{Limits: sluice.Limits{Concurrent: -1}}, "Limits.Concurrent"},
		{sluice.Config{Limits: sluice.Limits{Burst: -1}}, "Limits.Burst"},
		{sluice.Config{Attempts: -1}, "Attempts"},
		{sluice.Config{Weights: map[string]float64{"acme": 0}}, `Weights["acme"]`},
	} {
		if _, err := sluice.New(tt.cfg); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v does not name %s", err, tt.want)
		}
	}
}

func TestACancelledWaiterLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrent: 1}})
		held := acquire(t, s, sluice.Call{})
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if p, err := s.Acquire(ctx, sluice.Call{}); !errors.Is(err, context.Canceled) || p != nil {
					t.Errorf("%v, %v", p, err)
				}
			})
		}
		synctest.Wait()
		if n := lane(t, s).Waiting; n != 100 {
			t.Errorf("%d wait", n)
		}
		cancel(cause)
		wg.Wait()
		if l := lane(t, s); l.Waiting != 0 || l.InFlight != 1 {
			t.Errorf("%+v", l)
		}
		held.Release(ok)
		acquire(t, s, sluice.Call{}).Release(ok)
		if _, err := s.Acquire(ctx, sluice.Call{}); !errors.Is(err, context.Canceled) || lane(t, s).InFlight != 0 {
			t.Errorf("a context that has ended gets %v", err)
		}
	})
}

func TestACancelThatRacesAGrantLosesNoPermit(t *testing.T) {
	s := open(t, sluice.Config{Limits: sluice.Limits{Concurrent: 2}})
	var wg sync.WaitGroup
	var inside, most atomic.Int32
	for range 16 {
		wg.Go(func() {
			for range 300 {
				ctx, cancel := context.WithCancel(t.Context())
				go cancel()
				p, err := s.Acquire(ctx, sluice.Call{})
				if err != nil {
					continue
				}
				n := inside.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
				inside.Add(-1)
				p.Release(ok)
			}
		})
	}
	wg.Wait()
	if l := lane(t, s); l.InFlight != 0 || l.Waiting != 0 || most.Load() > 2 {
		t.Errorf("%+v, at most %d at once", l, most.Load())
	}
	acquire(t, s, sluice.Call{}).Release(ok)
}

func TestCloseWakesWhoeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrent: 2}})
		held := acquire(t, s, sluice.Call{})
		inBackoff := make(chan error, 1)
		go func() {
			_, err := s.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
				return sluice.Outcome{Kind: sluice.ServerError, Wait: time.Hour}
			})
			inBackoff <- err
		}()
		synctest.Wait()
		other := acquire(t, s, sluice.Call{})
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if _, err := s.Acquire(t.Context(), sluice.Call{}); !errors.Is(err, sluice.ErrClosed) {
					t.Errorf("a waiting Acquire gets %v", err)
				}
			})
		}
		synctest.Wait()
		for range 2 {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
		if err := <-inBackoff; !errors.Is(err, sluice.ErrClosed) {
			t.Errorf("Do in its backoff gets %v", err)
		}
		if _, err := s.Acquire(t.Context(), sluice.Call{}); !errors.Is(err, sluice.ErrClosed) {
			t.Errorf("a later Acquire gets %v", err)
		}
		if s.TryAcquire(sluice.Call{}) != nil {
			t.Error("TryAcquire gives a permit after Close")
		}
		held.Sent()
		held.Release(ok) // permits in use may still be released
		other.Release(throttled)
		if l := lane(t, s); l.InFlight != 0 || l.Waiting != 0 {
			t.Errorf("%+v", l)
		}
	})
}

func TestNothingIsGrantedAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrent: 64}})
		var held []*sluice.Permit
		for range 64 {
			held = append(held, acquire(t, s, sluice.Call{}))
		}
		var granted atomic.Int32
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if _, err := s.Acquire(t.Context(), sluice.Call{}); err == nil {
					granted.Add(1)
				} else if !errors.Is(err, sluice.ErrClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		s.Close()
		for _, p := range held {
			p.Release(sluice.Outcome{})
		}
		wg.Wait()
		if n := granted.Load(); n > 0 {
			t.Errorf("%d of 64 waiting calls were granted after Close", n)
		}
	})
}

func TestASecondReleasePanicsAndNamesThePermit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{})
		p := acquire(t, s, sluice.Call{ID: "item 7", Lane: "gpt"})
		p.Release(ok)
		defer func() {
			msg := fmt.Sprint(recover())
			for _, want := range []string{"item 7", "gpt", "released twice"} {
				if !strings.Contains(msg, want) {
					t.Errorf("%q does not say %q", msg, want)
				}
			}
			if n := lane(t, s).InFlight; n != 0 {
				t.Errorf("%d in flight", n)
			}
			acquire(t, s, sluice.Call{Lane: "gpt"}).Release(ok) // and the lock is free
		}()
		p.Release(ok)
	})
}

func TestAPanicBecomesACallErrorWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{})
		for _, value := range []any{"boom", errors.New("boom"), nil} {
			_, err := s.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome { panicking(value); return ok })
			var ce *sluice.CallError
			var pe *sluice.PanicError
			if !errors.As(err, &ce) || ce.Kind != sluice.Internal || !errors.As(err, &pe) {
				t.Fatalf("%#v", err)
			}
			if !strings.Contains(string(pe.Stack), "panicking") || value != nil && pe.Value != value {
				t.Errorf("value %v, stack without the function that panicked:\n%s", pe.Value, pe.Stack)
			}
		}
		if l := lane(t, s); l.InFlight != 0 || l.Granted != 3 {
			t.Errorf("%+v: a panic keeps its slot or is tried again", l)
		}
	})
}

func panicking(v any) { panic(v) }

func TestAnOpenAnswerKeepsItsPermitUntilItsReaderReleasesIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrent: 1}})
		var permit *sluice.Permit
		tally, err := s.Do(t.Context(), sluice.Call{}, func(_ context.Context, p *sluice.Permit) sluice.Outcome {
			permit = p
			return sluice.Outcome{Open: true}
		})
		if err != nil || tally.Attempts != 1 {
			t.Fatalf("%+v, %v", tally, err)
		}
		if lane(t, s).InFlight != 1 || s.TryAcquire(sluice.Call{}) != nil {
			t.Error("the slot of an open answer is free")
		}
		permit.Release(sluice.Outcome{HasUsage: true})
		if lane(t, s).InFlight != 0 {
			t.Error("the slot of a closed answer is held")
		}
	})
}

func TestTryAcquireTakesWhatIsFreeAndNeverWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrent: 2, TPM: 6000, Burst: time.Second}})
		start := time.Now()
		a, b := s.TryAcquire(sluice.Call{}), s.TryAcquire(sluice.Call{})
		if a == nil || b == nil || s.TryAcquire(sluice.Call{}) != nil {
			t.Error("not exactly two permits of two slots")
		}
		a.Release(ok)
		b.Release(ok)
		if s.TryAcquire(sluice.Call{Cost: sluice.Cost{MaxOutput: 7000}}) != nil {
			t.Error("a call above the limit got a permit")
		}
		p := s.TryAcquire(sluice.Call{Cost: sluice.Cost{MaxOutput: 90}})
		if p == nil || s.TryAcquire(sluice.Call{Cost: sluice.Cost{MaxOutput: 50}}) != nil {
			t.Error("100 tokens are there: 90 fit and 50 more do not")
		}
		if l := lane(t, s); l.Waiting != 0 || l.InFlight != 1 || time.Since(start) != 0 {
			t.Errorf("%+v after %v", l, time.Since(start))
		}
		p.Release(ok)
	})
}

func TestACallLargerThanTheLimitIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{TPM: 1000}})
		_, err := s.Do(t.Context(), sluice.Call{ID: "huge", Cost: sluice.Cost{MaxOutput: 2000}}, func(context.Context, *sluice.Permit) sluice.Outcome {
			t.Error("it was sent")
			return ok
		})
		if !errors.Is(err, sluice.ErrTooLarge) || !strings.Contains(err.Error(), "huge") {
			t.Errorf("%v", err)
		}
	})
}

// diary writes down events and uses the Scheduler meanwhile, which would deadlock if it were told of them under a lock.
type diary struct {
	mu     sync.Mutex
	s      *sluice.Scheduler
	events []sluice.Event
	depth  int
}

func (d *diary) Observe(e sluice.Event) {
	d.mu.Lock()
	d.events = append(d.events, e)
	s, outer := d.s, d.depth == 0 && e.Call != ""
	if outer {
		d.depth++
	}
	d.mu.Unlock()
	if s == nil || !outer {
		return
	}
	s.Snapshot()
	if p := s.TryAcquire(sluice.Call{Lane: "observer"}); p != nil {
		p.Release(ok)
	}
	if p, err := s.Acquire(context.Background(), sluice.Call{Lane: "observer"}); err == nil {
		p.Release(ok)
	}
	d.mu.Lock()
	d.depth--
	d.mu.Unlock()
}

func (d *diary) of(call string) (out []sluice.EventType) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.events {
		if e.Call == call {
			out = append(out, e.Type)
		}
	}
	return out
}

func TestAnObserverIsToldInOrderAndMayUseTheScheduler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &diary{}
		s := open(t, sluice.Config{Observer: d, Attempts: 2})
		d.s = s
		failed := sluice.Outcome{Kind: sluice.ServerError, Wait: time.Second}
		for id, outcomes := range map[string][]sluice.Outcome{"good": {ok}, "throttled": {throttled, ok}, "hopeless": {failed, failed}} {
			s.Do(t.Context(), sluice.Call{ID: id}, (&script{outcomes: outcomes}).run)
		}
		const (
			granted, released = sluice.EventSlotAcquired, sluice.EventSlotReleased
			refused, failure  = sluice.EventThrottled, sluice.EventAttemptFailed
		)
		for id, want := range map[string][]sluice.EventType{
			"good":      {granted, released},
			"throttled": {granted, released, refused, sluice.EventSlotWaiting, granted, released},
			"hopeless":  {granted, released, failure, granted, released, failure, sluice.EventGaveUp},
		} {
			if diff := cmp.Diff(want, d.of(id)); diff != "" {
				t.Errorf("events of %s (-want +got):\n%s", id, diff)
			}
		}
		at := time.Time{}
		for _, e := range d.events {
			if e.At.Before(at) || e.At.IsZero() {
				t.Errorf("%s at %v after one at %v", e.Type, e.At, at)
			}
			at = e.At
		}
	})
}

func TestASnapshotIsConsistentWhileCallsComeAndGo(t *testing.T) {
	const slots = 4
	s := open(t, sluice.Config{Limits: sluice.Limits{Concurrent: slots, RPM: 6e8, Burst: time.Second}})
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 12 {
		wg.Go(func() {
			for j := range 400 {
				s.Do(t.Context(), sluice.Call{Tenant: fmt.Sprint(i % 3), Priority: sluice.Priority(j%4 - 1)}, func(_ context.Context, p *sluice.Permit) sluice.Outcome {
					p.Sent()
					return ok
				})
			}
		})
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		last := 0
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, l := range s.Snapshot().Lanes {
				if l.InFlight < 0 || l.InFlight > slots || l.Waiting < 0 || l.Waiting > 12 || l.Granted < last || (l.InFlight > 0) == l.Oldest.IsZero() {
					t.Errorf("%+v", l)
					return
				}
				last = l.Granted
			}
		}
	})
	wg.Wait()
	close(stop)
	reader.Wait()
	if l := lane(t, s); l.Granted != 12*400 || l.InFlight != 0 || l.Waiting != 0 || l.Budgets[0].Spent != 12*400 {
		t.Errorf("%+v", l)
	}
}

// A bubble ends only when all its goroutines have: a timer or goroutine that is left behind fails the test. What it
// cannot see is a second timer, so this counts the looks at the clock.
func TestWaitingCostsOneTimer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wakes atomic.Int32
		s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 60, Burst: time.Second, Concurrent: 1000},
			Observer: sluice.ObserverFunc(func(e sluice.Event) {
				if e.Type == sluice.EventSlotAcquired {
					wakes.Add(1)
				}
			})})
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 120 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second+500*time.Millisecond)
				defer cancel()
				p, err := s.Acquire(ctx, sluice.Call{})
				if err == nil {
					p.Release(ok)
				}
			})
		}
		wg.Wait()
		if n, sec := wakes.Load(), time.Since(start).Seconds(); float64(n) < 0.9*min(sec, 110) || float64(n) > sec+2 {
			t.Errorf("%d grants in %.0f s at one a second", n, sec)
		}
	})
}

func TestACallThatWaitsForHoursNeedsNoOneElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{})
		until := time.Now().Add(7 * time.Hour)
		sc := &script{outcomes: []sluice.Outcome{{Kind: sluice.UsageWindow, Until: until}, ok}}
		if _, err := s.Do(t.Context(), sluice.Call{}, sc.run); err != nil {
			t.Fatal(err)
		}
		if late := time.Since(until); late < 0 || late > time.Second {
			t.Errorf("it went out %v after the window's end", late)
		}
	})
}

func TestNothingIsStartedThatOutlivesClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 10 {
			s, err := sluice.New(sluice.Config{Limits: sluice.Limits{RPM: 1}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			for range 3 {
				s.Acquire(ctx, sluice.Call{})
			}
			cancel()
			s.Close()
		}
	})
}

// TestAnyWorkEndsOnAnyLedger runs random work on the local ledger and on one that is late, refuses and loses.
func TestAnyWorkEndsOnAnyLedger(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		remote := rapid.Bool().Draw(rt, "remote")
		workers := rapid.IntRange(1, 20).Draw(rt, "workers")
		items := rapid.IntRange(1, 60).Draw(rt, "items")
		var problem error
		synctest.Test(t, func(t *testing.T) { problem = anyWork(t, seed, remote, workers, items) })
		if problem != nil {
			rt.Fatal(problem)
		}
	})
}

func anyWork(t *testing.T, seed uint64, remote bool, workers, items int) error {
	luck := rand.New(rand.NewPCG(seed, 2))
	var l *ledgerDouble
	cfg := sluice.Config{Limits: sluice.Limits{RPM: 60 * (1 + luck.IntN(100)), Concurrent: luck.IntN(2) * (1 + luck.IntN(9)), Burst: time.Second}, MaxThrottles: 1000, Attempts: 1000}
	if remote {
		l = newLedgerDouble(seed)
		l.lose, l.cut = luck.Float64()/2, luck.Float64()/2
		cfg.Ledger = l
	}
	s, err := sluice.New(cfg)
	if err != nil {
		return err
	}
	defer s.Close()
	var mu sync.Mutex
	var next, done, cancelled int
	outcomes := []sluice.Outcome{ok, ok, ok, ok, throttled, {Kind: sluice.RateLimit, Wait: time.Second}, {Kind: sluice.Overloaded}, {Kind: sluice.ServerError},
		{Kind: sluice.Network, Unsent: true}, {Kind: sluice.RateLimit, Dimension: sluice.Requests, Limit: 60, Used: 60, Requested: 1, Wait: time.Second}}
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for {
				mu.Lock()
				i := next
				next++
				quits := luck.IntN(5) == 0
				patience := time.Duration(luck.IntN(3000)) * time.Millisecond
				tenant := fmt.Sprint(luck.IntN(3))
				mu.Unlock()
				if i >= items {
					return
				}
				ctx, cancel := context.WithCancel(t.Context())
				if quits {
					ctx, cancel = context.WithTimeout(t.Context(), patience)
				}
				_, err := s.Do(ctx, sluice.Call{Tenant: tenant}, func(context.Context, *sluice.Permit) sluice.Outcome {
					mu.Lock()
					o, lat := outcomes[luck.IntN(len(outcomes))], time.Duration(luck.IntN(2000))*time.Millisecond
					mu.Unlock()
					time.Sleep(lat)
					return o
				})
				cancel()
				mu.Lock()
				if err == nil {
					done++
				} else if quits {
					cancelled++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	time.Sleep(time.Minute)
	if done+cancelled != items {
		return fmt.Errorf("%d done and %d cancelled of %d", done, cancelled, items)
	}
	for _, lane := range s.Snapshot().Lanes {
		if lane.InFlight != 0 || lane.Waiting != 0 {
			return fmt.Errorf("an idle lane: %+v", lane)
		}
	}
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for id, n := range l.charged {
		if n != 1 {
			return fmt.Errorf("ask %d was charged %d times", id, n)
		}
	}
	if l.overlaps > 0 {
		return fmt.Errorf("two questions of a lane were under way at once %d times", l.overlaps)
	}
	return nil
}

func TestALedgerThatNeverAnswersEndsWithTheCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedgerDouble(1)
		l.lose = 1
		s := open(t, sluice.Config{Ledger: l})
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := s.Acquire(ctx, sluice.Call{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestAReplyAfterACancelIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedgerDouble(1)
		l.take = time.Second
		s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 600}, Ledger: l})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := s.Acquire(ctx, sluice.Call{}); err == nil {
			t.Fatal("granted")
		}
		time.Sleep(5 * time.Second)
		if taken, returned := l.counts(); taken != 1 || returned != 1 || lane(t, s).InFlight != 0 || lane(t, s).Waiting != 0 {
			t.Errorf("%d taken, %d given back, %+v", taken, returned, lane(t, s))
		}
	})
}

func TestCloseWaitsForWhatTheLedgerHasUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedgerDouble(1)
		l.take = time.Hour
		s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 600}, Ledger: l})
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				if _, err := s.Acquire(t.Context(), sluice.Call{}); !errors.Is(err, sluice.ErrClosed) {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		s.Close()
		wg.Wait()
	})
}

func TestAThrottledCallGoesBeforeThoseThatAskedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrent: 1}})
		var order []int
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				try := 0
				s.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
					time.Sleep(time.Second)
					if try++; try == 1 && i == 0 {
						return sluice.Outcome{Kind: sluice.RateLimit, Wait: time.Second}
					}
					order = append(order, i)
					return ok
				})
			})
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		// One call that was never throttled probes; then it is the throttled one's turn.
		if at := slices.Index(order, 0); len(order) != 4 || at > 1 {
			t.Errorf("served in the order %v", order)
		}
	})
}

func TestAnInstantBeforeTheOneThatIsArmedForIsNotMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 60, Burst: time.Second}})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		acquire(t, s, sluice.Call{Lane: "far"}).Release(sluice.Outcome{Kind: sluice.RateLimit, Wait: time.Hour})
		wg.Go(func() { s.Acquire(ctx, sluice.Call{Lane: "far"}) })
		synctest.Wait() // the timer is armed, a minute ahead
		acquire(t, s, sluice.Call{Lane: "near"}).Release(ok)
		start := time.Now()
		acquire(t, s, sluice.Call{Lane: "near"}).Release(ok)
		if d := time.Since(start); d > 1100*time.Millisecond {
			t.Errorf("a call waited %v at one a second", d)
		}
		cancel()
		wg.Wait()
	})
}
