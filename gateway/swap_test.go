package gateway_test

import (
	"context"
	"fmt"
	"io"
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
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
)

// tripper answers as a provider, after a while.
type tripper func(*http.Request) string

func (f tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		io.Copy(io.Discard, r.Body)
		r.Body.Close()
	}
	text := fmt.Sprintf(`{"id":"c","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":%q},"finish_reason":"stop"}]}`, f(r))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(text)), ContentLength: int64(len(text)), Request: r}, nil
}

func newScheduler(t *testing.T, concurrent int) *sluice.Scheduler {
	s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: concurrent}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// configOf is a gateway's whose upstream has that Scheduler.
func configOf(t testing.TB, s *sluice.Scheduler, base http.RoundTripper) gateway.Config {
	p, ok := provider.Published().Lookup("openai-compatible")
	if !ok {
		t.Fatal("no provider")
	}
	ups, err := provider.NewUpstreams(provider.UpstreamsConfig{Upstreams: []provider.Upstream{
		{Name: "house", Provider: p, BaseURL: "http://house.invalid/v1", Scheduler: s, Models: map[string]string{"m": "m"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return gateway.Config{Upstreams: ups, Base: base}
}

// asked makes a call, and returns its status and answer.
func asked(h http.Handler) (int, string) {
	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "http://127.0.0.1/v1/chat/completions",
		strings.NewReader(`{"model":"m","messages":[{"role":"user","content":"hello"}]}`))
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func TestCallsEndOnWhatTheyBeganWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(answer string) tripper {
			return func(*http.Request) string { time.Sleep(10 * time.Second); return answer }
		}
		g, err := gateway.New(configOf(t, newScheduler(t, 1), slow("old")))
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		expect := func(answer string) {
			calls.Go(func() {
				if status, text := asked(g); status != http.StatusOK || !strings.Contains(text, answer) {
					t.Errorf("%d %s, want %s", status, text, answer)
				}
			})
		}
		expect("old") // one is open,
		expect("old") // and one waits for it
		synctest.Wait()
		over, err := g.Swap(configOf(t, newScheduler(t, 1), slow("new")))
		if err != nil {
			t.Fatal(err)
		}
		expect("new")
		time.Sleep(15 * time.Second)
		if closed(over) {
			t.Error("over with a call that waited")
		}
		calls.Wait()
		if !closed(over) {
			t.Error("not over without calls")
		}
		if over, err = g.Swap(configOf(t, newScheduler(t, 1), slow("newest"))); err != nil || !closed(over) {
			t.Errorf("not over, though nothing was open: %v", err)
		}
	})
}

func TestAWrongConfigIsNotSwappedIn(t *testing.T) {
	cfg := configOf(t, newScheduler(t, 1), tripper(func(*http.Request) string { return "old" }))
	g, err := gateway.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Deadlines.Idle = -1
	for _, wrong := range []gateway.Config{cfg, {}} {
		if over, err := g.Swap(wrong); err == nil || over != nil {
			t.Errorf("%v", err)
		}
	}
	if status, text := asked(g); status != http.StatusOK || !strings.Contains(text, "old") {
		t.Errorf("%d %s", status, text)
	}
}

// A Scheduler that several states share is not let go of by any of them: all calls get their turn there.
func TestSwappingFailsNoCall(t *testing.T) {
	var open, most atomic.Int64
	base := tripper(func(*http.Request) string {
		if n := open.Add(1); n > most.Load() {
			most.Store(n)
		}
		time.Sleep(200 * time.Microsecond)
		open.Add(-1)
		return "fine"
	})
	shared := newScheduler(t, 4)
	g, err := gateway.New(configOf(t, shared, base))
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var calls sync.WaitGroup
	var n atomic.Int64
	for range 16 {
		calls.Go(func() {
			for !closed(stop) {
				if status, text := asked(g); status != http.StatusOK {
					t.Errorf("%d %s", status, text)
				}
				n.Add(1)
			}
		})
	}
	for swaps := range suite.Size[int64](60, 300) {
		for n.Load() < swaps { // else all are done before the first call
			time.Sleep(100 * time.Microsecond)
		}
		over, err := g.Swap(configOf(t, shared, base))
		if err != nil {
			t.Fatal(err)
		}
		<-over
	}
	close(stop)
	calls.Wait()
	g.Wait()
	if most.Load() > 4 {
		t.Errorf("%d at once", most.Load())
	}
	if snap := shared.Snapshot(); len(snap.Lanes) != 1 || snap.Lanes[0].InFlight != 0 || snap.Lanes[0].Waiting != 0 {
		t.Errorf("%+v", snap.Lanes)
	}
}

func TestSchedulersOfBeforeAreForgotten(t *testing.T) {
	r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "a", Weight: 2}}})
	for range 20 {
		s := newScheduler(t, 1)
		if _, err := r.gateway.Swap(configOf(t, s, r.upstream)); err != nil {
			t.Fatal(err)
		}
		s.Close()
	}
	if n := r.tenants.Told(); n > 2 {
		t.Errorf("%d Schedulers are kept, of which all but two are closed", n)
	}
}
