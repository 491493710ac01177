package provider_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// response is the outcome of a response with that status and body.
func response(status int, body string) sluice.Outcome {
	p, _ := provider.Lookup("openai-compatible")
	return provider.Classify(p, status, nil, []byte(body), time.Now()).Outcome(p, status, "")
}

var (
	noKey = func() sluice.Outcome {
		return response(401, `{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}`)
	}
	noMoney = func() sluice.Outcome {
		return response(429, `{"error":{"message":"No quota","code":"insufficient_quota"}}`)
	}
	noReason = func() sluice.Outcome { return response(401, `Unauthorized`) }
)

// served is what came of calls to upstreams.
type served struct {
	mu       sync.Mutex
	sent     map[string]int // by upstream and key
	outcomes []sluice.Outcome
	refused  int
	left     []provider.Exclusion
	took     time.Duration
}

// serve makes n calls, eight at a time, each of which takes 50 ms. answer is the outcome of an attempt.
func serve(t *testing.T, n int, ups []provider.Upstream, answer func(call int, via provider.Destination, sent int) sluice.Outcome) *served {
	t.Helper()
	s := &served{sent: make(map[string]int), outcomes: make([]sluice.Outcome, n)}
	u, err := provider.NewUpstreams(provider.UpstreamsConfig{Upstreams: ups, Excluded: func(l provider.Exclusion) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.left = append(s.left, l)
	}})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	var all sync.WaitGroup
	next := make(chan int)
	for range 8 {
		all.Go(func() {
			for call := range next {
				_, err := u.Do(t.Context(), sluice.Call{Lane: "m"}, provider.ChatCompletions, func(_ context.Context, _ *sluice.Permit, via provider.Destination) sluice.Outcome {
					s.mu.Lock()
					s.sent[via.Upstream.Name+via.Key]++
					sent := s.sent[via.Upstream.Name+via.Key]
					s.mu.Unlock()
					time.Sleep(50 * time.Millisecond)
					o := answer(call, via, sent)
					if o.Kind == sluice.Auth {
						s.mu.Lock()
						s.refused++
						s.mu.Unlock()
					}
					return o
				})
				if failed, ok := errors.AsType[*sluice.CallError](err); ok {
					s.outcomes[call] = failed.Outcome
				} else if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for call := range n {
		next <- call
		synctest.Wait() // the calls start in this order
	}
	close(next)
	all.Wait()
	s.took = time.Since(start)
	return s
}

// failed returns the number of calls that failed.
func (s *served) failed() (n int) {
	for i := range s.outcomes {
		if s.outcomes[i].Kind != sluice.OK {
			n++
		}
	}
	return n
}

// keyed returns an upstream with keys, which takes eight requests at a time.
func keyed(t *testing.T, name string, keys ...string) provider.Upstream {
	up := upstream(t, name, sluice.Config{Limits: sluice.Limits{Concurrency: 8}})
	for _, k := range keys {
		up.Keys = append(up.Keys, provider.Key{From: k, Value: k})
	}
	return up
}

func TestAKeyIsJudgedByWhatElseHappens(t *testing.T) {
	t.Run("one refusal", func(t *testing.T) {
		for _, refused := range []func() sluice.Outcome{noKey, noReason} {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, 1000, []provider.Upstream{keyed(t, "a", "k")}, func(_ int, _ provider.Destination, sent int) sluice.Outcome {
					if sent == 500 {
						return refused()
					}
					return sluice.Outcome{}
				})
				if s.failed() > 0 || len(s.left) > 0 || s.took > 7*time.Second {
					t.Errorf("%d failed, left out %v, %v", s.failed(), s.left, s.took)
				}
			})
		}
	})
	t.Run("one item is always refused", func(t *testing.T) {
		for _, odd := range []int{500, 999} {
			synctest.Test(t, func(t *testing.T) {
				s := serve(t, 1000, []provider.Upstream{keyed(t, "a", "k")}, func(call int, _ provider.Destination, _ int) sluice.Outcome {
					if call == odd {
						return noKey()
					}
					return sluice.Outcome{}
				})
				if s.failed() != 1 || s.outcomes[odd].Kind != sluice.Rejected || s.refused > 3 || len(s.left) > 0 || s.took > 9*time.Second {
					t.Errorf("%d failed, item %d: %v, %d refusals, left out %v, %v", s.failed(), odd, s.outcomes[odd].Kind, s.refused, s.left, s.took)
				}
			})
		}
	})
	t.Run("one item alone, and upstreams that nothing was sent to", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, 2, []provider.Upstream{keyed(t, "a", "k"), keyed(t, "b", "l"), keyed(t, "c", "m")}, func(call int, _ provider.Destination, _ int) sluice.Outcome {
				if call == 1 {
					time.Sleep(time.Second) // the other one is accepted
					return noKey()
				}
				return sluice.Outcome{}
			})
			if s.outcomes[1].Kind != sluice.Rejected || len(s.left) > 0 || s.took > 10*time.Second {
				t.Errorf("item %v, left out %v, %v", s.outcomes[1].Kind, s.left, s.took)
			}
		})
	})
	t.Run("revoked, and each request waits for its turn", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			up := upstream(t, "a", sluice.Config{Limits: sluice.Limits{RPM: 20, Concurrency: 1}})
			up.Keys = []provider.Key{{From: "k", Value: "k"}}
			s := serve(t, 60, []provider.Upstream{up}, func(_ int, _ provider.Destination, sent int) sluice.Outcome {
				if sent > 50 {
					return noKey()
				}
				return sluice.Outcome{}
			})
			for call, o := range s.outcomes {
				if o.Kind != sluice.OK && o.Kind != sluice.Auth {
					t.Errorf("call %d: %v", call, o.Kind)
				}
			}
			if s.failed() != 10 || len(s.left) != 1 {
				t.Errorf("%d failed, left out %v", s.failed(), s.left)
			}
		})
	})
	t.Run("one item of a slow model is always refused", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, 40, []provider.Upstream{keyed(t, "a", "k")}, func(call int, _ provider.Destination, _ int) sluice.Outcome {
				if call == 20 {
					return noKey()
				}
				time.Sleep(time.Minute)
				return sluice.Outcome{}
			})
			if s.failed() != 1 || s.outcomes[20].Kind != sluice.Rejected || s.refused > 3 || len(s.left) > 0 || s.took > 8*time.Minute {
				t.Errorf("%d failed, item %v, %d refusals, left out %v, %v", s.failed(), s.outcomes[20].Kind, s.refused, s.left, s.took)
			}
		})
	})
	t.Run("revoked", func(t *testing.T) {
		for name, refused := range map[string]func() sluice.Outcome{"by a code": noKey, "by a status": noReason} {
			for _, from := range []int{0, 300, 998} {
				synctest.Test(t, func(t *testing.T) {
					var once sync.Once
					var since time.Time
					s := serve(t, 1000, []provider.Upstream{keyed(t, "a", "k")}, func(_ int, _ provider.Destination, sent int) sluice.Outcome {
						if sent <= from {
							return sluice.Outcome{}
						}
						once.Do(func() { since = time.Now() })
						return refused()
					})
					if s.failed() != 1000-from || s.refused > 8+3 || len(s.left) != 1 || !s.left[0].Whole || time.Since(since) > 10*time.Second {
						t.Errorf("%s, from %d: %d failed, %d refusals, left out %v", name, from, s.failed(), s.refused, s.left)
					}
				})
			}
		}
	})
	t.Run("one key of three is revoked", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, 1000, []provider.Upstream{keyed(t, "a", "k1", "k2", "k3")}, func(_ int, via provider.Destination, sent int) sluice.Outcome {
				if via.Key == "k2" && sent > 100 {
					return noKey()
				}
				return sluice.Outcome{}
			})
			if s.failed() > 0 || len(s.left) != 1 || s.left[0].Key != "k2" || s.left[0].Whole || s.took > 9*time.Second {
				t.Errorf("%d failed, left out %v, %v", s.failed(), s.left, s.took)
			}
		})
	})
	t.Run("an account is spent, and gets money", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			s := serve(t, 3000, []provider.Upstream{keyed(t, "a", "k"), keyed(t, "b", "l")}, func(_ int, via provider.Destination, _ int) sluice.Outcome {
				if since := time.Since(start); via.Upstream.Name == "a" && since > 2*time.Second && since < 8*time.Second {
					return noMoney()
				}
				return sluice.Outcome{}
			})
			if s.failed() > 0 || len(s.left) != 2 || s.left[0].Kind != sluice.QuotaExhausted || s.left[1].Kind != sluice.OK || s.sent["ak"] < 600 {
				t.Errorf("%d failed, left out %v, %v sent", s.failed(), s.left, s.sent)
			}
		})
	})
}

