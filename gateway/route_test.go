package gateway_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/provider"
)

func TestCountingTokensCostsARequestAndNoTokens(t *testing.T) {
	var paths []string
	x, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		paths = append(paths, r.URL.RequestURI())
		whole(w, `{"input_tokens":14}`)
	}, func(s *setting) { s.limits.Limits.TPM = 1000 })
	long := strings.Repeat("word ", 100_000)
	for _, c := range [][2]string{
		{"/v1/messages/count_tokens?beta=true", `{"model":"alias","messages":[{"role":"user","content":"` + long + `"}]}`},
		{"/v1beta/models/m:countTokens", `{"contents":[{"parts":[{"text":"` + long + `"}]}]}`},
	} {
		if got := post(t, front.URL+c[0], c[1]); got.status != 200 || got.body != `{"input_tokens":14}` {
			t.Errorf("%s: %d %s", c[0], got.status, got.body)
		}
	}
	if !slices.Equal(paths, []string{"/v1/messages/count_tokens?beta=true", "/v1beta/models/m:countTokens"}) {
		t.Errorf("asked at %q", paths)
	}
	if n := len(x.ended()); n != 2 {
		t.Errorf("%d requests", n)
	}
}

func TestGeminiStreamsComeInTheFormThatIsAskedFor(t *testing.T) {
	const answer = `{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP"}]}`
	var asked []string
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.URL.RequestURI())
		if r.URL.Query().Get("alt") == "sse" {
			events(w, "data: "+answer+"\r\n\r\n")
			return
		}
		whole(w, "["+answer+"]")
	}, nil)
	url := front.URL + "/v1beta/models/m:streamGenerateContent"
	if got := post(t, url+"?alt=sse", `{"contents":[]}`); got.body != "data: "+answer+"\r\n\r\n" {
		t.Errorf("events: %+v", got)
	}
	if got := post(t, url, `{"contents":[]}`); got.body != "["+answer+"]" {
		t.Errorf("array: %+v", got)
	}
	if strings.Contains(asked[1], "?") {
		t.Errorf("asked %q", asked)
	}
}

func TestTheModelIsNamedAsTheUpstreamDoes(t *testing.T) {
	var bodies []string
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.URL.Path+" "+string(b))
		whole(w, chatAnswer)
	}, func(s *setting) { s.Models = map[string]string{"short": "alias"} })
	post(t, front.URL+"/v1/chat/completions", `{"stream":true, "model" : "short" ,"x":1}`)
	post(t, front.URL+"/v1/chat/completions", `{"model":"alias"}`)
	post(t, front.URL+"/v1beta/models/alias:embedContent", `{"model":"models/alias","content":{}}`)
	want := []string{`/v1/chat/completions {"stream":true, "model" : "m-2026" ,"x":1,"stream_options":{"include_usage":true}}`,
		`/v1/chat/completions {"model":"m-2026"}`, `/v1beta/models/m-2026:embedContent {"model":"models/m-2026","content":{}}`}
	if !slices.Equal(bodies, want) {
		t.Errorf("sent %q", bodies)
	}
}

func TestPartsOfARequestNameTheModelAsTheUpstreamDoes(t *testing.T) {
	var bodies []string
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		bodies = append(bodies, r.URL.Path+" "+string(b))
		whole(w, `{}`)
	}, nil)
	const count, embed = "/v1beta/models/alias:countTokens", "/v1beta/models/alias:batchEmbedContents"
	post(t, front.URL+embed, `{"requests":[{"model":"models/alias","content":{}}, {"content":{"model":"models/other"}},{"model" : "alias"}],"model":"models/alias"}`)
	post(t, front.URL+count, `{"generateContentRequest":{"contents":[],"model":"models/alias"}}`)
	post(t, front.URL+"/v1beta/models/m:countTokens", `{"generateContentRequest":{"model":"models/m"}}`)
	post(t, front.URL+embed, `{"requests":"models/alias"}`)
	want := []string{
		`/v1beta/models/m-2026:batchEmbedContents {"requests":[{"model":"models/m-2026","content":{}}, {"content":{"model":"models/other"}},{"model" : "m-2026"}],"model":"models/m-2026"}`,
		`/v1beta/models/m-2026:countTokens {"generateContentRequest":{"contents":[],"model":"models/m-2026"}}`,
		`/v1beta/models/m:countTokens {"generateContentRequest":{"model":"models/m"}}`,
		`/v1beta/models/m-2026:batchEmbedContents {"requests":"models/alias"}`,
	}
	if !slices.Equal(bodies, want) {
		t.Errorf("sent %q", bodies)
	}
	for path, body := range map[string]string{
		embed: `{"requests":[{"model":"models/alias"},{"model":"models/dearer"}]}`, count: `{"generateContentRequest":{"model":"dearer"}}`,
	} {
		if got := post(t, front.URL+path, body); got.status != 400 || !strings.Contains(got.body, "names a different model") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	if len(bodies) != len(want) {
		t.Errorf("sent %q", bodies[len(want):])
	}
}

func TestModelsAreListed(t *testing.T) {
	x := relay(t, "http://up.test", func(s *setting) {
		s.upstream.Provider, _ = provider.Lookup("openai")
		s.upstream.Models = nil
		s.Models = map[string]string{"fast": "gpt-4o-mini"}
	})
	get := func(path string, into any) int {
		w := httptest.NewRecorder()
		x.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil))
		_ = json.Unmarshal(w.Body.Bytes(), into)
		return w.Code
	}
	var list struct{ Data []struct{ ID string } }
	get("/v1/models", &list)
	var ids []string
	for _, m := range list.Data {
		ids = append(ids, m.ID)
	}
	if !slices.Contains(ids, "fast") || !slices.Contains(ids, "gpt-4o") || !slices.IsSorted(ids) || slices.Contains(ids, "claude-sonnet-4") {
		t.Errorf("models %q", ids)
	}
	var one struct{ ID string }
	if code := get("/v1/models/gpt-4o-2024-08-06", &one); code != 200 || one.ID != "gpt-4o-2024-08-06" {
		t.Errorf("%d %+v", code, one)
	}
	if code := get("/v1/models/claude-3-5-haiku-latest", &one); code != 404 {
		t.Errorf("%d", code)
	}
}

