package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/genai"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/sim"
)

// bench is an imitation over a socket, and the official client that goes to it through Sluice.
type bench struct {
	server *sim.Server
	client *genai.Client
	calls  atomic.Int64 // that the client made, its own retries included
	bad    atomic.Int64 // answers above 299 that it saw
	inner  http.RoundTripper
}

func newBench(t *testing.T, account sluice.Config, limits sim.Config) *bench {
	t.Helper()
	server, err := sim.New(limits)
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	scheduler, err := sluice.New(account)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { scheduler.Close() })
	limited, err := httpClient(scheduler)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{server: server, inner: limited.Transport}
	limited.Transport = b
	b.client, err = genai.NewClient(t.Context(), &genai.ClientConfig{
		Backend: genai.BackendGeminiAPI, APIKey: "any", HTTPClient: limited, HTTPOptions: genai.HTTPOptions{BaseURL: web.URL},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// RoundTrip stands between the SDK and Sluice.
func (b *bench) RoundTrip(req *http.Request) (*http.Response, error) {
	b.calls.Add(1)
	resp, err := b.inner.RoundTrip(req)
	if err == nil && resp.StatusCode >= 300 {
		b.bad.Add(1)
	}
	return resp, err
}

func questions(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("What is special about the number %d?", i)
	}
	return list
}

func TestManyCallsAtOnceAreHeldToTheLimitAndTheClientSeesNoRefusal(t *testing.T) {
	// 60 calls at once, where 8 may be open, and the bucket holds 20 and refills 20 a second.
	b := newBench(t, sluice.Config{}, sim.Config{
		RPM: 1200, Burst: time.Second, Concurrency: 8, Latency: 20 * time.Millisecond,
	})
	for i, a := range ask(t.Context(), b.client, "gemini-2.5-flash", questions(60)) {
		if a.err != nil {
			t.Fatalf("question %d: %v", i, a.err)
		}
		if !strings.HasPrefix(a.text, "sim:") {
			t.Errorf("question %d: answer %q is not the imitation's", i, a.text)
		}
	}
	if calls, bad := b.calls.Load(), b.bad.Load(); calls != 60 || bad != 0 {
		t.Errorf("the client made %d calls and saw %d refusals, want 60 and 0", calls, bad)
	}
	if got := b.server.Stats().Answered; got != 60 {
		t.Errorf("the provider answered %d calls, want 60", got)
	}
}

func TestStreamsAreHeldToTheLimitToo(t *testing.T) {
	b := newBench(t, sluice.Config{}, sim.Config{
		RPM: 1200, Burst: time.Second, Concurrency: 4, Latency: 10 * time.Millisecond, PerToken: time.Millisecond,
	})
	var wg sync.WaitGroup
	for _, q := range questions(30) {
		wg.Go(func() {
			a := stream(t.Context(), b.client, "gemini-2.5-flash", q)
			if a.err != nil || !strings.HasPrefix(a.text, "sim:") || !strings.HasSuffix(a.text, " and") {
				t.Errorf("%s: answer %q, error %v", q, a.text, a.err)
			}
		})
	}
	wg.Wait()
	if calls, bad := b.calls.Load(), b.bad.Load(); calls != 30 || bad != 0 {
		t.Errorf("the client made %d calls and saw %d refusals, want 30 and 0", calls, bad)
	}
}

func TestTheClientDoesNotTryAgainWhatWasGivenUp(t *testing.T) {
	tests := []struct {
		name    string
		account sluice.Config
		limits  sim.Config
		status  int
	}{
		{"a server error", sluice.Config{Attempts: 2}, sim.Config{Faults: sim.Faults{ServerError: 1}}, 500},
		{"a refusal", sluice.Config{MaxThrottles: -1}, sim.Config{Storms: []sim.Storm{{To: time.Hour}}}, 429},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.limits.Latency = -1
			b := newBench(t, tt.account, tt.limits)
			a := ask(t.Context(), b.client, "gemini-2.5-flash", questions(1))[0]
			var failure genai.APIError
			if !errors.As(a.err, &failure) || failure.Code != tt.status {
				t.Fatalf("error is %v, want the SDK's own with code %d", a.err, tt.status)
			}
			if got := b.calls.Load(); got != 1 {
				t.Errorf("the client sent the call %d times, want once", got)
			}
		})
	}
}
