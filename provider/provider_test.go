package provider_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
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
		p, ok := provider.Recognise(model)
		if ok != (want != "") || p.Name != want {
			t.Errorf("%q is of %q (%v), want %q", model, p.Name, ok, want)
		}
	}
}

func TestEveryNameCanBeLookedUp(t *testing.T) {
	for _, name := range provider.Names() {
		if p, ok := provider.Lookup(name); !ok || p.Name != name {
			t.Errorf("%q: %+v", name, p)
		}
	}
	if _, ok := provider.Lookup("nobody"); ok {
		t.Error("nobody is a provider")
	}
	o, a, g := lookup(t, "openai"), lookup(t, "anthropic"), lookup(t, "gemini")
	if o.Charge != sluice.ChargeDeclared || a.Charge != sluice.ChargeActual || a.CountsCached || g.Charge != sluice.ChargeActual || !g.CountsCached {
		t.Error("charge modes are mixed up")
	}
}

func TestOnlyKnownPathsAreEndpoints(t *testing.T) {
	for _, path := range []string{"/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/messages"} {
		e, err := provider.ParseEndpoint(path)
		if err != nil || e.String() != path {
			t.Errorf("%q: %v, %v", path, e, err)
		}
	}
	for _, path := range []string{"", "/", "/v1/chat/completions/", "v1/chat/completions", "/v1/models", "/v1/chat/completions?x=1"} {
		if _, err := provider.ParseEndpoint(path); err == nil {
			t.Errorf("%q is accepted", path)
		}
	}
	for _, url := range []string{"https://evil.example/v1/chat/completions", "//evil.example/v1/messages"} {
		if _, err := provider.ParseEndpoint(url); err == nil || !strings.Contains(err.Error(), "address") {
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
	}
	for _, c := range cases {
		if got := lookup(t, c.provider).URL(c.base, c.endpoint); got != c.want {
			t.Errorf("%s %q: %s, want %s", c.provider, c.base, got, c.want)
		}
	}
}

func TestRequestIsAsTheProviderWantsIt(t *testing.T) {
	ctx := context.Background()
	req, err := lookup(t, "anthropic").NewRequest(ctx, "", "sk-ant-1", provider.Messages, []byte(`{}`), header("anthropic-beta", "b"))
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
	req, err = lookup(t, "openai").NewRequest(ctx, "", "sk-1", provider.ChatCompletions, nil, header("User-Agent", "me"))
	if err != nil || req.Header.Get("Authorization") != "Bearer sk-1" || req.Header.Get("User-Agent") != "me" {
		t.Errorf("%v %v", req.Header, err)
	}
}

func TestBadBaseIsRefusedWithoutItsKey(t *testing.T) {
	for _, base := range []string{"ftp://x/v1", "x/v1", "https://", "http://[::1/?key=sk-abcdefghijkl", "http://a b/v1"} {
		_, err := lookup(t, "openai").NewRequest(context.Background(), base, "k", provider.ChatCompletions, nil, nil)
		if err == nil || strings.Contains(err.Error(), "sk-abcdefghijkl") {
			t.Errorf("%q: %v", base, err)
		}
	}
	if _, err := lookup(t, "openai-compatible").NewRequest(context.Background(), "", "", provider.ChatCompletions, nil, nil); err == nil {
		t.Error("no base is needed")
	}
}