// Clients of several APIs ask for /v1/models, and say by their headers which one they read.
func TestModelsAreListedInTheFormThatTheClientReads(t *testing.T) {
	x := relay(t, "http://up.test", func(*setting) {})
	for _, tt := range []struct{ path, header, want string }{
		{"/v1/models", "Authorization", `{"data":[{"created":0,"id":"alias","object":"model"`},
		{"/v1/models", "Anthropic-Version", `"type":"model"`},
		{"/v1/models", "X-Goog-Api-Key", `{"models":[{"displayName":"alias","name":"models/alias"}`},
		{"/v1/models?key=k", "Accept", `{"models":[`},
		{"/v1beta/models", "Accept", `{"models":[`},
		{"/v1/models/none", "X-Goog-Api-Key", `"status":"NOT_FOUND"`},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "http://localhost"+tt.path, nil)
		r.Header.Set(tt.header, "any")
		x.ServeHTTP(w, r)
		if !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s with %s: %s", tt.path, tt.header, w.Body)
		}
	}
}

func TestOtherPathsPassOnlyWhereTheyAreListed(t *testing.T) {
	var asked []string
	tries := 0
	x, front := served(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		asked = append(asked, r.Method+" "+r.URL.RequestURI()+" "+string(b))
		switch tries++; {
		case r.URL.Path == "/v1/files/busy" && tries%2 == 1:
			w.Header().Set("Retry-After-Ms", "1")
			w.WriteHeader(429)
		case r.URL.Path == "/v1/files/broken":
			w.WriteHeader(500)
		default:
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = io.WriteString(w, "\x00not JSON")
		}
	}, func(s *setting) {
		s.upstream.BaseURL += "/v1"
		s.Passthrough = []gateway.Passthrough{{Method: "POST", Path: "/v1/files", Upstream: "up"}, {Method: "GET", Path: "/v1/files", Upstream: "up"}}
	})
	got := do(t, "POST", front.URL+"/v1/files?purpose=batch&limit=2", "\x01data")
	if got.status != 200 || got.body != "\x00not JSON" || asked[0] != "POST /v1/files?limit=2&purpose=batch \x01data" {
		t.Errorf("%+v, %q", got, asked)
	}
	do(t, "GET", front.URL+"/v1/files/a/content", "")
	if asked[1] != "GET /v1/files/a/content " {
		t.Errorf("%q", asked)
	}
	tries = 0
	if got := do(t, "POST", front.URL+"/v1/files/busy", "x"); got.status != 200 || tries != 2 {
		t.Errorf("throttled: %+v after %d tries", got, tries)
	}
	tries = 0
	if got := do(t, "POST", front.URL+"/v1/files/broken", "x"); got.status != 500 || tries != 1 {
		t.Errorf("broken: %+v after %d tries", got, tries)
	}
	asked = nil
	if got := do(t, "DELETE", front.URL+"/v1/files/a", ""); got.status != 404 || len(asked) != 0 {
		t.Errorf("%d, asked %q", got.status, asked)
	}
	x.Wait()
}

func TestPassthroughAndEarlyAreChecked(t *testing.T) {
	up := relay(t, "http://up.test", nil)
	for _, cfg := range []gateway.Config{
		{Early: -1},
		{Passthrough: []gateway.Passthrough{{Path: "/", Upstream: "up"}}}, {Passthrough: []gateway.Passthrough{{Path: "/v1/files", Upstream: "other"}}},
		{Passthrough: []gateway.Passthrough{{Path: "/v1/files/", Upstream: "up"}}},
	} {
		cfg.Upstreams = up.upstreams
		if _, err := gateway.New(cfg); err == nil {
			t.Errorf("%+v is taken", cfg)
		}
	}
}

func TestAMethodThatAPathDoesNotTakeIsToldTheOne(t *testing.T) {
	_, front := served(t, func(w http.ResponseWriter, r *http.Request) { t.Error("it is sent") }, nil)
	for _, c := range []struct {
		method, path string
		status       int
		allow, want  string
	}{
		{"GET", "/v1/chat/completions", 405, "POST", `"/v1/chat/completions accepts POST, not GET"`},
		{"GET", "/v2/chat", 405, "POST", `{"code":"method_not_allowed","message":`},
		{"PUT", "/v1/messages", 405, "POST", `"type":"invalid_request_error"`},
		{"GET", "/v1beta/models/m:countTokens", 405, "POST", "accepts POST, not GET"},
		{"POST", "/v1/models", 405, "GET", `"/v1/models accepts GET, not POST"`},
		{"DELETE", "/v1/models/m", 405, "GET", "accepts GET, not DELETE"},
		{"GET", "/v1/models/m:8b", 404, "", "does not serve this model"},
		{"GET", "/v1/nothing", 404, "", "unknown path"},
		{"POST", "/v1/files", 404, "", "and the paths in the setting passthrough"},
	} {
		got := do(t, c.method, front.URL+c.path, "")
		if got.status != c.status || got.header.Get("Allow") != c.allow || !strings.Contains(got.body, c.want) {
			t.Errorf("%s %s: %d, allow %q, %s", c.method, c.path, got.status, got.header.Get("Allow"), got.body)
		}
	}
}
