package find_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

func TestSweepThatReachesNobodyRecommends0AndNotTheMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := over(base(func(*http.Request) (*http.Response, error) { return nil, reset() }))
		log := lines(&cfg)
		r, err := find.Sweep(t.Context(), cfg)
		want(t, r, 0, 3)
		if !errors.Is(err, find.ErrNoAnswer) || !strings.Contains(err.Error(), "connection reset") || r.Error != err.Error() {
			t.Errorf("%v, error %q", err, r.Error)
		}
		if run := r.Runs[0]; run.Status != find.SweepFailed || run.Success != 0 {
			t.Errorf("%+v", run)
		}
		// One alone and five by three, three tries with pauses of 1 s and 2 s each.
		if got := (*log)[1]; got != "  -> FAILED (6) in 9000ms" {
			t.Errorf("log %q", *log)
		}
	})
}

func TestSweepRunWithoutASuccessEndsTheSweepWithWhatPassedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, run := over(nil), 0
		cfg.Log = func(line string) {
			if strings.HasPrefix(line, "Testing") {
				run++
			}
		}
		cfg.Base = base(func(*http.Request) (*http.Response, error) {
			if run < 3 {
				return answer(200, essay), nil
			}
			return answer(400, `{"error":{"message":"no","type":"invalid_request_error"}}`), nil
		})
		r, err := find.Sweep(t.Context(), cfg)
		want(t, r, 6, 3, 6, 12)
		e, ok := errors.AsType[*provider.Error](err)
		if !errors.Is(err, find.ErrNoAnswer) || !ok || e.Status != 400 || r.Runs[2].Status != find.SweepFailed || r.Error == "" {
			t.Errorf("%v, %+v", err, r)
		}
	})
}

// tried is when calls came, counted from the first.
type tried struct {
	mu    sync.Mutex
	began time.Time
	at    []time.Duration
}

func (c *tried) now() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.began.IsZero() {
		c.began = time.Now()
	}
	c.at = append(c.at, time.Since(c.began))
}

func TestCallIsTriedThreeTimesWherePatienceMayHelp(t *testing.T) {
	const s = time.Second
	always := func(status int, body string, headers ...string) base {
		return func(*http.Request) (*http.Response, error) { return answer(status, body, headers...), nil }
	}
	const overloaded = `{"error":{"message":"overloaded","code":"server_is_overloaded"}}`
	twice, never := []time.Duration{0, s, 3 * s, 3 * s}, []time.Duration{0, 0}
	for name, c := range map[string]struct {
		base base
		at   []time.Duration // of the first prompt's tries and the second's first
	}{
		"a broken connection":             {func(*http.Request) (*http.Response, error) { return nil, reset() }, twice},
		"an error of the server":          {always(500, "{}"), twice},
		"no capacity":                     {always(503, overloaded), twice},
		"no capacity for a while":         {always(503, overloaded, "Retry-After: 20"), []time.Duration{0, 20 * s, 40 * s, 40 * s}},
		"no capacity for too long":        {always(503, overloaded, "Retry-After: 61"), never},
		"a refusal, which is never tried": {always(429, limited), never},
		"an answer":                       {always(200, essay), never},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var calls tried
				cfg := over(base(func(r *http.Request) (*http.Response, error) {
					calls.now()
					return c.base(r)
				}))
				cfg.MaxWorkers = 1
				r, _ := find.Sweep(t.Context(), cfg)
				if len(r.Runs) != 1 || !slices.Equal(calls.at[:len(c.at)], c.at) || len(calls.at) != 6*(len(c.at)-1) {
					t.Errorf("%d calls at %v, want %v and so on", len(calls.at), calls.at, c.at)
				}
			})
		})
	}
}

func TestCallThatIsAnsweredAtItsThirdTryIsASuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := 0
		cfg := over(base(func(*http.Request) (*http.Response, error) {
			if n++; n%3 != 0 {
				return nil, reset()
			}
			return answer(200, essay), nil
		}))
		cfg.MaxWorkers = 1
		r := sweep(t, cfg)
		want(t, r, 1, 1)
		if run := r.Runs[0]; run.Success != 6 || n != 18 || run.Usage != (find.SweepUsage{Input: 60, Output: 3000}) {
			t.Errorf("%d calls, %+v", n, run)
		}
	})
}

