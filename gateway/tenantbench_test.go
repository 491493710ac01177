package gateway_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/sim"
)

// answering answers at once.
type answering struct{}

func (answering) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	req.Body.Close()
	const body = `{"id":"x","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2}}`
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"application/json"}}, ContentLength: int64(len(body)),
		Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
}

// BenchmarkCall is a call through the gateway without a network, of whoever comes, and of a tenant with limits and a budget.
func BenchmarkCall(b *testing.B) {
	for name, tenants := range map[string][]gateway.Tenant{
		"anyone": nil,
		"tenant": {{Name: "a", MaxCostDay: 1e9, TPM: 1 << 40, Concurrency: 1000}},
	} {
		b.Run(name, func(b *testing.B) {
			r := newTenantRig(b, rigConfig{sim: sim.Config{}, limits: sluice.Limits{Concurrency: 1000}, tenants: tenants})
			r.upstream.base, r.upstream.quiet = answering{}, true
			b.ReportAllocs()
			for b.Loop() {
				req := httptest.NewRequest(http.MethodPost, "http://localhost/v1/chat/completions", strings.NewReader(chatBody))
				req.Header.Set("Authorization", "Bearer "+r.keys["a"])
				if w := r.do(req); w.Code != http.StatusOK {
					b.Fatal(text(w))
				}
			}
		})
	}
}

// streaming answers with a stream of 260 events at once.
type streaming struct{ text string }

func (s streaming) RoundTrip(req *http.Request) (*http.Response, error) {
	_, _ = io.Copy(io.Discard, req.Body)
	req.Body.Close()
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, ContentLength: -1,
		Body: io.NopCloser(strings.NewReader(s.text)), Request: req}, nil
}

// BenchmarkStream is a stream of 90 KB through the gateway without a network.
func BenchmarkStream(b *testing.B) {
	text := strings.Repeat(`data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":"`+
		strings.Repeat("word ", 50)+`"},"finish_reason":null}]}`+"\n\n", 257) + "data: [DONE]\n\n"
	r := newTenantRig(b, rigConfig{sim: sim.Config{}, limits: sluice.Limits{Concurrency: 1000}, tenants: []gateway.Tenant{{Name: "a"}}})
	r.upstream.base, r.upstream.quiet = streaming{text}, true
	b.ReportAllocs()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		req := httptest.NewRequest(http.MethodPost, "http://localhost/v1/chat/completions", strings.NewReader(`{"model":"m","stream":true,"messages":[]}`))
		req.Header.Set("Authorization", "Bearer "+r.keys["a"])
		if w := r.do(req); w.Code != http.StatusOK || w.Body.Len() != len(text) {
			b.Fatal(text)
		}
	}
}
