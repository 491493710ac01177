package provider_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/provider"
)

func TestModelsAreRecognised(t *testing.T) {
	cases := map[string]string{
		"gpt-4o": "openai", "gpt-5-mini": "openai", "o1": "openai", "o3-mini": "openai", "o4-mini-2025": "openai",
		"chatgpt-4o-latest": "openai", "text-embedding-3-small": "openai", "GPT-4o": "openai",
		"claude-opus-4-5": "anthropic", "claude-3-haiku": "anthropic",
		"gemini-2.5-flash": "gemini", "models/gemini-2.5-pro": "gemini", "gemma-3-27b-it": "", "models/gemma-3": "",
		"": "", "llama-3.3-70b": "", "gpt-oss-120b": "", "o1x": "", "olmo": "", "openai/gpt-4o": "", "my-gpt-4": "",
	}
	for model, want := range cases {
		p, ok := provider.Published().Recognise(model)
		if ok != (want != "") || p.Name != want {
			t.Errorf("%q is of %q (%v), want %q", model, p.Name, ok, want)
		}
	}
}

func TestOnlyKnownPathsAreEndpoints(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/messages"} {
		e, _, err := provider.ParseEndpoint(path)
		if err != nil || e.String() != path {
			t.Errorf("%q: %v, %v", path, e, err)
		}
	}
	for _, path := range []string{"", "/", "/v1/chat/completions/", "v1/chat/completions", "/v1/models", "/v1/chat/completions?x=1"} {
		if _, _, err := provider.ParseEndpoint(path); err == nil {
			t.Errorf("%q is accepted", path)
		}
	}
	for _, url := range []string{"https://evil.example/v1/chat/completions", "//evil.example/v1/messages"} {
		if _, _, err := provider.ParseEndpoint(url); err == nil || !strings.Contains(err.Error(), "host") {
			t.Errorf("%q: %v", url, err)
		}
	}
}

func TestBaseAndPathAreJoined(t *testing.T) {
	cases := []struct {
		provider, base string
		endpoint       provider.Endpoint
		want           string
	}{
		{"openai", "", provider.ChatCompletions, "https://api.openai.com/v1/chat/completions"},
		{"openai", "https://x/v1", provider.ChatCompletions, "https://x/v1/chat/completions"},
		{"openai", "https://x/v1/", provider.Responses, "https://x/v1/responses"},
		{"openai", "http://localhost:8000", provider.Embeddings, "http://localhost:8000/v1/embeddings"},
		{"openai", "https://api.groq.com/openai/v1", provider.ChatCompletions, "https://api.groq.com/openai/v1/chat/completions"},
		{"openai", "https://generativelanguage.googleapis.com/v1beta/openai", provider.ChatCompletions, "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions"},
		{"openai", "https://r.openai.azure.com/openai/deployments/d?api-version=2024-06-01", provider.ChatCompletions, "https://r.openai.azure.com/openai/deployments/d/chat/completions?api-version=2024-06-01"},
		{"anthropic", "", provider.Messages, "https://api.anthropic.com/v1/messages"},
		{"anthropic", "https://x", provider.Messages, "https://x/v1/messages"},
		{"anthropic", "https://x/anthropic/", provider.Messages, "https://x/anthropic/v1/messages"},
		{"anthropic", "https://x/v1", provider.Messages, "https://x/v1/messages"},
		{"sim", "", provider.Messages, "http://sim.invalid/v1/messages"},
		{"sim", "", provider.EmbedContent, "http://sim.invalid/v1beta/models/m-1.5:embedContent"},
		{"gemini", "", provider.GenerateContent, "https://generativelanguage.googleapis.com/v1beta/models/m-1.5:generateContent"},
		{"gemini", "", provider.StreamGenerateContent, "https://generativelanguage.googleapis.com/v1beta/models/m-1.5:streamGenerateContent?alt=sse"},
		{"gemini", "https://generativelanguage.googleapis.com/", provider.GenerateContent, "https://generativelanguage.googleapis.com/v1beta/models/m-1.5:generateContent"},
		{"gemini", "https://generativelanguage.googleapis.com/v1", provider.GenerateContent, "https://generativelanguage.googleapis.com/v1/models/m-1.5:generateContent"},
		{"gemini", "https://x/gemini", provider.BatchEmbedContents, "https://x/gemini/v1beta/models/m-1.5:batchEmbedContents"},
		{"gemini", "https://x?tenant=a&alt=sse", provider.StreamGenerateContent, "https://x/v1beta/models/m-1.5:streamGenerateContent?tenant=a&alt=sse"},
		{"gemini", "https://l-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google", provider.GenerateContent, "https://l-aiplatform.googleapis.com/v1/projects/p/locations/l/publishers/google/models/m-1.5:generateContent"},
		{"openai-compatible", "http://localhost:4000/v1", provider.GenerateContent, "http://localhost:4000/v1beta/models/m-1.5:generateContent"},
	}
	for _, c := range cases {
		got, err := lookup(t, c.provider).URL(c.base, c.endpoint, "models/m-1.5")
		if err != nil || got != c.want {
			t.Errorf("%s %q: %s, %v, want %s", c.provider, c.base, got, err, c.want)
		}
	}
}

