package gateway_test

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/provider"
)

// recorded returns a Traffic, and the records of the requests that ended so far.
func recorded() (*gateway.Traffic, func() []gateway.Record) {
	var mu sync.Mutex
	var all []gateway.Record
	return gateway.NewTraffic(func(r *gateway.Record) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, *r)
		}), func() []gateway.Record {
			mu.Lock()
			defer mu.Unlock()
			return all
		}
}

func last[T any](all []T) T { return all[len(all)-1] }

// watched returns a gateway with one slot, whose calls take ten seconds, and its records.
func watched(t *testing.T, change func(*gateway.Config)) (*gateway.Gateway, *gateway.Traffic, func() []gateway.Record) {
	t.Helper()
	traffic, ended := recorded()
	cfg := configOf(t, newScheduler(t, 1), tripper(func(*http.Request) string { time.Sleep(10 * time.Second); return "yes" }))
	cfg.Traffic = traffic
	if change != nil {
		change(&cfg)
	}
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g, traffic, ended
}

func request(ctx context.Context, path, body string, header ...string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://127.0.0.1"+path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	return r
}

const hello = `{"model":"m","messages":[{"role":"user","content":"hello"}]}`

func TestTrafficShowsWhatWaitsAndWhatIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, traffic, ended := watched(t, nil)
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() { asked(g) })
		}
		for second, want := range map[int]string{5: "2 1 0", 10: "1 1 1", 20: "0 1 2", 30: "0 0 3"} {
			calls.Go(func() {
				time.Sleep(time.Duration(second)*time.Second + time.Millisecond)
				s := traffic.Snapshot()
				n := 0
				for _, u := range s.Uses {
					n += u.Ended
				}
				if got := fmt.Sprint(s.Waiting, s.Open, n); got != want {
					t.Errorf("after %d s: waiting, open, ended %s, want %s", second, got, want)
				}
			})
		}
		calls.Wait()
		for i, r := range ended() {
			wait := time.Duration(10*i) * time.Second
			if r.Kind != "ok" || r.Status != 200 || r.Model != "m" || r.Upstream != "house" || r.Endpoint != "/v1/chat/completions" || r.Tries != 1 {
				t.Errorf("%+v", r)
			}
			if r.Wait != wait || r.Latency != wait+10*time.Second || r.First != 10*time.Second {
				t.Errorf("call %d: waited %v, took %v, began after %v", i, r.Wait, r.Latency, r.First)
			}
		}
		s := traffic.Snapshot()
		if len(s.Uses) != 1 || s.Uses[0] != (gateway.Use{Model: "m", Ended: 3, Input: s.Uses[0].Input, Output: s.Uses[0].Output, Unpriced: s.Uses[0].Unpriced}) {
			t.Errorf("%+v", s.Uses)
		}
		n, waited := 0, 0
		for _, at := range s.Times {
			n, waited = n+at.Ended, max(waited, at.Waiting)
		}
		if len(s.Times) != 90 || n != 3 || waited != 2 {
			t.Errorf("%d times, in which %d ended and %d waited at once", len(s.Times), n, waited)
		}
		time.Sleep(16 * time.Minute)
		for _, at := range traffic.Snapshot().Times {
			if at != (gateway.TimeTraffic{}) {
				t.Errorf("still there after 16 minutes: %+v", at)
			}
		}
	})
}

// A request that waits for long without any event counts in each ten seconds.
func TestARequestThatWaitsIsInAllTimesOfItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, traffic, _ := watched(t, func(c *gateway.Config) {
			c.Base = tripper(func(*http.Request) string { time.Sleep(5 * time.Minute); return "yes" })
		})
		var calls sync.WaitGroup
		for range 2 {
			calls.Go(func() { asked(g) })
		}
		time.Sleep(4 * time.Minute)
		n := 0
		for _, at := range traffic.Snapshot().Times {
			n += at.Waiting
		}
		if n != 4*6 && n != 4*6+1 {
			t.Errorf("one request waited in %d times of ten seconds within 4 minutes", n)
		}
		calls.Wait()
	})
}

func TestEachWayToEndHasItsKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, traffic, ended := watched(t, func(c *gateway.Config) { c.Deadlines.Queue = 5 * time.Second })
		impatient, leave := context.WithTimeout(t.Context(), 2*time.Second)
		defer leave()
		foreign := request(t.Context(), "/v1/chat/completions", hello)
		foreign.Host = "rebound.example"
		var calls sync.WaitGroup
		for i, r := range []*http.Request{
			request(t.Context(), "/v1/chat/completions", hello),
			request(t.Context(), "/v1/chat/completions", hello), // is too late
			request(impatient, "/v1/chat/completions", hello),   // goes before its turn
			request(t.Context(), "/v1/nothing", hello),
			request(t.Context(), "/v1/chat/completions", `{"model":"unheard-of"}`),
			request(t.Context(), "/v1/chat/completions", `{`),
			foreign,
		} {
			calls.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				defer aborted()
				g.ServeHTTP(httptest.NewRecorder(), r)
			})
		}
		calls.Wait()
		got := make(map[string]gateway.Record)
		for _, r := range ended() {
			got[r.Kind] = r
		}
		for kind, status := range map[string]int{
			"ok": 200, "queue_timeout": 429, "client_gone": 0, "not_found": 404, "model_not_found": 404, "invalid_request": 400, "forbidden": 403,
		} {
			if r, ok := got[kind]; !ok || r.Status != status {
				t.Errorf("%s: %v %+v", kind, ok, r)
			}
		}
		if r := got["queue_timeout"]; r.Wait != 5*time.Second || r.Tries != 0 || r.Upstream != "" {
			t.Errorf("%+v", r)
		}
		s := traffic.Snapshot()
		if s.Waiting != 0 || s.Open != 0 || len(ended()) != 7 || last(ended()).Kind != "ok" {
			t.Errorf("%+v", s)
		}
	})
}

