package route_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/route"
	"github.com/sluice-llm/sluice/limits"
)

// routed is a Router. Its upstreams are named a, b, c … in order.
type routed struct {
	*route.Router
	all []route.Upstream
}

// router returns a Router of the upstreams of cfg and n more, which take one request at a time.
func router(t *testing.T, cfg route.Config, n int) *routed {
	t.Helper()
	for range n {
		cfg.Upstreams = append(cfg.Upstreams, upstream(t, sluice.Config{Limits: sluice.Limits{Concurrency: 1}}))
	}
	cfg.Authenticates = func(error) bool { return true }
	t.Cleanup(func() {
		for i, up := range cfg.Upstreams {
			for _, lane := range up.Scheduler.Snapshot().Lanes {
				if lane.InFlight != 0 || lane.Waiting != 0 {
					t.Errorf("upstream %d: %d in flight, %d waiting at the end", i, lane.InFlight, lane.Waiting)
				}
			}
		}
	})
	return &routed{route.New(cfg), cfg.Upstreams}
}

func upstream(t *testing.T, cfg sluice.Config) route.Upstream {
	t.Helper()
	s, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return route.Upstream{Scheduler: s}
}

var errRefused = errors.New("refused")

// do makes a call by any upstream. fn returns the outcome of an attempt at the upstream of that name.
func do(ctx context.Context, r *routed, fn func(name string) sluice.Outcome) (sluice.Tally, error) {
	return doCall(ctx, r, sluice.Call{}, fn)
}

func doCall(ctx context.Context, r *routed, c sluice.Call, fn func(name string) sluice.Outcome) (sluice.Tally, error) {
	var ways []route.Way
	for i := range r.all {
		ways = append(ways, route.Way{Upstream: i, Lane: "m"})
	}
	return r.Do(ctx, c, ways, nil, func(_ context.Context, _ *sluice.Permit, w route.Way, _ int) sluice.Outcome {
		return fn(string(rune('a' + w.Upstream)))
	})
}

func TestTalliesAreOfWhatWasSent(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			u := router(t, route.Config{}, 1)
			var mu sync.Mutex
			var sum, sent int
			var calls sync.WaitGroup
			for range 3 {
				calls.Go(func() {
					tally, _ := do(t.Context(), u, func(string) sluice.Outcome {
						time.Sleep(time.Second)
						mu.Lock()
						defer mu.Unlock()
						sent++
						return sluice.Outcome{Kind: sluice.QuotaExhausted}
					})
					mu.Lock()
					defer mu.Unlock()
					sum += tally.Tries()
				})
			}
			calls.Wait()
			if sum != sent || sent != 1 {
				t.Errorf("%d tries are told of, %d were made", sum, sent)
			}
		})
	}
}

func TestWhatWaitsMovesAtOnceWhenItsUpstreamIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		u := router(t, route.Config{Cheapest: true}, 2)
		var calls sync.WaitGroup
		for range 2 { // the second waits for the first, as cost has it
			calls.Go(func() {
				tally, err := do(t.Context(), u, func(name string) sluice.Outcome {
					if name == "b" {
						return sluice.Outcome{}
					}
					time.Sleep(time.Second)
					return sluice.Outcome{Kind: sluice.QuotaExhausted}
				})
				if err != nil || time.Since(start) > 1300*time.Millisecond {
					t.Errorf("%+v, %v, after %v", tally, err, time.Since(start))
				}
			})
			time.Sleep(time.Millisecond)
		}
		calls.Wait()
	})
}

func TestAttemptsCountOverAllUpstreams(t *testing.T) {
	for _, kind := range []sluice.Kind{sluice.ServerError, sluice.Timeout, sluice.Network} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			u := router(t, route.Config{Attempts: 4}, 3)
			var at []string
			tally, err := do(t.Context(), u, func(name string) sluice.Outcome {
				at = append(at, name)
				return sluice.Outcome{Kind: kind, Err: errRefused}
			})
			failure, ok := errors.AsType[*sluice.CallError](err)
			if !ok || failure.Kind != kind || !errors.Is(err, errRefused) || tally.Attempts != 4 || failure.Tally != tally || len(at) != 4 {
				t.Errorf("%+v, %v, at %v", tally, err, at)
			}
			if len(at) == 4 && (at[0] != "a" || at[1] != "b" || at[2] != "c" || at[3] != "c") {
				t.Errorf("tried at %v: each once, and then again after a wait", at)
			}
			if wait := time.Since(start); tally.Backoff != wait {
				t.Errorf("it waited %v, and tells of %v", wait, tally.Backoff)
			}
		})
	}
}