func TestQueryOfAProviderGoesIntoEveryAddress(t *testing.T) {
	const base = "https://r.openai.azure.com/openai/deployments/d"
	for _, c := range []struct{ query, base, want string }{
		{"api-version=2024-10-21", base, "?api-version=2024-10-21"},
		{"api-version=2024-10-21", base + "?api-version=preview", "?api-version=preview"},
		{"api-version=1&x=2", base + "/?y=3&x=4", "?y=3&x=4&api-version=1"},
		{"a=1&a=2&&b", base + "?", "?a=1&b"},
		{"", base + "?", ""},
	} {
		p := provider.Provider{Query: c.query}
		if got, err := p.URL(c.base, provider.ChatCompletions, ""); err != nil || got != base+"/chat/completions"+c.want {
			t.Errorf("%q at %q: %s, %v, want %s", c.query, c.base, got, err, c.want)
		}
	}
}

func TestModelInAPathIsOnlyAnID(t *testing.T) {
	for model, want := range map[string]string{
		"gemini-2.5-flash": "/v1beta/models/gemini-2.5-flash:generateContent", "models/x_1": "/v1beta/models/x_1:generateContent",
		"tunedModels/mine-1": "/v1beta/tunedModels/mine-1:generateContent",
	} {
		if got, err := provider.GenerateContent.Path(model); err != nil || got != want {
			t.Errorf("%q: %s, %v, want %s", model, got, err, want)
		}
	}
	for _, model := range []string{
		"", "models/", "tunedModels/", "models/models/x", "a/b", "../x", "..", "x?key=1", "x#y", "x%2fy", "x:countTokens", `x\y`, "x y",
		"http://evil.example", "//evil.example/x", "@evil.example", "x\n", "é", "tunedModels/a/permissions",
	} {
		if got, err := provider.GenerateContent.Path(model); err == nil {
			t.Errorf("%q is let into %s", model, got)
		}
		if _, err := lookup(t, "gemini").NewRequest(t.Context(), provider.Target{Key: "k", Endpoint: provider.GenerateContent, Model: model}, nil); err == nil {
			t.Errorf("%q is sent", model)
		}
	}
	if got, err := provider.ChatCompletions.Path("openai/gpt-oss ../?"); err != nil || got != "/v1/chat/completions" {
		t.Errorf("%s, %v: a model that is not in the path has any name", got, err)
	}
}

func TestPathsOfGeminiHoldTheModel(t *testing.T) {
	for path, want := range map[string]struct {
		e     provider.Endpoint
		model string
	}{
		"/v1beta/models/gemini-2.5-flash:generateContent":  {provider.GenerateContent, "gemini-2.5-flash"},
		"/v1beta/tunedModels/x:generateContent":            {provider.GenerateContent, "tunedModels/x"},
		"/v1beta/models/x:streamGenerateContent":           {provider.StreamGenerateContent, "x"},
		"/v1beta/models/x:streamGenerateContent?alt=sse":   {provider.StreamGenerateContent, "x"},
		"/v1beta/models/x:embedContent":                    {provider.EmbedContent, "x"},
		"/v1beta/models/x:batchEmbedContents":              {provider.BatchEmbedContents, "x"},
		"/v1beta/models/x:countTokens":                     {},
		"/v1beta/models/x:generateContent?alt=sse":         {},
		"/v1beta/models/x:generateContent?key=1":           {},
		"/v1beta/models/x/../../files:generateContent":     {},
		"/v1beta/x:generateContent":                        {},
		"/v1beta/models/:generateContent":                  {},
		"/v1beta/models/models/x:generateContent":          {},
		"/v1beta/models/{model}:generateContent":           {},
		"/v1beta/models/a:generateContent:generateContent": {},
		"/v2/models/x:generateContent":                     {},
		"//evil.example/v1beta/models/x:generateContent":   {},
	} {
		e, model, err := provider.ParseEndpoint(path)
		if (err == nil) != (want.e != provider.NoEndpoint) || err == nil && (e != want.e || model != want.model) {
			t.Errorf("%s: %v %q %v, want %v %q", path, e, model, err, want.e, want.model)
		}
	}
}