func TestWordsLeaveNobodyOut(t *testing.T) {
	const words = "Incorrect API key provided. You exceeded your current quota. Usage limit reached, try again in 20h."
	for name, status := range map[string]int{"bad": 400, "forbidden": 403, "missing": 404, "invalid": 422, "slow": 429, "broken": 500} {
		for _, body := range []string{words, fmt.Sprintf(`{"error":{"message":%q}}`, words), `<html><title>` + words + `</title></html>`} {
			synctest.Test(t, func(t *testing.T) {
				ups := []provider.Upstream{upstream(t, "a", sluice.Config{Attempts: 1, MaxThrottles: -1}), upstream(t, "b", sluice.Config{Attempts: 1, MaxThrottles: -1})}
				s := serve(t, 100, ups, func(call int, _ provider.Destination, _ int) sluice.Outcome {
					if call%10 == 0 {
						return response(status, body)
					}
					return sluice.Outcome{}
				})
				if len(s.left) > 0 || s.took > 20*time.Second {
					t.Errorf("%s: %d %s: left out %v, %v", name, status, body, s.left, s.took)
				}
				for call, o := range s.outcomes {
					if o.Kind.Fatal() || call%10 != 0 && o.Kind != sluice.OK {
						t.Errorf("%d %s: call %d: %v", status, body, call, o.Kind)
					}
				}
			})
		}
	}
}

func TestARequestRejectedForItselfGoesToOneOtherAccount(t *testing.T) {
	for name, rejection := range map[string]func() sluice.Outcome{
		"429": func() sluice.Outcome { return response(429, "") }, "401": noKey, "403": func() sluice.Outcome { return response(403, "<html>") },
		"400": func() sluice.Outcome { return response(400, `{"error":{"message":"bad"}}`) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				seen := make(map[string]bool)
				var mu sync.Mutex
				s := serve(t, 2000, []provider.Upstream{keyed(t, "a", "k"), keyed(t, "b", "l"), keyed(t, "c", "m"), keyed(t, "d", "n")}, func(call int, via provider.Destination, _ int) sluice.Outcome {
					if call != 500 {
						return sluice.Outcome{}
					}
					mu.Lock()
					defer mu.Unlock()
					seen[via.Upstream.Name] = true
					return rejection()
				})
				most := map[string]int{"429": 2, "401": 2, "403": 1, "400": 1}[name]
				total := 0
				for _, n := range s.sent {
					total += n
				}
				if s.failed() != 1 || len(seen) > most || total > 2000+50 {
					t.Errorf("%d failed, the request went to %v, %d were sent", s.failed(), seen, total)
				}
			})
		})
	}
}