func TestTheWaitBetweenAttemptsGrowsWithAllThatWereMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 100
		u := router(t, route.Config{Attempts: 6}, 5)
		var waited time.Duration
		for range calls {
			tally, _ := do(t.Context(), u, func(string) sluice.Outcome { return sluice.Outcome{Kind: sluice.InvalidOutput} })
			waited += tally.Backoff
		}
		if mean := waited / calls; mean < 2500*time.Millisecond || mean > 3700*time.Millisecond { // half of 0.2 + 0.4 + … + 3.2 s
			t.Errorf("a call waited %v on average", mean)
		}
	})
	const calls = 60
	var waited time.Duration
	for range calls {
		synctest.Test(t, func(t *testing.T) {
			u := router(t, route.Config{Attempts: 4}, 3)
			tally, _ := do(t.Context(), u, func(string) sluice.Outcome { return sluice.Outcome{Kind: sluice.ServerError} })
			waited += tally.Backoff
		})
	}
	if mean := waited / calls; mean < 280*time.Millisecond || mean > 520*time.Millisecond { // half of 0.8 s
		t.Errorf("a call that three upstreams failed waited %v on average", mean)
	}
}

func TestThrottlesCountOverAllUpstreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := router(t, route.Config{}, 2)
		at := make(map[string]int)
		tally, err := doCall(t.Context(), u, sluice.Call{MaxThrottles: 5, Attempts: 1}, func(name string) sluice.Outcome {
			at[name]++
			return sluice.Outcome{Kind: sluice.RateLimit}
		})
		failure, ok := errors.AsType[*sluice.CallError](err)
		if !ok || failure.Kind != sluice.RateLimit || tally.Throttles != 6 || tally.Attempts != 0 || at["a"] < 2 || at["b"] < 2 {
			t.Errorf("%+v, %v, %v", tally, err, at)
		}
	})
}

func TestAThrottledCallLivesForTenMinutesOverAllUpstreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		tally, err := do(t.Context(), router(t, route.Config{}, 2), func(string) sluice.Outcome { return sluice.Outcome{Kind: sluice.RateLimit} })
		if took := time.Since(start); err == nil || took < 10*time.Minute || took > 11*time.Minute || tally.Throttles <= 20 {
			t.Errorf("given up after %v: %+v, %v", took, tally, err)
		}
	})
}

func TestWhatAnAnswerOrACommandIsToBlameForStaysWhereItIs(t *testing.T) {
	for _, kind := range []sluice.Kind{sluice.InvalidOutput, sluice.CommandFailed} {
		synctest.Test(t, func(t *testing.T) {
			u := router(t, route.Config{Attempts: 3}, 2)
			at := make(map[string]int)
			tally, err := do(t.Context(), u, func(name string) sluice.Outcome {
				at[name]++
				return sluice.Outcome{Kind: kind}
			})
			if err == nil || tally.Attempts != 3 || at["a"] != 3 {
				t.Errorf("%v: %+v, %v, %v", kind, tally, err, at)
			}
		})
	}
}

func TestACallThatIsTooLargeForOneUpstreamGoesToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := upstream(t, sluice.Config{Limits: sluice.Limits{TPM: 100}})
		u := router(t, route.Config{Upstreams: []route.Upstream{small}}, 2)
		at := ""
		_, err := doCall(t.Context(), u, sluice.Call{Cost: sluice.Cost{MaxOutput: 500}}, func(name string) sluice.Outcome {
			at += name
			if name == "b" {
				return sluice.Outcome{Kind: sluice.RateLimit, TooLarge: true}
			}
			return sluice.Outcome{}
		})
		if err != nil || at != "bc" {
			t.Errorf("at %q, %v", at, err)
		}
	})
}

func TestPanicsAndGoexitLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := router(t, route.Config{}, 2)
		_, err := do(t.Context(), u, func(string) sluice.Outcome { panic("oops") })
		if failure, ok := errors.AsType[*sluice.CallError](err); !ok || failure.Kind != sluice.Internal {
			t.Errorf("error %v", err)
		}
		done := make(chan bool)
		go func() {
			defer close(done)
			do(t.Context(), u, func(string) sluice.Outcome { runtime.Goexit(); panic("") })
		}()
		<-done
		ctx, cancel := context.WithCancel(t.Context())
		_, err = do(ctx, u, func(string) sluice.Outcome { cancel(); return sluice.Outcome{Kind: sluice.ServerError} })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		for _, up := range u.all {
			up.Scheduler.Close()
		}
		if _, err := do(t.Context(), u, nil); !errors.Is(err, sluice.ErrClosed) {
			t.Errorf("error %v", err)
		}
	})
}

// While somebody is told that a key was refused, calls that wait there get permits of the account, and are not sent. That is
// no failure of the provider, whose other key goes on.
func TestCallsThatAreNotSentDoNotPauseTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		up := upstream(t, sluice.Config{Limits: sluice.Limits{Concurrency: 8}})
		up.Account = "acme"
		u := router(t, route.Config{
			Upstreams: []route.Upstream{up, up},
			Excluded:  func(route.Exclusion) { time.Sleep(time.Second) },
		}, 0)
		start := time.Now()
		var calls sync.WaitGroup
		for range 40 {
			calls.Go(func() {
				_, err := do(t.Context(), u, func(name string) sluice.Outcome {
					if name == "a" {
						return sluice.Outcome{Kind: sluice.Auth, Err: errRefused}
					}
					time.Sleep(10 * time.Millisecond)
					return sluice.Outcome{}
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// What is told of a call over several upstreams: that it was given up once, where it was, and never where it went on.
func TestACallIsGivenUpOnceOverAllUpstreams(t *testing.T) {
	kinds := func(all ...sluice.Kind) []sluice.Kind { return all }
	for name, c := range map[string]struct {
		a, b sluice.Outcome
		want []sluice.Kind
	}{
		"attempts":      {sluice.Outcome{Kind: sluice.ServerError}, sluice.Outcome{Kind: sluice.Timeout}, kinds(sluice.Timeout)},
		"throttles":     {sluice.Outcome{Kind: sluice.RateLimit}, sluice.Outcome{Kind: sluice.RateLimit}, kinds(sluice.RateLimit)},
		"a spent":       {sluice.Outcome{Kind: sluice.QuotaExhausted}, sluice.Outcome{}, nil},
		"both spent":    {sluice.Outcome{Kind: sluice.QuotaExhausted}, sluice.Outcome{Kind: sluice.Auth}, kinds(sluice.Auth)},
		"a too small":   {sluice.Outcome{Kind: sluice.RateLimit, TooLarge: true}, sluice.Outcome{}, nil},
		"all too small": {sluice.Outcome{Kind: sluice.RateLimit, TooLarge: true}, sluice.Outcome{Kind: sluice.RateLimit, TooLarge: true}, kinds(sluice.RateLimit)},
		"refused":       {sluice.Outcome{Kind: sluice.BadRequest}, sluice.Outcome{}, kinds(sluice.BadRequest)},
		"final":         {sluice.Outcome{Kind: sluice.ServerError, Final: true}, sluice.Outcome{}, kinds(sluice.ServerError)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var told []sluice.Kind
				observe := sluice.ObserverFunc(func(e sluice.Event) {
					mu.Lock()
					defer mu.Unlock()
					if e.Type == limits.EventGaveUp {
						told = append(told, e.Outcome.Kind)
					}
				})
				cfg := route.Config{Attempts: 2, MaxThrottles: 1}
				for range 2 {
					cfg.Upstreams = append(cfg.Upstreams, upstream(t, sluice.Config{Observer: observe}))
				}
				u := router(t, cfg, 0)
				_, err := do(t.Context(), u, func(name string) sluice.Outcome {
					if name == "a" {
						return c.a
					}
					return c.b
				})
				if (err == nil) != (c.want == nil) || !slices.Equal(told, c.want) {
					t.Errorf("given up with %v, error %v", told, err)
				}
			})
		})
	}
}
