package gateway_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "alice"}, {Name: "bob", Concurrent: 1}}})
		var open sync.WaitGroup
		for range 3 { // one is sent, two wait
			open.Go(func() { r.call("bob", "") })
		}
		synctest.Wait()
		if err := r.file.Revoke("bob"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		if w := r.do(r.request(t.Context(), "bob")); w.Code != http.StatusUnauthorized {
			t.Errorf("after it was revoked: %s", text(w))
		}
		r.call("alice", "")
		open.Wait()

		again, err := r.file.Add(gateway.Tenant{Name: "bob"})
		if err != nil {
			t.Fatal(err)
		}
		if w := r.do(r.request(t.Context(), "bob")); w.Code != http.StatusUnauthorized {
			t.Errorf("the old key came back with the name: %s", text(w))
		}
		r.keys["bob"] = again
		r.call("bob", "")
	})
}

func TestWhatHappensToTheFileNeverOpensTheGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTenantRig(t, rigConfig{tenants: []gateway.Tenant{{Name: "alice"}}})
		path := string(r.file)
		if err := os.WriteFile(path, []byte(`{"version":1,"keys":[{"name":`), 0o600); err != nil {
			t.Fatal(err)
		}
		r.call("alice", "") // the version before goes on to hold
		if w := r.do(r.request(t.Context(), "")); w.Code != http.StatusUnauthorized {
			t.Errorf("with a torn file: %s", text(w))
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
		for _, who := range []string{"alice", ""} {
			if w := r.do(r.request(t.Context(), who)); w.Code != http.StatusUnauthorized {
				t.Errorf("%q without a file: %s", who, text(w))
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
		key, err := r.file.Add(gateway.Tenant{Name: "alice"})
		if err != nil {
			t.Fatal(err)
		}
		if w := r.do(r.request(t.Context(), "")); w.Code != http.StatusUnauthorized {
			t.Errorf("without a key: %s", text(w))
		}
		r.keys["alice"] = key
		r.call("alice", "")
	})
}

func TestKeysAreKeptAsHashesForTheirOwnerAlone(t *testing.T) {
	file := gateway.KeyFile(filepath.Join(t.TempDir(), "state", "keys.json"))
	key, err := file.Add(gateway.Tenant{Name: "alice", Models: []string{"m"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(key) < len(gateway.KeyPrefix)+43 || !strings.HasPrefix(key, gateway.KeyPrefix) {
		t.Errorf("a key of %d characters does not hold 256 bits", len(key))
	}
	entries, err := os.ReadDir(filepath.Dir(string(file)))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := filepath.Join(filepath.Dir(string(file)), e.Name())
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v", e.Name(), info.Mode().Perm())
		}
		if b, _ := os.ReadFile(name); strings.Contains(string(b), key[len(gateway.KeyPrefix):]) {
			t.Errorf("%s holds the key", e.Name())
		}
	}
	if _, err := file.Add(gateway.Tenant{Name: "alice"}); err == nil {
		t.Error("a second key of the same name was made")
	}
	if err := file.Revoke("bob"); !errors.Is(err, gateway.ErrNoTenant) {
		t.Errorf("revoking what is not there: %v", err)
	}
}

func TestWritersOfTheFileDoNotLoseEachOthersKeys(t *testing.T) {
	file := gateway.KeyFile(filepath.Join(t.TempDir(), "keys.json"))
	var writers sync.WaitGroup
	for i := range 20 {
		writers.Go(func() {
			if _, err := file.Add(gateway.Tenant{Name: fmt.Sprint("t", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	if all, err := file.Tenants(); err != nil || len(all) != 20 {
		t.Errorf("%d tenants of 20 are there: %v", len(all), err)
	}
}

func TestADamagedFileIsNamed(t *testing.T) {
	sum := strings.Repeat("ab", 32)
	docs := map[string]string{
		"not JSON":       `{`,
		"of the future":  `{"version":2,"keys":[]}`,
		"unknown member": `{"version":1,"keys":[],"more":1}`,
		"twice":          `{"version":1,"keys":[]}{}`,
		"short hash":     `{"version":1,"keys":[{"name":"a","created_at":"2026-01-01T00:00:00Z","sha256":"abcd"}]}`,
		"bad name":       `{"version":1,"keys":[{"name":"a/b","created_at":"2026-01-01T00:00:00Z","sha256":"` + sum + `"}]}`,
		"bad limit":      `{"version":1,"keys":[{"name":"a","rpm":-1,"created_at":"2026-01-01T00:00:00Z","sha256":"` + sum + `"}]}`,
		"same key": `{"version":1,"keys":[{"name":"a","created_at":"2026-01-01T00:00:00Z","sha256":"` + sum + `"},
			{"name":"b","created_at":"2026-01-01T00:00:00Z","sha256":"` + sum + `"}]}`,
	}
	for name, doc := range docs {
		path := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(path, []byte(doc), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := gateway.OpenTenants(gateway.TenantsConfig{Keys: gateway.KeyFile(path)}); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if runtime.GOOS != "windows" {
		path := filepath.Join(t.TempDir(), "keys.json")
		if err := os.WriteFile(path, []byte(`{"version":1,"keys":[]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			t.Fatal(err)
		}
		if _, err := gateway.KeyFile(path).Tenants(); err == nil {
			t.Error("a file that everybody may write is taken")
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
