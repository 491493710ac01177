package provider_test

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
	"github.com/sluice-llm/sluice/provider"
)

// upstreams makes some of one model, m, each with a Scheduler of its own.
func upstreams(t *testing.T, cfg provider.UpstreamsConfig, names ...string) *provider.Upstreams {
	t.Helper()
	for _, name := range names {
		cfg.Upstreams = append(cfg.Upstreams, upstream(t, name, sluice.Config{Limits: sluice.Limits{Concurrent: 1}}))
	}
	u, err := provider.NewUpstreams(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, up := range u.All() {
			for _, lane := range up.Scheduler.Snapshot().Lanes {
				if lane.InFlight != 0 || lane.Waiting != 0 {
					t.Errorf("%s: %d in flight, %d waiting at the end", up.Name, lane.InFlight, lane.Waiting)
				}
			}
		}
	})
	return u
}

func upstream(t *testing.T, name string, cfg sluice.Config) provider.Upstream {
	t.Helper()
	s, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	p, _ := provider.Lookup("openai-compatible")
	return provider.Upstream{Name: name, Provider: p, BaseURL: "http://" + name + ".test", Scheduler: s, Models: map[string]string{"m": "m"}}
}

var errRefused = errors.New("refused")

// do makes a call of the model m, whose attempts come to what fn says of the upstream's name.
func do(ctx context.Context, u *provider.Upstreams, fn func(name string) sluice.Outcome) (sluice.Tally, error) {
	return u.Do(ctx, sluice.Call{Lane: "m"}, provider.ChatCompletions, func(_ context.Context, _ *sluice.Permit, via provider.Via) sluice.Outcome {
		return fn(via.Upstream.Name)
	})
}

func TestACallThatHadItsPermitWhenTheUpstreamWasLeftOutIsNotSent(t *testing.T) {
	for range 50 { // whether the permit or the move comes first is up to the runtime
		synctest.Test(t, func(t *testing.T) {
			only := upstream(t, "a", sluice.Config{Limits: sluice.Limits{Concurrent: 1}, Attempts: 1})
			u := upstreams(t, provider.UpstreamsConfig{Upstreams: []provider.Upstream{only}, Attempts: 1})
			var calls sync.WaitGroup
			for i := range 3 {
				calls.Go(func() {
					tally, err := do(t.Context(), u, func(string) sluice.Outcome {
						time.Sleep(time.Second)
						return sluice.Outcome{Kind: sluice.Auth, Err: errRefused}
					})
					failure, ok := errors.AsType[*sluice.CallError](err)
					none, also := errors.AsType[*provider.NoneLeftError](err)
					if !ok || !also || failure.Kind != sluice.Auth || len(none.Left) != 1 || !errors.Is(err, errRefused) {
						t.Errorf("error %v", err)
					}
					if want := 1; tally.Attempts > want || i > 0 && tally.Attempts+tally.Throttles > 1 || failure.Tally != tally {
						t.Errorf("tally %+v", tally)
					}
				})
				synctest.Wait()
			}
			calls.Wait()
			if sent := u.Report()[0].Sent; sent != 1 {
				t.Errorf("%d calls were sent", sent)
			}
		})
	}
}

func TestTalliesAreOfWhatWasSent(t *testing.T) {
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			u := upstreams(t, provider.UpstreamsConfig{}, "a")
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
		u := upstreams(t, provider.UpstreamsConfig{Prefer: provider.PreferCost}, "a", "b")
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
			u := upstreams(t, provider.UpstreamsConfig{Attempts: 4}, "a", "b", "c")
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
		u := upstreams(t, provider.UpstreamsConfig{Attempts: 6}, "a", "b", "c", "d", "e")
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
			u := upstreams(t, provider.UpstreamsConfig{Attempts: 4}, "a", "b", "c")
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
		u := upstreams(t, provider.UpstreamsConfig{MaxThrottles: 5, Attempts: 1}, "a", "b")
		at := make(map[string]int)
		tally, err := do(t.Context(), u, func(name string) sluice.Outcome {
			at[name]++
			return sluice.Outcome{Kind: sluice.RateLimit}
		})
		failure, ok := errors.AsType[*sluice.CallError](err)
		if !ok || failure.Kind != sluice.RateLimit || tally.Throttles != 6 || tally.Attempts != 0 || at["a"] < 2 || at["b"] < 2 {
			t.Errorf("%+v, %v, %v", tally, err, at)
		}
	})
}

