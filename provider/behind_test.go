package provider_test

import (
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

func TestBehindAGatewayOfOursBudgetsAreDroppedAndSlotsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gateway := roundTrip(func(r *http.Request) (*http.Response, error) {
			time.Sleep(time.Second)
			h := http.Header{"X-Sluice-Wait-Ms": {"0"}, "Content-Type": {"application/json"}, "X-Ratelimit-Limit-Requests": {"6"},
				"X-Ratelimit-Remaining-Requests": {"0"}, "X-Ratelimit-Reset-Requests": {"60s"}}
			const answer = `{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}`
			return &http.Response{StatusCode: 200, Header: h, Body: io.NopCloser(strings.NewReader(answer)), ContentLength: int64(len(answer))}, nil
		})
		tr, _ := transport(t, gateway, func(_ *provider.Config, s *sluice.Config) {
			s.Start = sluice.Limits{RPM: 6, TPM: 100, Burst: 10 * time.Second}
			s.Limits = sluice.Limits{Concurrency: 1}
		})
		start := time.Now()
		for range 20 {
			resp, err := tr.Client().Post("http://gateway.test/v1/chat/completions", "application/json", strings.NewReader(`{"model":"m","max_tokens":50}`))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		if took := time.Since(start); took.Round(10*time.Millisecond) != 20*time.Second {
			t.Errorf("twenty calls of a second, one at a time, took %v", took)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestModelsAreKnownByWholeNames(t *testing.T) {
	for _, name := range provider.Published().Names() {
		for _, model := range provider.Published().Models(name) {
			if p, ok := provider.Published().Recognise(model); !ok || p.Name != name || strings.ContainsAny(model, "!*") || strings.HasSuffix(model, "-") {
				t.Errorf("%s: %q", name, model)
			}
		}
	}
	if models := provider.Published().Models("OpenAI"); !slices.Contains(models, "gpt-4o") || !slices.IsSorted(models) {
		t.Errorf("%q", models)
	}
	if models := provider.Published().Models("nobody"); len(models) > 0 {
		t.Errorf("%q", models)
	}
}
