package find_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/suite"
)

// short is an answer of one word.
const short = `{"choices":[{"message":{"content":"Yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":20,"completion_tokens":1}}`

const noCapacity = `{"error":{"message":"overloaded","type":"server_error"}}`

// isReal reports whether a call is large enough to be a real one.
func isReal(r *http.Request) bool { return r.ContentLength > 500 }

// willing answers everything, in its time.
func willing(r *http.Request) *http.Response {
	if isReal(r) {
		time.Sleep(2 * time.Second)
		return answer(200, essay)
	}
	time.Sleep(300 * time.Millisecond)
	return answer(200, short)
}

// until is willing for so many calls, and then something else.
func until(n int64, then func(*http.Request) (*http.Response, error)) base {
	var calls atomic.Int64
	return func(r *http.Request) (*http.Response, error) {
		if calls.Add(1) > n {
			return then(r)
		}
		return willing(r), nil
	}
}

// always answers so, soon.
func always(status int, body string, headers ...string) base {
	return func(*http.Request) (*http.Response, error) {
		time.Sleep(50 * time.Millisecond)
		return answer(status, body, headers...), nil
	}
}

func hangs(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// A server that is gone in the middle of a search is not taken for one without limits, and is left alone soon.
func TestServerThatFailsFromSomeCallOnIsLeftAlone(t *testing.T) {
	unreachable := func(*http.Request) (*http.Response, error) { return nil, reset() }
	for _, one := range []struct {
		name string
		then base
		most time.Duration
	}{
		{"connections are reset", unreachable, 3 * time.Minute},
		{"nothing is answered", hangs, 15 * time.Minute}, // three tries of two minutes, twice
		{"503", always(503, noCapacity), 6 * time.Minute},
		{"a page", always(200, "<html>Sign in</html>"), 3 * time.Minute},
		{"an empty object", always(200, "{}"), 3 * time.Minute},
		{"an error in a good answer", always(200, `{"error":{"message":"boom","code":500}}`), 3 * time.Minute},
		{"404", always(404, `{"error":{"message":"no such model"}}`), 3 * time.Minute},
	} {
		for _, n := range suite.Size([]int64{3, 200}, []int64{3, 50, 200, 300}) {
			t.Run(one.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					r, err := find.Auto(t.Context(), over(until(n, one.then)))
					if err == nil || r.Workers > 1 {
						t.Errorf("%d workers after %d calls, error %v", r.Workers, n, err)
					}
					if r.Took > one.most || r.Spent.Requests > 2000 {
						t.Errorf("after %d calls it took %v and made %d calls: %v", n, r.Took, r.Spent.Requests, err)
					}
					if one.name == "nothing is answered" && r.Spent.Estimated == 0 {
						t.Error("calls that hang may be billed, and cost nothing")
					}
				})
			})
		}
	}
}

func TestSoakThatFindsNoCapacityProvesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var real atomic.Int64
		cfg := over(base(func(r *http.Request) (*http.Response, error) {
			if isReal(r) && real.Add(1) > 3 {
				return answer(503, noCapacity), nil
			}
			return willing(r), nil
		}))
		cfg.Told = sluice.Limits{RPM: 1e6, TPM: 1e9} // nothing to certify before the soak
		r, err := find.Auto(t.Context(), cfg)
		if !errors.Is(err, find.ErrUnreliable) || r.Workers > 1 {
			t.Errorf("%d workers, error %v", r.Workers, err)
		}
	})
}

func TestRefusalThatAsksForHoursDoesNotHoldTheSoak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := over(until(300, always(429, limited, "Retry-After: 3600")))
		r, err := find.Auto(t.Context(), cfg)
		if err != nil || r.Workers != 0 || r.Took > 30*time.Minute {
			t.Errorf("%d workers after %v, error %v", r.Workers, r.Took, err)
		}
	})
}

func TestOneWorkerWhoseEveryCallIsRefusedIsNotSafe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := over(until(300, always(429, limited)))
		r, err := find.Auto(t.Context(), cfg)
		if err != nil || r.Workers != 0 || r.Bound != find.BoundNothing {
			t.Errorf("%d workers, bound %s, error %v", r.Workers, r.Bound, err)
		}
	})
}

// Some models think for longer than they are told to. What is open is counted as the longest that was met.
func TestModelThatThinksForLongerThanItMayStaysWithinTheBudget(t *testing.T) {
	for _, budget := range []int{100_000, 300_000, 1_000_000} {
		synctest.Test(t, func(t *testing.T) {
			thought := strings.Replace(short, ":1}", ":4000}", 1)
			cfg := over(base(func(r *http.Request) (*http.Response, error) {
				willing(r)
				return answer(200, thought), nil
			}))
			cfg.Budget.Tokens = budget
			if r, err := find.Auto(t.Context(), cfg); r.Spent.Tokens() > budget {
				t.Errorf("spent %d tokens of %d: %v", r.Spent.Tokens(), budget, err)
			}
		})
	}
}