func TestWhatAnAnswerOrACommandIsToBlameForStaysWhereItIs(t *testing.T) {
	for _, kind := range []sluice.Kind{sluice.InvalidOutput, sluice.CommandFailed} {
		synctest.Test(t, func(t *testing.T) {
			u := upstreams(t, provider.UpstreamsConfig{Attempts: 3}, "a", "b")
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
		small := upstream(t, "small", sluice.Config{Limits: sluice.Limits{TPM: 100}})
		u := upstreams(t, provider.UpstreamsConfig{Upstreams: []provider.Upstream{small}}, "other", "last")
		at := ""
		_, err := u.Do(t.Context(), sluice.Call{Lane: "m", Cost: sluice.Cost{MaxOutput: 500}}, provider.ChatCompletions,
			func(_ context.Context, _ *sluice.Permit, via provider.Via) sluice.Outcome {
				at += via.Upstream.Name + " "
				if via.Upstream.Name == "other" {
					return sluice.Outcome{Kind: sluice.RateLimit, TooLarge: true}
				}
				return sluice.Outcome{}
			})
		if err != nil || at != "other last " {
			t.Errorf("at %q, %v", at, err)
		}
	})
}

func TestPanicsAndGoexitLeaveNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := upstreams(t, provider.UpstreamsConfig{}, "a", "b")
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
		for _, up := range u.All() {
			up.Scheduler.Close()
		}
		if _, err := do(t.Context(), u, nil); !errors.Is(err, sluice.ErrClosed) {
			t.Errorf("error %v", err)
		}
	})
}

func TestUpstreamsThatCannotBeAreRefused(t *testing.T) {
	a, b := upstream(t, "a", sluice.Config{}), upstream(t, "b", sluice.Config{})
	change := func(up provider.Upstream, f func(*provider.Upstream)) provider.Upstream { f(&up); return up }
	for want, all := range map[string][]provider.Upstream{
		"provider: 0 upstreams: want 1 to 64":                                      nil,
		`provider: upstream "": it has no name`:                                    {change(a, func(up *provider.Upstream) { up.Name = "" })},
		`provider: upstream "a": it has no Scheduler`:                              {change(a, func(up *provider.Upstream) { up.Scheduler = nil })},
		`provider: two upstreams are named "a"`:                                    {a, a},
		`provider: upstream "b": account "x" has another Scheduler`:                {change(a, func(up *provider.Upstream) { up.Account = "x" }), change(b, func(up *provider.Upstream) { up.Account = "x" })},
		`provider: upstream "a": model "m" has no id`:                              {change(a, func(up *provider.Upstream) { up.Models = map[string]string{"m": ""} })},
		`provider: upstream "a": base URL "a:b:c" is not an http or https address`: {change(a, func(up *provider.Upstream) { up.BaseURL = "a:b:c" })},
	} {
		if _, err := provider.NewUpstreams(provider.UpstreamsConfig{Upstreams: all}); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestTheModelOfABodyIsReplacedAndNothingElse(t *testing.T) {
	for body, want := range map[string]string{
		`{"model":"a"}`: `{"model":"b\"c"}`,
		` { "x" : {"model":"a"}, "model" :  "a" , "y":1} `: ` { "x" : {"model":"a"}, "model" :"b\"c" , "y":1} `,
		`{"model":1,"model":"a"}`:                          `{"model":"b\"c","model":"b\"c"}`,
		`{"mod\u0065l":"a"}`:                               `{"mod\u0065l":"b\"c"}`,
		`{"contents":[]}`:                                  `{"contents":[]}`,
		`{"model":"a"`:                                     `{"model":"a"`,
		`["model"]`:                                        `["model"]`,
		``:                                                 ``,
	} {
		if got := string(provider.WithModel([]byte(body), `b"c`)); got != want {
			t.Errorf("%s becomes %s, want %s", body, got, want)
		}
	}
}

// While somebody is told that a key was refused, calls that wait there get permits of the account, and are not sent. That is
// no failure of the provider, whose other key goes on.
func TestCallsThatAreNotSentDoNotPauseTheAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := upstream(t, "bad", sluice.Config{Limits: sluice.Limits{Concurrent: 8}})
		bad.Account, bad.Keys = "acme", []provider.Key{{From: "BAD", Value: "bad"}}
		good := bad
		good.Name, good.Keys = "good", []provider.Key{{From: "GOOD", Value: "good"}}
		u := upstreams(t, provider.UpstreamsConfig{
			Upstreams: []provider.Upstream{bad, good},
			LeftOut:   func(provider.LeftOut) { time.Sleep(time.Second) },
		})
		start := time.Now()
		var calls sync.WaitGroup
		for range 40 {
			calls.Go(func() {
				_, err := do(t.Context(), u, func(name string) sluice.Outcome {
					if name == "bad" {
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
					if e.Type == sluice.EventGaveUp {
						told = append(told, e.Outcome.Kind)
					}
				})
				cfg := provider.UpstreamsConfig{Attempts: 2, MaxThrottles: 1}
				for _, name := range []string{"a", "b"} {
					cfg.Upstreams = append(cfg.Upstreams, upstream(t, name, sluice.Config{Observer: observe}))
				}
				u := upstreams(t, cfg)
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
