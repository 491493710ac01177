package pool_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/pool"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

type tripper func(*http.Request) (*http.Response, error)

func (f tripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// client sends a member's calls through base.
func client(t *testing.T, m *pool.Member, base http.RoundTripper) *provider.Transport {
	t.Helper()
	p, ok := provider.Published().Lookup("openai")
	if !ok {
		t.Fatal("who is openai?")
	}
	tr, err := provider.NewTransport(provider.Config{Scheduler: m, Provider: p, Base: base})
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func request(ctx context.Context, body string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	return req
}

const streamed = `{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":20,"stream":true}`

const delta = `data: {"choices":[{"index":0,"delta":{"content":"word"}}]}` + "\n\n"

func TestAStreamHoldsItsPermitToTheLastByte(t *testing.T) {
	for _, limits := range []limits.ResourceLimits{{}, {Time: new(time.Hour)}} {
		synctest.Test(t, func(t *testing.T) {
			p := newPool(t, 1, pool.Config{})
			m := register(t, p, "m", pool.MemberConfig{Limits: limits})
			body, server := io.Pipe()
			tr := client(t, m, tripper(func(*http.Request) (*http.Response, error) {
				if n := p.Metrics(); n.Calls != 1 {
					t.Errorf("%d calls counted as it is sent", n.Calls)
				}
				return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
			}))
			go io.WriteString(server, delta)
			resp, err := tr.RoundTrip(request(t.Context(), streamed))
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan string)
			go func() {
				b, err := io.ReadAll(resp.Body)
				got <- fmt.Sprint(string(b), err)
			}()
			for range 5 {
				time.Sleep(time.Minute)
				if n, s := p.Metrics(), m.State(); n.Active != 1 || s.Phase != pool.Executing || n.Calls != 1 {
					t.Fatalf("in the middle: %+v, %+v", n, s)
				}
				io.WriteString(server, delta)
			}
			io.WriteString(server, `data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
			server.Close()
			if b := <-got; strings.Count(b, "word") != 6 || !strings.HasSuffix(b, "<nil>") {
				t.Errorf("it came as %s", b)
			}
			if n := p.Metrics(); n.Active != 0 || n.Calls != 1 || m.State().Phase != pool.ProcessingResult {
				t.Errorf("behind the last byte: %+v", n)
			}
			m.Close()
		})
	}
}

func TestACancelledStreamLetsGoAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{})
		m, other := register(t, p, "m"), register(t, p, "other")
		body, server := io.Pipe()
		tr := client(t, m, tripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
		}))
		go io.WriteString(server, delta)
		ctx, cancel := context.WithCancel(t.Context())
		resp, err := tr.RoundTrip(request(ctx, streamed))
		if err != nil {
			t.Fatal(err)
		}
		go io.ReadAll(resp.Body) // upstream neither sends nor closes
		start := time.Now()
		time.AfterFunc(time.Second, cancel)
		held, err := other.Acquire(t.Context(), sluice.Call{Lane: "m"})
		if err != nil || time.Since(start) != time.Second {
			t.Errorf("another has the slot after %v: %v", time.Since(start), err)
		}
		other.Release(held, sluice.Outcome{})
		server.Close()
		m.Close()
		other.Close()
	})
}

func TestALimitOfTimeEndsAStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPool(t, 1, pool.Config{})
		m := register(t, p, "m", pool.MemberConfig{Limits: limits.ResourceLimits{Time: new(time.Minute)}})
		body, server := io.Pipe()
		tr := client(t, m, tripper(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: body}, nil
		}))
		go io.WriteString(server, delta)
		if _, err := tr.RoundTrip(request(t.Context(), streamed)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(59 * time.Second)
		if n := p.Metrics().Active; n != 1 {
			t.Errorf("%d open a second before", n)
		}
		time.Sleep(2 * time.Second)
		if n := p.Metrics().Active; n != 0 {
			t.Errorf("%d open a second behind", n)
		}
		server.Close()
		m.Close()
	})
}

// What the members count is what the provider saw, through faults, cancels and refusals.
func TestCallsAreCountedAsTheProviderSeesThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, err := sim.New(sim.Config{Seed: 3, RPM: 3000, Burst: time.Second, Concurrency: 4,
			Faults: sim.Faults{ServerError: 0.05, Overloaded: 0.05, Reset: 0.05, Hang: 0.02}})
		if err != nil {
			t.Fatal(err)
		}
		p := newPool(t, 5, pool.Config{})
		var seen atomic.Int64
		base := tripper(func(req *http.Request) (*http.Response, error) {
			seen.Add(1)
			return server.Transport().RoundTrip(req)
		})
		var wg sync.WaitGroup
		for i := range 12 {
			m := register(t, p, fmt.Sprint("m", i))
			tr := client(t, m, base)
			random := rand.New(rand.NewPCG(1, uint64(i)))
			wg.Go(func() {
				defer m.Close()
				for n := range 15 {
					ctx, cancel := context.WithCancel(t.Context())
					if random.IntN(3) == 0 {
						time.AfterFunc(time.Duration(random.IntN(3000))*time.Millisecond, cancel)
					}
					body := streamed
					if random.IntN(2) == 0 {
						body = fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%d %d"}],"max_tokens":20}`, i, n)
					}
					resp, err := tr.RoundTrip(request(ctx, body))
					if err == nil {
						io.Copy(io.Discard, resp.Body)
						resp.Body.Close()
					} else if !errors.Is(err, context.Canceled) && ctx.Err() == nil {
						t.Logf("gave up: %v", err)
					}
					cancel()
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		if m := p.Metrics(); m.Calls != seen.Load() || m.Active != 0 || m.Calls < 180 {
			t.Errorf("%d calls counted, %d seen: %+v", m.Calls, seen.Load(), m)
		}
		if st := server.Stats(); int64(st.Requests+st.Invalid) != seen.Load() || st.InFlight != 0 {
			t.Errorf("%d seen at the door: %+v", seen.Load(), st)
		}
	})
}