func TestSweepStopsAtOnceWhenTheMoneyIsSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, server := imitated(t, sim.Config{SpentAfter: 20})
		log := lines(&cfg)
		r, err := find.Sweep(t.Context(), cfg)
		want(t, r, 6, 3, 6, 12)
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || e.Kind != sluice.QuotaExhausted || r.Error != err.Error() || r.Runs[2].Status != find.SweepStopped {
			t.Errorf("%v, %+v", err, r)
		}
		if sent := server.Stats().Requests; sent > 18+24 {
			t.Errorf("%d calls", sent)
		}
		if got := (*log)[5]; got != "  -> STOPPED (12 of 24 done) in 205ms" {
			t.Errorf("log %q", got)
		}
	})
}

func TestSweepThatIsInterruptedReturnsWhatIsKnown(t *testing.T) {
	interrupt := errors.New("interrupt")
	for name, c := range map[string]struct {
		config      sim.Config
		ms          int
		recommended int
		tested      []int
		last        find.SweepStatus
	}{
		"in its first call":        {sim.Config{}, 100, 0, []int{3}, find.SweepStopped},
		"in a run":                 {sim.Config{}, 1100, 6, []int{3, 6, 12}, find.SweepStopped},
		"in a run that is refused": {sim.Config{Concurrency: 6}, 1100, 6, []int{3, 6, 12}, find.SweepRateLimited},
		"in a wait between runs":   {sim.Config{Storms: []sim.Storm{{To: time.Minute}}}, 10_000, 0, []int{3}, find.SweepRateLimited},
		"in a wait between tries":  {sim.Config{Faults: sim.Faults{Reset: 1}}, 700, 0, []int{3}, find.SweepStopped},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, server := imitated(t, c.config)
				ctx, cancel := context.WithCancelCause(t.Context())
				began := time.Now()
				at := time.Duration(c.ms) * time.Millisecond
				time.AfterFunc(at, func() { cancel(interrupt) })
				r, err := find.Sweep(ctx, cfg)
				if took := time.Since(began); !errors.Is(err, interrupt) || r.Error != "interrupt" || took != at {
					t.Errorf("%v after %v, error %q", err, took, r.Error)
				}
				want(t, r, c.recommended, c.tested...)
				run := r.Runs[len(r.Runs)-1]
				if run.Status != c.last || run.Success+run.RateLimited >= run.Prompts && c.last == find.SweepStopped {
					t.Errorf("%+v", run)
				}
				success := 0
				for _, run := range r.Runs {
					success += run.Success
				}
				if stats := server.Stats(); stats.Answered != success || stats.InFlight != 0 {
					t.Errorf("%d successes of %d, %d calls are still open", success, stats.Answered, stats.InFlight)
				}
			})
		})
	}
}

func TestSweepCountsAnswersThatComeAsItIsInterrupted(t *testing.T) {
	interrupt := errors.New("interrupt")
	for at, status := range map[int]find.SweepStatus{4: find.SweepStopped, 5: find.SweepRateLimited, 6: find.SweepPassed} {
		ctx, cancel := context.WithCancelCause(t.Context())
		n := 0
		cfg := over(base(func(*http.Request) (*http.Response, error) {
			if n++; n == at {
				cancel(interrupt)
			}
			if n == at && status == find.SweepRateLimited {
				return answer(429, limited), nil
			}
			return answer(200, essay), nil
		}))
		cfg.MaxWorkers = 1
		r, err := find.Sweep(ctx, cfg)
		run := r.Runs[0]
		if !errors.Is(err, interrupt) || run.Success+run.RateLimited != at || run.Usage.Output != 500*run.Success || run.Status != status {
			t.Errorf("%v, %+v; want %d answers and %q", err, run, at, status)
		}
		if again, err := find.Sweep(ctx, cfg); !errors.Is(err, interrupt) || len(again.Runs) > 0 || n != at {
			t.Errorf("%v, %+v: begun though it was interrupted before", err, again)
		}
	}
}

func TestSweepWhoseRunTurnsOutDearerThanThoseBeforeStopsWithinItsBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		run := 0
		cfg := over(base(func(*http.Request) (*http.Response, error) {
			if run < 3 {
				return answer(200, essay), nil
			}
			time.Sleep(time.Second)
			return answer(200, strings.ReplaceAll(essay, "500", "2000")), nil
		}))
		cfg.MinOutputTokens, cfg.Budget.Tokens = 2000, 18*510+12*2200+12*600
		cfg.Log = func(line string) {
			if strings.HasPrefix(line, "Testing") {
				run++
			}
		}
		r, err := find.Sweep(t.Context(), cfg)
		want(t, r, 6, 3, 6, 12)
		last := r.Runs[2]
		if !errors.Is(err, find.ErrTokenBudget) || last.Status != find.SweepStopped ||
			last.Success < 12 || last.Usage.Output != 2000*last.Success {
			t.Errorf("%v, %+v", err, last)
		}
		if r.Spent.Tokens() > cfg.Budget.Tokens {
			t.Errorf("%d tokens spent of %d", r.Spent.Tokens(), cfg.Budget.Tokens)
		}
	})
}

