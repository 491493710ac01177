package provider_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

const (
	contentRequest  = `{"contents":[{"role":"user","parts":[{"text":"12345678"}]}],"generationConfig":{"maxOutputTokens":16}}`
	contentURL      = "https://host/v1beta/models/gemini-2.5-flash:generateContent"
	contentEvents   = "https://host/v1beta/models/gemini-2.5-flash:streamGenerateContent?alt=sse"
	contentElements = "https://host/v1beta/models/gemini-2.5-flash:streamGenerateContent"

	// As the documents and issues of Gemini's SDKs quote them (https://ai.google.dev/gemini-api/docs/troubleshooting).
	contentOverload = `{"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}`
	contentLimited  = `{"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details. Please retry in 2.5s.","status":"RESOURCE_EXHAUSTED","details":[` +
		`{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_free_tier_requests","quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier","quotaValue":"10"}]},` +
		`{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"2s"}]}}`
)

var (
	ofJSON   = []string{"content-type", "application/json; charset=UTF-8"}
	ofEvents = []string{"content-type", "text/event-stream"}
)

func geminis(change func(*sluice.Config)) func(*provider.Config, *sluice.Config) {
	return func(c *provider.Config, s *sluice.Config) {
		c.Provider, _ = provider.Lookup("gemini")
		if change != nil {
			change(s)
		}
	}
}

func TestExchangesWithGemini(t *testing.T) {
	cases := []struct {
		name         string
		endpoint     provider.Endpoint
		base         tripper
		kind         sluice.Kind
		usage        sluice.Usage
		finish, body string // a part of it
	}{
		{"an answer", provider.GenerateContent, replies(200, contentWhole, ofJSON...), sluice.OK, contentUsage, "STOP", `"Let me see."`},
		{"events", provider.StreamGenerateContent, replies(200, contentStream, ofEvents...), sluice.OK, contentUsage, "STOP", `"Let me see."`},
		{"an array", provider.StreamGenerateContent, replies(200, contentArray, ofJSON...), sluice.OK, contentUsage, "STOP", `"Let me see."`},
		{"an array of no declared kind", provider.StreamGenerateContent, replies(200, contentArray), sluice.OK, contentUsage, "STOP", `"Let me see."`},
		{"an embedding", provider.EmbedContent, replies(200, `{"embedding":{"values":[0.1]}}`, ofJSON...), sluice.OK, sluice.Usage{}, "", "values"},
		{"a blocked prompt", provider.GenerateContent, replies(200, `{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":4}}`, ofJSON...),
			sluice.OK, sluice.Usage{Input: 4}, "SAFETY", "blockReason"},
		{"a refusal", provider.GenerateContent, replies(429, contentLimited, ofJSON...), sluice.RateLimit, sluice.Usage{}, "", "RESOURCE_EXHAUSTED"},
		{"a refusal in an array", provider.StreamGenerateContent, replies(429, "["+contentLimited+"]", ofJSON...), sluice.RateLimit, sluice.Usage{}, "", "RESOURCE_EXHAUSTED"},
		{"an error in a good answer", provider.GenerateContent, replies(200, contentOverload, ofJSON...), sluice.Overloaded, sluice.Usage{}, "", "UNAVAILABLE"},
		{"an error as the first event", provider.StreamGenerateContent, replies(200, "data: "+contentOverload+"\n\n", ofEvents...), sluice.Overloaded, sluice.Usage{Input: 2, Estimated: true}, "", ""},
		{"an error after a part", provider.StreamGenerateContent, replies(200, "["+contentChunks[2]+",\n"+contentOverload+"]", ofJSON...), sluice.Overloaded, sluice.Usage{Input: 7, Output: 7, Estimated: true}, "", "The"},
		{"text without any counts", provider.StreamGenerateContent, replies(200, `[{"candidates":[{"content":{"parts":[{"text":"12345678"}]}}]}`, ofJSON...), sluice.Network, sluice.Usage{Input: 2, Output: 2, Estimated: true}, "", "1234"},
		{"events that end too early", provider.StreamGenerateContent, replies(200, contentStream[:len(contentStream)/2], ofEvents...), sluice.Network, sluice.Usage{Input: 7, Output: 4, Estimated: true}, "", "Let me"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			a, o := exchange(t, t.Context(), c.base, provider.ExchangeConfig{
				Provider: lookup(t, "gemini"), Endpoint: c.endpoint, Stream: c.endpoint == provider.StreamGenerateContent, Cost: sluice.Cost{Input: 2},
			})
			if o.Kind != c.kind || o.Usage != c.usage || a.FinishReason != c.finish || !strings.Contains(string(a.Body), c.body) {
				t.Errorf("%v %v %+v %q %s", o.Kind, o.Err, o.Usage, a.FinishReason, a.Body)
			}
		})
	}
}

// An SDK's request to embed says its model twice.
func TestLaneIsTheModelInThePath(t *testing.T) {
	tr, w := transport(t, replies(200, `{"embedding":{"values":[1]}}`, ofJSON...), geminis(nil))
	for _, path := range []string{"models/e", "tunedModels/e"} {
		_, _, err := call(t.Context(), t, tr, "https://host/v1beta/"+path+":embedContent", `{"model":"`+path+`","content":{"parts":[{"text":"a"}]}}`)
		if err != nil {
			t.Fatal(err)
		}
	}
	if lanes := w.Snapshot().Lanes; len(lanes) != 2 || lanes[0].Lane != "e" || lanes[1].Lane != "tunedModels/e" {
		t.Errorf("%+v", lanes)
	}
}

// The slot of an array belongs to the call until its last byte, and its parts are handed on as they come.
func TestArraysHoldTheirPermitToTheEnd(t *testing.T) {
	next := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Goog-Api-Key") != "AIzaTest" {
			t.Error("the client's key is lost")
		}
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		for i, chunk := range contentChunks {
			io.WriteString(w, []string{"[", ",\r\n"}[min(i, 1)]+chunk)
			w.(http.Flusher).Flush()
			<-next
		}
		io.WriteString(w, "]")
	}))
	defer srv.Close()
	tr, w := transport(t, provider.NewBase(1), geminis(nil))
	req, err := http.NewRequestWithContext(context.Background(), http.MethodPost, srv.URL+"/v1beta/models/m:streamGenerateContent", strings.NewReader(contentRequest))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Goog-Api-Key", "AIzaTest")
	resp, err := tr.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got strings.Builder
	buf := make([]byte, 4<<10)
	for i := range contentChunks {
		for !strings.HasSuffix(got.String(), contentChunks[i]) {
			n, err := resp.Body.Read(buf)
			if got.Write(buf[:n]); err != nil {
				t.Fatalf("after %q: %v", got.String(), err)
			}
		}
		if lanes := w.Snapshot().Lanes; len(lanes) != 1 || lanes[0].InFlight != 1 {
			t.Fatalf("part %d: %+v", i, lanes)
		}
		next <- struct{}{}
	}
	if _, err := io.Copy(&got, resp.Body); err != nil || !strings.HasSuffix(got.String(), "]") {
		t.Fatal(err, got.String())
	}
	if o := w.ended(t, 1)[0]; o.Kind != sluice.OK || o.Usage != contentUsage {
		t.Errorf("%+v", o)
	}
}
