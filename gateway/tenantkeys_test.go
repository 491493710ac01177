package gateway_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/sluice-llm/sluice/gateway"
)

func TestEveryWayOfSendingAKeyIsUnderstood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "alice"}}})
		key := r.keys["alice"]
		ways := map[string]func(*http.Request){
			"Authorization": func(q *http.Request) { q.Header.Set("Authorization", "Bearer "+key) },
			"bearer":        func(q *http.Request) { q.Header.Set("Authorization", "bearer  "+key) },
			"x-api-key":     func(q *http.Request) { q.Header.Set("x-api-key", key) },
			"api-key":       func(q *http.Request) { q.Header.Set("api-key", key) },
			"x-goog":        func(q *http.Request) { q.Header.Set("x-goog-api-key", key) },
			"?key=":         func(q *http.Request) { q.URL.RawQuery = "alt=sse&key=" + key },
			"twice the same": func(q *http.Request) {
				q.Header.Set("Authorization", "Bearer "+key)
				q.Header.Set("x-api-key", key)
			},
		}
		for name, set := range ways {
			req := r.request(t.Context(), "")
			set(req)
			if w := r.do(req); w.Code != http.StatusOK {
				t.Errorf("%s: %s", name, text(w))
			}
		}
		for _, sent := range r.upstream.seen {
			if all := fmt.Sprint(sent.URL, sent.Header); strings.Contains(all, key) || !strings.Contains(all, "the-upstream-key") {
				t.Errorf("upstream got %s", all)
			}
		}
	})
}

func TestTwoDifferentKeysInOneRequestAreRefused(t *testing.T) {
	for _, tenants := range [][]gateway.Tenant{{{Name: "alice"}, {Name: "bob"}}, nil} { // nil: a gateway that wants no keys
		r := newTenantRig(t, rigConfig{tenants: tenants})
		alice := cmp.Or(r.keys["alice"], "alice")
		for _, other := range []string{cmp.Or(r.keys["bob"], "bob"), "sk-other"} {
			ways := []func(q *http.Request, key string){
				func(q *http.Request, key string) { q.Header.Add("Authorization", "Bearer "+key) },
				func(q *http.Request, key string) { q.Header.Add("Authorization", "bearer "+key) },
				func(q *http.Request, key string) { q.Header.Add("X-Api-Key", key) },
				func(q *http.Request, key string) { q.Header.Add("Api-Key", key) },
				func(q *http.Request, key string) { q.Header.Add("X-Goog-Api-Key", key) },
				func(q *http.Request, key string) { q.URL.RawQuery += "&key=" + key },
				func(q *http.Request, key string) { q.URL.RawQuery += "&k%65y=" + key },
			}
			for i, first := range ways {
				for j, second := range ways {
					for path, want := range map[string]string{"/v1/chat/completions": `"code":"invalid_api_key"`, "/v1/messages": `"type":"authentication_error"`} {
						req := httptest.NewRequest(http.MethodPost, "http://localhost"+path, strings.NewReader(chatBody))
						first(req, alice)
						second(req, other)
						if w := r.do(req); w.Code != http.StatusUnauthorized || !strings.Contains(w.Body.String(), want) || strings.Contains(text(w), other) {
							t.Fatalf("%d and %d, %s: %s", i, j, path, text(w))
						}
					}
				}
			}
		}
		if n := len(r.upstream.sent()); n > 0 {
			t.Errorf("%d calls went upstream", n)
		}
	}
}

func TestAWrongKeyIsRefusedInTheClientsDialect(t *testing.T) {
	r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "alice"}}})
	key := r.keys["alice"]
	paths := map[string]string{
		"/v1/chat/completions":               `"code":"invalid_api_key"`,
		"/v1/messages":                       `"type":"authentication_error"`,
		"/v1beta/models/m:generateContent":   `"status":"UNAUTHENTICATED"`,
		"/v1/embeddings":                     `"type":"invalid_request_error"`,
		"/v1beta/models/m:countSomething":    "not_found",
		"/v1/chat/completions?key=slk-wrong": `"code":"invalid_api_key"`,
	}
	wrong := []string{"", "slk-", key[:len(key)-1], key + "x", strings.ToUpper(key), "the-upstream-key"}
	for path, want := range paths {
		for _, bad := range wrong {
			req := httptest.NewRequest(http.MethodPost, "http://localhost"+path, strings.NewReader(chatBody))
			if bad != "" {
				req.Header.Set("Authorization", "Bearer "+bad)
			}
			status := http.StatusUnauthorized
			if want == "not_found" {
				status = http.StatusNotFound
			}
			w := r.do(req)
			body := text(w)
			if w.Code != status || !strings.Contains(body, want) || bad != "" && len(bad) > 4 && strings.Contains(body, bad) {
				t.Errorf("%s with %q: %s", path, bad, body)
			}
		}
	}
	req := httptest.NewRequest(http.MethodGet, "http://localhost/v1/models", nil)
	if w := r.do(req); w.Code != http.StatusUnauthorized {
		t.Errorf("the models are told to anybody: %s", text(w))
	}
	if n := len(r.upstream.sent()); n > 0 {
		t.Errorf("%d calls went upstream", n)
	}
}