func TestSweepWaitsAsRefusalsAskBeforeItGoesBack(t *testing.T) {
	const s = time.Second
	const third = 1100 * time.Millisecond // then the third run is under way
	for name, c := range map[string]struct {
		storm sim.Storm
		wait  time.Duration // between the end of the refused run and the next, at least
		log   string
	}{
		"for a while":         {sim.Storm{From: third, To: 31 * s}, 30 * s, "  waiting 30s, as the provider asks"},
		"no longer than 1m":   {sim.Storm{From: third, To: 301 * s}, 60 * s, "  the provider asks for a wait of 5m0s; waiting the maximum of 1m0s"},
		"not when none asked": {sim.Storm{From: third, To: 31 * s, Silent: true}, 0, "Testing 9 workers"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, _ := imitated(t, sim.Config{Storms: []sim.Storm{c.storm}})
				var refused, next time.Time
				after := ""
				cfg.Log = func(line string) {
					switch {
					case strings.Contains(line, "RATE LIMITED") && refused.IsZero():
						refused = time.Now()
					case !refused.IsZero() && after == "":
						after = line
					}
					if !refused.IsZero() && next.IsZero() && strings.HasPrefix(line, "Testing") {
						next = time.Now()
					}
				}
				r := sweep(t, cfg)
				if wait := next.Sub(refused); wait < c.wait || wait > c.wait+time.Second || !strings.HasPrefix(after, c.log) {
					t.Errorf("next run %v after the refused one, said %q", wait, after)
				}
				if c.storm.To == 31*s && c.wait > 0 {
					want(t, r, 9, 3, 6, 12, 9)
				}
			})
		})
	}
}

func TestSweepEndsWhenTheAllowanceOfADayIsUsedUp(t *testing.T) {
	window := func(words string) *http.Response {
		return answer(429, `{"error":{"message":"`+words+`","type":"usage_limit_reached"}}`)
	}
	for name, c := range map[string]struct {
		refusal     func() *http.Response
		recommended int
		tested      []int
	}{
		"for hours":    {func() *http.Response { return window("You've hit your usage limit. It resets in 5 hours.") }, 3, []int{3, 6}},
		"nobody says":  {func() *http.Response { return window("Rate limit reached: free-models-per-day") }, 3, []int{3, 6}},
		"for a little": {func() *http.Response { return window("You've hit your usage limit. Try again in 20 seconds.") }, 4, []int{3, 6, 4}},
		"for hours, in words alone": {func() *http.Response {
			return answer(429, `{"error":{"message":"Quota exceeded: generate_requests_per_model_per_day"}}`, "Retry-After: 20")
		}, 4, []int{3, 6, 4}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				var mu sync.Mutex
				cfg := over(base(func(*http.Request) (*http.Response, error) {
					mu.Lock()
					defer mu.Unlock()
					if n++; n > 10 && n <= 18 {
						return c.refusal(), nil
					}
					return answer(200, essay), nil
				}))
				r, err := find.Sweep(t.Context(), cfg)
				want(t, r, c.recommended, c.tested...)
				e, ok := errors.AsType[*provider.Error](err)
				if long := len(c.tested) == 2; long != ok || long && e.Kind != sluice.UsageWindow {
					t.Errorf("%v", err)
				}
			})
		})
	}
}