// A prompt may have far more tokens than are estimated. Only the first calls are open before a response shows it.
func TestInputsAboveTheirEstimatesStayWithinTheBudget(t *testing.T) {
	for _, budget := range []int{100_000, 300_000} {
		synctest.Test(t, func(t *testing.T) {
			long := strings.Replace(short, ":20,", ":5000,", 1)
			cfg := over(base(func(r *http.Request) (*http.Response, error) {
				willing(r)
				return answer(200, long), nil
			}))
			cfg.Budget.Tokens = budget
			if r, err := find.Auto(t.Context(), cfg); r.Spent.Tokens() > budget {
				t.Errorf("spent %d tokens of %d: %v", r.Spent.Tokens(), budget, err)
			}
		})
	}
}

func TestAnswersThatStateNoUsageAreNotFree(t *testing.T) {
	for name, body := range map[string]string{
		"none":     `{"choices":[{"message":{"content":"Yes"},"finish_reason":"stop"}]}`,
		"zero":     strings.NewReplacer(":1}", ":0}", ":20,", ":0,").Replace(short),
		"negative": strings.NewReplacer(":1}", ":-9000000}", ":20,", ":-50,").Replace(short),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg := over(base(func(r *http.Request) (*http.Response, error) {
					willing(r)
					return answer(200, body, "x-ratelimit-limit-tokens: 20000", "x-ratelimit-remaining-tokens: 19990", "x-ratelimit-reset-tokens: 30ms"), nil
				}))
				r, err := find.Auto(t.Context(), cfg)
				if err != nil || r.Bound != find.BoundTokens || r.Spent.Tokens() < 3*500 || r.Spent.Estimated != r.Spent.Tokens() {
					t.Errorf("%d workers by %s, %+v spent, error %v", r.Workers, r.Bound, r.Spent, err)
				}
			})
		})
	}
}

func TestUsageBeyondAnyBudgetEndsTheSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		huge := strings.NewReplacer(":1}", ":99999999}", ":20,", ":99999999,").Replace(short)
		cfg := over(base(func(r *http.Request) (*http.Response, error) { return answer(200, huge), nil }))
		if r, err := find.Auto(t.Context(), cfg); !errors.Is(err, find.ErrTokenBudget) || r.Spent.Requests > 1 {
			t.Errorf("%d calls, error %v", r.Spent.Requests, err)
		}
	})
}

func TestFiguresThatWouldOverflowAreRefused(t *testing.T) {
	price, endless := 1.0, 1e300
	for field, change := range map[string]func(*find.Config){
		"MinOutputTokens": func(c *find.Config) { c.MinOutputTokens = 1<<63 - 1 },
		"PriceIn":         func(c *find.Config) { c.Budget.PriceIn, c.Budget.PriceOut = &endless, &price },
		"PriceOut":        func(c *find.Config) { c.Budget.PriceIn, c.Budget.PriceOut = &price, &endless },
		"MaxCost":         func(c *find.Config) { c.Budget.PriceIn, c.Budget.PriceOut, c.Budget.MaxCost = &price, &price, &endless },
	} {
		cfg := over(base(func(*http.Request) (*http.Response, error) { t.Error("a call"); return nil, reset() }))
		change(&cfg)
		_, err := find.Auto(t.Context(), cfg)
		if e, ok := errors.AsType[*fault.FieldError](err); !ok || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
}

func TestLimitOfADayThatLastsForEverIsNoNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := over(until(1e9, nil))
		cfg.MaxWorkers, cfg.Told = 2, sluice.Limits{RPD: 1 << 53}
		r, err := find.Auto(t.Context(), cfg)
		if notes := strings.Join(r.Notes, "\n"); err != nil || strings.Contains(notes, "a day's") {
			t.Errorf("notes %q, error %v", notes, err)
		}
	})
}

// Connections are opened by a question that some servers never answer.
func TestServerThatAnswersNoHeadIsSearchedAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conns := make(pipes)
		server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodHead {
				<-r.Context().Done()
				return
			}
			io.Copy(io.Discard, r.Body)
			time.Sleep(300 * time.Millisecond)
			io.WriteString(w, short)
		})}
		var serving sync.WaitGroup
		serving.Go(func() { server.Serve(conns) })
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			own, its := net.Pipe()
			conns <- its
			return own, nil
		}}
		cfg := over(transport)
		cfg.Target.BaseURL, cfg.MaxWorkers, cfg.Timeout = "http://pipe/v1", 4, 2*time.Second
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if r, err := find.Auto(ctx, cfg); err != nil || r.Workers != 4 {
			t.Errorf("%d workers, error %v", r.Workers, err)
		}
		transport.CloseIdleConnections()
		server.Close()
		serving.Wait()
	})
}

// pipes is a listener that accepts connections in memory.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if conn, ok := <-p; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p pipes) Close() error {
	close(p)
	return nil
}

func (p pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