func TestARevokedKeyEndsAtOnceAndOpenCallsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "alice"}, {Name: "bob", Concurrency: 1}}})
		var open sync.WaitGroup
		for range 3 { // one is sent, two wait
			open.Go(func() { r.call("bob", "") })
		}
		synctest.Wait()
		r.set(r.list[0])
		if w := r.do(r.request(t.Context(), "bob")); w.Code != http.StatusUnauthorized {
			t.Errorf("after it was revoked: %s", text(w))
		}
		r.call("alice", "")
		open.Wait()

		again, sum := gateway.NewKey()
		r.set(r.list[0], gateway.Tenant{Name: "bob", KeySHA256: sum})
		if w := r.do(r.request(t.Context(), "bob")); w.Code != http.StatusUnauthorized {
			t.Errorf("the old key came back with the name: %s", text(w))
		}
		r.keys["bob"] = again
		r.call("bob", "")
	})
}

func TestWhatHappensToTheTenantsNeverOpensTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "alice"}}})
		if err := r.tenants.Set([]gateway.Tenant{{Name: "bob"}}); err == nil {
			t.Error("a tenant without a key is taken")
		}
		r.call("alice", "") // the tenants before go on to hold
		if w := r.do(r.request(t.Context(), "")); w.Code != http.StatusUnauthorized {
			t.Errorf("with a wrong tenant: %s", text(w))
		}
		r.set()
		for _, who := range []string{"alice", ""} {
			if w := r.do(r.request(t.Context(), who)); w.Code != http.StatusUnauthorized {
				t.Errorf("%q without tenants: %s", who, text(w))
			}
		}
	})
}

func TestTheFirstKeyClosesAGatewayThatNeededNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{})
		if r.tenants.Keyed() {
			t.Error("keys are needed, and there are none")
		}
		r.call("", "")
		key, sum := gateway.NewKey()
		r.set(gateway.Tenant{Name: "alice", KeySHA256: sum})
		if w := r.do(r.request(t.Context(), "")); w.Code != http.StatusUnauthorized {
			t.Errorf("without a key: %s", text(w))
		}
		r.keys["alice"] = key
		r.call("alice", "")
	})
}

func TestAKeyHolds256RandomBits(t *testing.T) {
	key, sum := gateway.NewKey()
	secret, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(key, "slk-"))
	if other, _ := gateway.NewKey(); err != nil || len(secret) != 32 || key == other || sum != fmt.Sprintf("%x", sha256.Sum256([]byte(key))) {
		t.Errorf("%s, %s, %v", key, sum, err)
	}
}

func TestAWrongTenantIsNamedByItsField(t *testing.T) {
	good := func(name string) gateway.Tenant {
		return gateway.Tenant{Name: name, KeySHA256: strings.Repeat(name, 64)}
	}
	for want, spoil := range map[string]func(*gateway.Tenant){
		"":                   func(*gateway.Tenant) {},
		"[1].name":           func(t *gateway.Tenant) { t.Name = "a/b" },
		"[1].key_sha256":     func(t *gateway.Tenant) { t.KeySHA256 = "abcd" },
		"[1].weight":         func(t *gateway.Tenant) { t.Weight = math.NaN() },
		"[1].priority":       func(t *gateway.Tenant) { t.Priority = "urgent" },
		"[1].rpm":            func(t *gateway.Tenant) { t.RPM = -1 },
		"[1].max_cost_day":   func(t *gateway.Tenant) { t.MaxCostDay = -1 },
		"[1].max_cost_month": func(t *gateway.Tenant) { t.MaxCostMonth = math.Inf(1) },
		"[1].models":         func(t *gateway.Tenant) { t.Models = []string{} },
		"[1].models[1]":      func(t *gateway.Tenant) { t.Models = []string{"gpt-4o*", "gpt-*-mini"} },
		"[1].max_wait":       func(t *gateway.Tenant) { t.MaxWait = -1 },
	} {
		b := good("b")
		spoil(&b)
		if field, err := gateway.CheckTenants([]gateway.Tenant{good("a"), b}); field != want || (err == nil) != (want == "") {
			t.Errorf("%s: %v, want %s", field, err, want)
		}
	}
	same := good("a")
	same.Name = "b"
	for want, other := range map[string]gateway.Tenant{"[1].name": good("a"), "[1].key_sha256": same} {
		if field, err := gateway.CheckTenants([]gateway.Tenant{good("a"), other}); field != want || err == nil {
			t.Errorf("%s: %v, want %s", field, err, want)
		}
	}
}

func TestATenantAsksForItsModelsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{
			tenants: []gateway.Tenant{{Name: "exact", Models: []string{"free"}}, {Name: "alias", Models: []string{"fast"}}, {Name: "begins", Models: []string{"fr*"}}},
			gateway: gateway.Config{Models: map[string]string{"fast": "m"}},
		})
		may := map[string]map[string]bool{
			"exact": {"free": true, "m": false, "fast": false}, "alias": {"free": false, "m": false, "fast": true},
			"begins": {"free": true, "m": false, "fast": false},
		}
		for tenant, models := range may {
			listed := httptest.NewRequest(http.MethodGet, "http://localhost/v1/models", nil)
			listed.Header.Set("x-api-key", r.keys[tenant])
			list := text(r.do(listed))
			for model, ok := range models {
				req := r.request(t.Context(), tenant)
				req.Body = io.NopCloser(strings.NewReader(strings.Replace(chatBody, `"m"`, `"`+model+`"`, 1)))
				req.ContentLength = -1
				w := r.do(req)
				if ok != (w.Code == http.StatusOK) || !ok && (w.Code != http.StatusForbidden || w.Header().Get("X-Sluice-Error") != "model_not_allowed") {
					t.Errorf("%s asks for %s: %s", tenant, model, text(w))
				}
				if strings.Contains(list, `"id":"`+model+`"`) != ok {
					t.Errorf("%s, %s: the list is %s", tenant, model, list)
				}
			}
		}
	})
}