func TestSweepStartsNoRunThatItCannotPayFor(t *testing.T) {
	in, out, most := 2.5, 10.0, 0.05
	for name, c := range map[string]struct {
		change func(*find.Config)
		why    error
		tested []int
	}{
		"no tokens at all":       {func(c *find.Config) { c.Budget.Tokens = 100 }, find.ErrTokenBudget, nil},
		"tokens for half of one": {func(c *find.Config) { c.Budget.Tokens = 4 * 700 }, find.ErrTokenBudget, nil},
		"tokens for one":         {func(c *find.Config) { c.Budget.Tokens = 6 * 700 }, find.ErrTokenBudget, []int{3}},
		"tokens for three":       {func(c *find.Config) { c.Budget.Tokens = 30_000 }, find.ErrTokenBudget, []int{3, 6, 12}},
		"dollars for one":        {func(c *find.Config) { c.Budget.MaxCost, c.Budget.PriceIn, c.Budget.PriceOut = &most, &in, &out }, find.ErrMaxCost, []int{3}},
		"tokens for all":         {func(c *find.Config) { c.MaxWorkers = 12 }, nil, []int{3, 6, 12}},
		"tokens, no bounds":      {func(c *find.Config) { c.MaxWorkers, c.Budget.Tokens = 12, -1 }, nil, []int{3, 6, 12}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, server := imitated(t, sim.Config{OutputTokens: 600})
				c.change(&cfg)
				r, err := find.Sweep(t.Context(), cfg)
				if !errors.Is(err, c.why) || err != nil && r.Error != err.Error() {
					t.Errorf("%v, want %v, error %q", err, c.why, r.Error)
				}
				recommended := 0
				if len(c.tested) > 0 {
					recommended = slices.Max(c.tested)
				}
				want(t, r, recommended, c.tested...)
				stats := server.Stats()
				if used := stats.InputTokens + stats.OutputTokens; stats.Abandoned > 0 || cfg.Budget.Tokens > 0 && used > cfg.Budget.Tokens {
					t.Errorf("%+v: calls were cut off, or the budget was overdrawn", stats)
				}
			})
		})
	}
}

func TestSweepThatAnswersInLessThanAllowedGoesOnForThatMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := imitated(t, sim.Config{OutputTokens: 20})
		cfg.MinOutputTokens, cfg.Budget.Tokens, cfg.MaxWorkers = 8000, 120_000, 12
		want(t, sweep(t, cfg), 12, 3, 6, 12) // 42 calls of 8000 are 336,000, at most 12 are open
	})
}

func TestSweepAtMostIsTheWorstThatCanHappen(t *testing.T) {
	for most, calls := range map[int]int{
		1: 6, 2: 6 + 6, 3: 6 + 6 + 6, 4: 6 + 6 + 6, 5: 6 + 10 + 8, 6: 6 + 12 + 8, 12: 6 + 12 + 24 + 18 + 14, 20: 6 + 12 + 24 + 36 + 40,
		100: 6 + 12 + 24 + 36 + 54 + 80 + 120 + 180 + 200,
	} {
		cfg := over(base(nil))
		in, out := 1e6, 2e6 // a dollar a token, and two
		cfg.MaxWorkers, cfg.Budget.PriceIn, cfg.Budget.PriceOut = most, &in, &out
		cfg.Budget.Tokens = -1
		f, err := find.EstimateSweep(cfg)
		if s := f.Max; err != nil || s.Requests != calls || s.Tokens <= 600*calls || *s.Cost != float64(s.Tokens+500*calls) {
			t.Errorf("up to %d: %+v, %v; want %d calls", most, s, err, calls)
		}
	}
	if _, err := find.EstimateSweep(find.Config{}); err == nil {
		t.Error("a search of nothing may cost something")
	}
}

func TestSweepTellsItsProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := imitated(t, sim.Config{Concurrency: 10, Latency: 700 * time.Millisecond, Jitter: 0.3})
		var heard []find.Progress
		var at []time.Time
		cfg.Progress = func(p find.Progress) { heard, at = append(heard, p), append(at, time.Now()) }
		r := sweep(t, cfg)
		want(t, r, 9, 3, 6, 12, 9)
		var starts []string
		for i, p := range heard {
			if p.Phase != find.PhaseSweep || p.Low > p.High || r.Recommended < p.Low || r.Recommended > p.High {
				t.Errorf("%+v", p)
			}
			if strings.Contains(p.Doing, ", 0 of ") {
				starts = append(starts, p.Doing)
			} else if d := at[i].Sub(at[i-1]); d < 250*time.Millisecond {
				t.Errorf("%q after %v", p.Doing, d)
			}
			if i > 0 && (p.Spent.Requests < heard[i-1].Spent.Requests || p.Elapsed < heard[i-1].Elapsed) {
				t.Errorf("%+v came after %+v", p, heard[i-1])
			}
		}
		each := []string{"3 workers, 0 of 6 requests", "6 workers, 0 of 12 requests", "12 workers, 0 of 24 requests", "9 workers, 0 of 18 requests"}
		if diff := cmp.Diff(each, slices.Compact(starts)); diff != "" {
			t.Error(diff)
		}
		if len(heard) < 6 || heard[len(heard)-1].High != 11 {
			t.Errorf("%+v", heard)
		}
	})
}
