package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"sync"
)

// anthropicVersion is the API version that every Anthropic SDK sends, the only one since 2023
// (https://docs.anthropic.com/en/api/versioning).
const anthropicVersion = "2023-06-01"

// Endpoint is a path of a provider's API that Sluice understands: what it costs, and what it answers.
type Endpoint uint8

// Endpoints. The zero value is none.
const (
	NoEndpoint      Endpoint = iota
	ChatCompletions          // POST /v1/chat/completions
	Responses                // POST /v1/responses
	Embeddings               // POST /v1/embeddings
	Messages                 // POST /v1/messages
	numEndpoints
)

// String returns the endpoint's path as a batch line's url spells it.
func (e Endpoint) String() string {
	switch e {
	case ChatCompletions:
		return "/v1/chat/completions"
	case Responses:
		return "/v1/responses"
	case Embeddings:
		return "/v1/embeddings"
	case Messages:
		return "/v1/messages"
	}
	return ""
}

// Dialect returns the form of the endpoint's requests and answers.
func (e Endpoint) Dialect() Dialect {
	if e == Messages {
		return Anthropic
	}
	return OpenAI
}

// ParseEndpoint reads the url of a batch line, which is exactly one of the known paths. An address is refused, so that
// no input file decides where the key is sent.
func ParseEndpoint(path string) (Endpoint, error) {
	for e := NoEndpoint + 1; e < numEndpoints; e++ {
		if path == e.String() {
			return e, nil
		}
	}
	if strings.Contains(path, "//") {
		return NoEndpoint, fmt.Errorf("url %q is an address: only a path is allowed, such as /v1/chat/completions; "+
			"the address comes from the base URL", Redact(clip(path, 200)))
	}
	return NoEndpoint, fmt.Errorf("unknown url %q: want /v1/chat/completions, /v1/responses, /v1/embeddings or "+
		"/v1/messages", Redact(clip(path, 200)))
}

// EndpointOf returns the endpoint that a request of some SDK is for. The path may stand below any base, such as
// /openai/deployments/x of Azure.
func EndpointOf(r *http.Request) (Endpoint, bool) {
	if r.Method != http.MethodPost || r.URL == nil {
		return NoEndpoint, false
	}
	path := r.URL.Path
	switch {
	case strings.HasSuffix(path, "/chat/completions"):
		return ChatCompletions, true
	case strings.HasSuffix(path, "/responses"):
		return Responses, true
	case strings.HasSuffix(path, "/embeddings"):
		return Embeddings, true
	case strings.HasSuffix(path, "/v1/messages"): // with /v1: OpenAI has /v1/threads/x/messages
		return Messages, true
	}
	return NoEndpoint, false
}

// URL returns the address of an endpoint below base, which is as the official SDK takes it; "" is the provider's own.
// A base for OpenAI that is only a host gets the /v1 that such servers want. A query in base is kept (Azure's
// api-version).
func (p Provider) URL(base string, e Endpoint) string {
	if base == "" {
		base = p.BaseURL
	}
	base, query, hasQuery := strings.Cut(base, "?")
	base = strings.TrimRight(base, "/")
	path := e.String()
	_, afterScheme, _ := strings.Cut(base, "://")
	hasPath := strings.Contains(afterScheme, "/")
	if strings.HasSuffix(base, "/v1") || (hasPath && e.Dialect() == OpenAI) {
		path = strings.TrimPrefix(path, "/v1")
	}
	if hasQuery {
		return base + path + "?" + query
	}
	return base + path
}

// NewRequest makes the request of one call. The key is sent as the provider wants it; "" sends none. The headers in
// extra win over all others. The body can be sent again (GetBody is set).
func (p Provider) NewRequest(ctx context.Context, base, key string, e Endpoint, body []byte, extra http.Header) (*http.Request, error) {
	if base == "" && p.BaseURL == "" {
		return nil, fmt.Errorf("provider %q has no base URL of its own: give one", p.Name)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.URL(base, e), bytes.NewReader(body))
	if err != nil {
		// A parse error quotes the whole address, which may hold a key.
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("base URL: %s", Redact(err.Error(), key))
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Host == "" {
		return nil, fmt.Errorf("base URL %q is not an http or https address", Redact(clip(base, 200), key))
	}
	h := req.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", userAgent())
	if e.Dialect() == Anthropic {
		h.Set("Anthropic-Version", anthropicVersion)
	}
	if key != "" && p.Auth.Header != "" {
		h.Set(p.Auth.Header, p.Auth.Prefix+key)
	}
	for k, v := range extra {
		h[http.CanonicalHeaderKey(k)] = v
	}
	return req, nil
}

// userAgent names the program and its version as the module system knows it.
var userAgent = sync.OnceValue(func() string {
	const module = "github.com/sluice-llm/sluice"
	version := "dev"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module && m.Version != "" && m.Version != "(devel)" {
				version = m.Version
			}
		}
	}
	return "sluice/" + version
})

// withBody returns a shallow copy of req for one try, with a body of its own.
func withBody(ctx context.Context, req *http.Request, body []byte) *http.Request {
	r := req.WithContext(ctx)
	r.ContentLength = int64(len(body))
	if len(body) == 0 {
		r.Body, r.GetBody = http.NoBody, nil
		return r
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	return r
}

// clip shortens a text that is quoted in a message, at a rune's boundary.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && s[n]&0xC0 == 0x80 {
		n--
	}
	return s[:n] + "…"
}