// aborted takes in what a server takes in of a handler.
func aborted() {
	if v := recover(); v != nil && v != http.ErrAbortHandler {
		panic(v)
	}
}

func TestRequestsHaveAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, ended := watched(t, nil)
		key := "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
		for i, given := range []string{"mine-1", "", "with blank", key, strings.Repeat("x", 500)} {
			w := httptest.NewRecorder()
			g.ServeHTTP(w, request(t.Context(), "/v1/chat/completions", hello, "X-Request-Id", given))
			id := w.Header().Get("X-Sluice-Request-Id")
			if id == "" || id != ended()[i].ID || (id == given) != (i == 0) || strings.Contains(id, key) {
				t.Errorf("%q: the answer has %q, the record %q", given, id, ended()[i].ID)
			}
		}
	})
}

func TestAnswersHaveANameThoughNobodyLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _, ended := watched(t, func(c *gateway.Config) { c.Traffic = nil })
		w := httptest.NewRecorder()
		g.ServeHTTP(w, request(t.Context(), "/v1/chat/completions", hello))
		if w.Code != 200 || w.Header().Get("X-Sluice-Request-Id") == "" || len(ended()) != 0 {
			t.Errorf("%d %v", w.Code, w.Header())
		}
	})
}

// costly is a provider whose first answer is a refusal for now, and whose second used so many tokens.
type costly struct{ calls int }

func (c *costly) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Body.Close()
	c.calls++
	status, text := http.StatusOK, `{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000,"completion_tokens":500,"prompt_tokens_details":{"cached_tokens":200}}}`
	header := http.Header{"Content-Type": {"application/json"}}
	if c.calls == 1 {
		status, text = http.StatusTooManyRequests, `{"error":{"message":"Rate limit reached","type":"requests","code":"rate_limit_exceeded"}}`
		header.Set("Retry-After", "1")
	}
	return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: r}, nil
}

func TestARecordHasWhatAllTriesUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, traffic, ended := watched(t, func(c *gateway.Config) {
			up := *c.Upstreams.All()[0]
			up.Price = func(string) *provider.Price { return provider.FlatPrice(1, 10) }
			ups, err := provider.NewUpstreams(provider.UpstreamsConfig{Upstreams: []provider.Upstream{up}})
			if err != nil {
				t.Fatal(err)
			}
			c.Upstreams, c.Base = ups, &costly{}
		})
		asked(g)
		r := ended()[0]
		if want := (sluice.Usage{Input: 1000, CachedInput: 200, Output: 500}); r.Usage != want || r.Tries != 2 || r.Kind != "ok" {
			t.Errorf("%+v", r)
		}
		if !r.HasCost || math.Abs(r.Cost-0.006) > 1e-9 {
			t.Errorf("cost %v %v", r.HasCost, r.Cost)
		}
		if r.Wait < time.Second || r.Wait > 1100*time.Millisecond {
			t.Errorf("waited %v", r.Wait)
		}
		if s := traffic.Snapshot(); s.Uses[0].Input+s.Uses[0].Output != 1500 || s.Uses[0].Throttled != 1 || !near(s.Uses[0].Cost, 0.006) {
			t.Errorf("%+v", s.Uses)
		}
	})
}

func TestAnEarlyHeadIsNotTakenForTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		g, _, ended := watched(t, func(cfg *gateway.Config) {
			cfg.Early = time.Second
			cfg.Deadlines.Total = 30 * time.Second
			cfg.Base = base(func(w *piped, r *http.Request) {
				time.Sleep(5 * time.Second)
				if fails.Load() {
					<-r.Context().Done()
					return
				}
				w.status(200, "text/event-stream")
				_, _ = io.WriteString(w.pw, chatChunks)
				w.pw.Close()
			})
		})
		for range 2 {
			func() {
				defer aborted()
				g.ServeHTTP(httptest.NewRecorder(), request(t.Context(), "/v1/chat/completions", chatStream))
			}()
			fails.Store(true)
		}
		all := ended()
		if all[0].Kind != gateway.KindOK || all[0].First != 5*time.Second {
			t.Errorf("an answer that began after 5s: %s, %v", all[0].Kind, all[0].First)
		}
		if all[1].Kind != "total_timeout" || all[1].First != 0 {
			t.Errorf("an answer that did not begin: %s, %v", all[1].Kind, all[1].First)
		}
	})
}