func TestRequestsOfSDKsAreRecognised(t *testing.T) {
	for path, want := range map[string]provider.Endpoint{
		"/openai/deployments/d/chat/completions":                                provider.ChatCompletions,
		"/v1beta/models/gemini-2.5-pro:generateContent":                         provider.GenerateContent,
		"/v1beta/tunedModels/t:generateContent":                                 provider.GenerateContent,
		"/v1beta/models/gemini-2.5-pro:streamGenerateContent":                   provider.StreamGenerateContent,
		"/v1/projects/p/locations/l/publishers/google/models/g:generateContent": provider.GenerateContent,
		"/v1beta/models/e:batchEmbedContents":                                   provider.BatchEmbedContents,
		"/v1beta/models/g:countTokens":                                          provider.NoEndpoint,
		"/v1beta/models/g:batchGenerateContent":                                 provider.NoEndpoint,
		"/v1beta/cachedContents":                                                provider.NoEndpoint,
		"/:generateContent":                                                     provider.NoEndpoint,
	} {
		req, _ := http.NewRequest(http.MethodPost, "https://x"+path+"?alt=sse", nil)
		if e, ok := provider.EndpointOf(req); e != want || ok != (want != provider.NoEndpoint) {
			t.Errorf("%s: %q %v, want %q", path, e, ok, want)
		}
	}
}

// FuzzEndpoint: whatever a line names, the request goes to the base's host, to a path that was asked for.
func FuzzEndpoint(f *testing.F) {
	for _, seed := range []string{"/v1beta/models/x:generateContent", "/v1beta/models/../x:streamGenerateContent?alt=sse", "models/x", "//h/x", "%2e%2e", "x?y#z"} {
		f.Add(seed)
	}
	gemini, _ := provider.Lookup("gemini")
	f.Fuzz(func(t *testing.T, s string) {
		e, model, err := provider.ParseEndpoint(s)
		if err != nil {
			e, model = provider.GenerateContent, s
		}
		req, refused := gemini.NewRequest(t.Context(), provider.Target{BaseURL: "https://host.example", Endpoint: e, Model: model}, nil)
		if refused != nil {
			if err == nil {
				t.Fatalf("%q: %v", s, refused)
			}
			return
		}
		path, _ := e.Path(model)
		if req.URL.Host != "host.example" || req.URL.Path != path || req.URL.EscapedPath() != path || req.URL.Fragment != "" ||
			req.URL.RawQuery != "" && (req.URL.RawQuery != "alt=sse" || e != provider.StreamGenerateContent) {
			t.Fatalf("%q leads to %s", s, req.URL)
		}
		if got, ok := provider.EndpointOf(req); !ok || got != e {
			t.Fatalf("%q is sent to %q and taken for %q", s, e, got)
		}
	})
}

func TestRequestIsAsTheProviderWantsIt(t *testing.T) {
	ctx := context.Background()
	req, err := lookup(t, "anthropic").NewRequest(ctx, provider.Target{Key: "sk-ant-1", Endpoint: provider.Messages, Model: "m", Header: header("anthropic-beta", "b")}, []byte(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	want := header("content-type", "application/json", "anthropic-version", "2023-06-01", "x-api-key", "sk-ant-1", "anthropic-beta", "b")
	for k := range want {
		if req.Header.Get(k) != want.Get(k) {
			t.Errorf("%s: %q", k, req.Header.Get(k))
		}
	}
	if !strings.HasPrefix(req.Header.Get("User-Agent"), "sluice/") {
		t.Errorf("user agent %q", req.Header.Get("User-Agent"))
	}
	body, err := req.GetBody()
	if b, _ := io.ReadAll(body); err != nil || string(b) != "{}" || req.ContentLength != 2 || req.Method != http.MethodPost {
		t.Errorf("%q %v %d %s", b, err, req.ContentLength, req.Method)
	}
	req, err = lookup(t, "openai").NewRequest(ctx, provider.Target{Key: "sk-1", Endpoint: provider.ChatCompletions, Model: "m", Header: header("User-Agent", "me")}, nil)
	if err != nil || req.Header.Get("Authorization") != "Bearer sk-1" || req.Header.Get("User-Agent") != "me" {
		t.Errorf("%v %v", req.Header, err)
	}
}

func TestBadBaseIsRefusedWithoutItsKey(t *testing.T) {
	for _, base := range []string{"ftp://x/v1", "x/v1", "https://", "http://[::1/?key=sk-abcdefghijkl", "http://a b/v1"} {
		_, err := lookup(t, "openai").NewRequest(context.Background(), provider.Target{BaseURL: base, Key: "k", Endpoint: provider.ChatCompletions, Model: "m"}, nil)
		if err == nil || strings.Contains(err.Error(), "sk-abcdefghijkl") {
			t.Errorf("%q: %v", base, err)
		}
	}
	if _, err := lookup(t, "openai-compatible").NewRequest(context.Background(), provider.Target{Endpoint: provider.ChatCompletions, Model: "m"}, nil); err == nil {
		t.Error("no base is needed")
	}
}
