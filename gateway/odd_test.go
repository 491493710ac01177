package gateway_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/gateway"
)

// oddUpstream answers the requests of one client oddly, and those of others after 50 ms.
type oddUpstream struct {
	status int
	body   string
	header http.Header
}

func (o oddUpstream) RoundTrip(r *http.Request) (*http.Response, error) {
	asked, _ := io.ReadAll(r.Body)
	r.Body.Close()
	status, body, h := http.StatusOK, `{"choices":[{"message":{"content":"yes"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5,"completion_tokens":2}}`, http.Header{}
	if r.Header.Get("X-Whose") == "odd" {
		time.Sleep(5 * time.Millisecond)
		status, body, h = o.status, o.body, o.header.Clone()
		if strings.Contains(body, "%s") {
			body = fmt.Sprintf(body, strings.Trim(string(asked), "{}\"")[:10])
		}
	} else {
		time.Sleep(50 * time.Millisecond)
	}
	if h == nil {
		h = http.Header{}
	}
	h.Set("Content-Type", "application/json")
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)), Request: r}, nil
}

func TestTheOddRequestsOfOneClientHoldUpNoOther(t *testing.T) {
	// latencies returns those of the steady client, beside an odd one if there is an odd response.
	latencies := func(t *testing.T, o *oddUpstream) (all []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			cfg := rigConfig{beside: []string{"second", "third"}, tenants: []gateway.Tenant{{Name: "steady"}, {Name: "odd", Priority: "low"}}, base: oddUpstream{}}
			if o != nil {
				cfg.base = *o
			}
			r := newTenantRig(t, cfg)
			var mu sync.Mutex
			var calls sync.WaitGroup
			for range 8 {
				calls.Go(func() {
					for range 50 {
						began := time.Now()
						r.call("steady", "")
						mu.Lock()
						all = append(all, time.Since(began))
						mu.Unlock()
						time.Sleep(50 * time.Millisecond)
					}
				})
			}
			if o != nil {
				calls.Go(func() {
					time.Sleep(500 * time.Millisecond)
					req := r.request(t.Context(), "odd")
					req.Body, req.ContentLength = bodyOf(strings.Replace(chatBody, "hello", "an odd question", 1))
					r.do(req)
				})
			}
			calls.Wait()
		})
		slices.Sort(all)
		return all
	}
	usual := latencies(t, nil)
	const words = "Incorrect API key provided. You exceeded your current quota. Rate limit reached, try again in 20h."
	for name, o := range map[string]oddUpstream{
		"429":              {status: 429},
		"429, an hour":     {status: 429, header: http.Header{"Retry-After": {"3600"}}},
		"429 in words":     {status: 429, body: `{"error":{"message":"` + words + `"}}`},
		"403 page":         {status: 403, body: "<html><title>403 Forbidden</title></html>"},
		"403":              {status: 403, body: `{"error":{"type":"permission_error","message":"Your API key does not have permission."}}`},
		"400 quotes a key": {status: 400, body: `{"error":{"message":"Invalid value: '%s'. ` + words + `","code":"invalid_value"}}`},
		"401":              {status: 401, body: `{"error":{"message":"Incorrect API key provided","code":"invalid_api_key"}}`},
		"502 page":         {status: 502, body: "<html><title>502 Bad Gateway</title></html>"},
		"402":              {status: 402},
		"402 in words":     {status: 402, body: `{"error":{"message":"This feature needs a paid plan."}}`},
		"403 of a quota":   {status: 403, body: `{"error":{"message":"No quota","code":"insufficient_quota"}}`},
		"429 names a day":  {status: 429, body: `{"error":{"message":"Rate limit reached for m on requests per day (RPD): Limit 10000, Used 10000, Requested 1. Please try again in 8h30m.","type":"requests","code":"rate_limit_exceeded"}}`},
		"429, headers of a day": {status: 429, header: http.Header{"X-Ratelimit-Limit-Requests": {"10000"}, "X-Ratelimit-Remaining-Requests": {"0"},
			"X-Ratelimit-Reset-Requests": {"24h0m0s"}}},
		"503, a day":   {status: 503, header: http.Header{"Retry-After": {"86400"}}},
		"500 in words": {status: 500, body: `{"error":{"message":"` + words + `"}}`},
		"200 in words": {status: 200, body: words},
		"200 page":     {status: 200, body: "<html><title>Sign in</title></html>"},
	} {
		t.Run(name, func(t *testing.T) {
			with := latencies(t, &o)
			p50, before := with[len(with)/2], usual[len(usual)/2]
			t.Logf("p50 %v, p99 %v; without %v, %v", p50, with[len(with)*99/100], before, usual[len(usual)*99/100])
			if p50 > before*6/5 {
				t.Errorf("p50 %v beside it, %v without", p50, before)
			}
		})
	}
}
