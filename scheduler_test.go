package sluice_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
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
			for range suite.Size(200, 1000) {
				synctest.Test(t, func(t *testing.T) {
					s := open(t, sluice.Config{Limits: sluice.Limits{RPM: 6000, Concurrency: 10}})
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
					if d := time.Since(start); d > 2*time.Second {
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

func TestARejectedCallLivesForTenMinutes(t *testing.T) {
	accepted := func(t *testing.T, s *sluice.Scheduler, calls int) {
		for range calls {
			if _, err := s.Do(t.Context(), sluice.Call{}, (&script{outcomes: []sluice.Outcome{ok}}).run); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Millisecond)
		}
	}
	cost := map[string]sluice.Cost{"much larger than all others": {Input: 8000}}
	for name, before := range map[string]func(*testing.T, *sluice.Scheduler){
		"much larger than all others": func(t *testing.T, s *sluice.Scheduler) {
			accepted(t, s, 1)
			time.AfterFunc(time.Second, func() { accepted(t, s, 30) })
		},
		"the first call": func(*testing.T, *sluice.Scheduler) {},
		"after calls that fill the limit's window": func(t *testing.T, s *sluice.Scheduler) {
			accepted(t, s, 30)
		},
		"an hour after another call": func(t *testing.T, s *sluice.Scheduler) {
			accepted(t, s, 1)
			time.Sleep(time.Hour)
		},
		"after minutes in the queue": func(t *testing.T, s *sluice.Scheduler) {
			p := acquire(t, s, sluice.Call{})
			time.AfterFunc(9*time.Minute, func() { p.Release(ok) })
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
			before(t, s)
			var first time.Time
			tally, err := s.Do(t.Context(), sluice.Call{Cost: cost[name]}, func(context.Context, *sluice.Permit) sluice.Outcome {
				if first.IsZero() {
					first = time.Now()
				}
				return throttled
			})
			if took := time.Since(first); err == nil || took < 10*time.Minute || took > 11*time.Minute {
				t.Errorf("%s: given up after %d throttles and %v: %v", name, tally.Throttles, took, err)
			}
		})
	}
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
		{"twenty throttles", sluice.Config{MaxThrottles: 20}, []sluice.Outcome{throttled}, slices.Repeat([]int{1}, 21), sluice.RateLimit, sluice.Tally{Throttles: 21}},
		{"more throttles than attempts", sluice.Config{Attempts: 3}, []sluice.Outcome{throttled, throttled, throttled, throttled, throttled, ok}, []int{1, 1, 1, 1, 1, 1}, sluice.OK, sluice.Tally{Attempts: 1, Throttles: 5}},
		{"six attempts unless told", sluice.Config{}, []sluice.Outcome{invalid}, []int{1, 2, 3, 4, 5, 6}, sluice.InvalidOutput, sluice.Tally{Attempts: 6}},
		{"one attempt", sluice.Config{Attempts: 1}, []sluice.Outcome{broken}, []int{1}, sluice.ServerError, sluice.Tally{Attempts: 1}},
		{"what cannot succeed is not repeated", sluice.Config{}, []sluice.Outcome{{Kind: sluice.BadRequest}}, []int{1}, sluice.BadRequest, sluice.Tally{Attempts: 1}},
		{"an amended request spends none", sluice.Config{Attempts: 2}, []sluice.Outcome{{Kind: sluice.BadRequest, Amended: true}, broken, ok}, []int{1, 1, 2}, sluice.OK, sluice.Tally{Attempts: 3}},
		{"a spent quota is not repeated", sluice.Config{}, []sluice.Outcome{{Kind: sluice.QuotaExhausted}}, []int{1}, sluice.QuotaExhausted, sluice.Tally{Attempts: 1}},
	} {
		for _, ofCall := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, of the call %v", tt.name, ofCall), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					sc, cfg, call := &script{outcomes: tt.outcomes}, tt.cfg, sluice.Call{}
					if ofCall {
						call.Attempts, call.MaxThrottles, cfg = cfg.Attempts, cfg.MaxThrottles, sluice.Config{}
					}
					tally, err := open(t, cfg).Do(t.Context(), call, sc.run)
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
}

func TestAnUnnamedMistakeInAConfigIsNamed(t *testing.T) {
	for _, tt := range []struct {
		cfg  sluice.Config
		want string
	}{
		{sluice.Config{Limits: sluice.Limits{RPM: -1}}, "Limits.RPM"},
		{sluice.Config{Start: sluice.Limits{TPD: -1}}, "Start.TPD"},
		{sluice.Config{Limits: sluice.Limits{Concurrency: -1}}, "Limits.Concurrency"},
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
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
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
	s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 2}})
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
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 2}})
		held := acquire(t, s, sluice.Call{})
		inBackoff := make(chan error, 1)
		go func() {
			_, err := s.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
				return sluice.Outcome{Kind: sluice.ServerError, Wait: time.Hour}
			})
			inBackoff <- err
		}()
		synctest.Wait()
		if n := s.Snapshot().Retrying; n != 1 {
			t.Errorf("%d calls wait to be tried again", n)
		}
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
		if n := s.Snapshot().Retrying; n != 0 {
			t.Errorf("%d calls wait to be tried again, and the Scheduler is closed", n)
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
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 64}})
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

func TestAThrottledCallGoesBeforeThoseThatAskedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}})
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

// The cooldown belongs to the lane: the call that met the rate limit may give up in it, by its own deadline.
func TestACallThatGivesUpLeavesTheCooldownToTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, sluice.Config{Limits: sluice.Limits{Concurrency: 3}})
		begin := time.Now()
		hint := sluice.Outcome{Kind: sluice.RateLimit, Wait: time.Second}
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := s.Do(ctx, sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome { return hint })
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 300*time.Millisecond {
			t.Errorf("the reporter ended after %v with %v", time.Since(begin), err)
		}
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				_, err := s.Do(t.Context(), sluice.Call{}, func(context.Context, *sluice.Permit) sluice.Outcome {
					if since := time.Since(begin); since < time.Second {
						t.Errorf("a call was sent %v after a rejection with a hint of 1 s", since)
					}
					return ok
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
	})
}
