package gateway_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/gateway"
)

func passing(r *tenantRig, tenant string) *http.Request {
	req := httptest.NewRequestWithContext(r.t.Context(), http.MethodGet, "http://localhost/v1/files", nil)
	req.Header.Set("Authorization", "Bearer "+r.keys[tenant])
	return req
}

func TestPassedRequestsKeepToTheLimitsOfTheirTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{
			tenants: []gateway.Tenant{{Name: "a", RPM: 60, MaxWait: 30 * time.Second}, {Name: "b"}, {Name: "c", MaxCostDay: 1}},
			gateway: gateway.Config{Passthrough: []gateway.Passthrough{{Path: "/v1/files", Upstream: "only"}}},
		})
		began := time.Now()
		for range 60 + 10 {
			if w := r.do(passing(r, "a")); w.Header().Get("X-Sluice-Error") != "" {
				t.Fatal(text(w))
			}
		}
		if took := time.Since(began); took < 5*time.Second {
			t.Errorf("70 requests of a tenant with 60 a minute took %v", took)
		}
		if w := r.do(passing(r, "b")); w.Header().Get("X-Sluice-Error") != "" {
			t.Error(text(w))
		}
		before := len(r.upstream.sent())
		if w := r.do(passing(r, "c")); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "price_unknown") {
			t.Errorf("nobody knows what it costs, and the tenant has a budget: %s", text(w))
		}
		if len(r.upstream.sent()) != before {
			t.Error("it was sent all the same")
		}
	})
}

func TestABudgetHoldsHoweverABodySpellsThings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "poor", MaxCostDay: 0.01}, {Name: "any"}}})
		for _, c := range []struct {
			tenant, body string
			status       int
		}{
			{"any", `{"model":"m","models":["free"],"messages":[{"role":"user","content":"x"}]}`, 200},
			{"poor", `{"model":"m","messages":[{"role":"user","content":"x"}]}`, 200},
			{"poor", `{"model":"m","max_tokens":5000}`, 403}, // above the whole budget
			{"poor", `{"model":"m","moderation":{"model":"free"}}`, 403},
			{"poor", `{"model":"m","tools":[{"type":"advisor_20260301","name":"advisor","model":"free"}]}`, 403},
			{"poor", `{"model":"m","background":true}`, 400}, // of responses
			{"poor", `{"model":"m","max_t\u006fkens":5000}`, 403},
			{"poor", `{"model":"m","n":100}`, 403},
			{"poor", `{"model":"m","n":100,"n":1}`, 403},
			{"poor", `{"model":"m","max_tokens":-5000,"n":100}`, 403},
			{"poor", `{"model":"m","max_tokens":1e300}`, 403},
		} {
			req := r.request(t.Context(), c.tenant)
			req.Body, req.ContentLength = bodyOf(c.body)
			if w := r.do(req); w.Code != c.status {
				t.Errorf("%s, %s: %s, want %d", c.tenant, c.body, text(w), c.status)
			}
		}
		for body, status := range map[string]int{`{"model":"m","background":true}`: 403, `{"model":"m","background":false,"input":"x"}`: 200} { // nobody is told what it used
			req := r.request(t.Context(), "poor")
			req.URL.Path = "/v1/responses"
			req.Body, req.ContentLength = bodyOf(body)
			if w := r.do(req); w.Code != status {
				t.Errorf("%s: %s, want %d", body, text(w), status)
			}
		}
	})
}
