package provider

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-llm/sluice/internal/prose"
)

// Endpoints returns all supported endpoints.
func Endpoints() []Endpoint {
	var all []Endpoint
	for e := NoEndpoint + 1; e < numEndpoints; e++ {
		all = append(all, e)
	}
	return all
}

// spec is what is known of an endpoint. The file of its dialect says it.
type spec struct {
	dialect Dialect
	path    string                             // as documents write it, with {model} for the model
	pathOf  func(model string) (string, error) // the path for a model; nil is path
	ending  string                             // of the paths of requests, by which EndpointOf knows them; "" is none
	count   string                             // takes the place of ending where only the tokens of a request are counted; "" is none
	stream  string                             // every response is a stream: of events if the address has this query, else one JSON array
	embeds  bool
	fields  string // the top-level fields of requests

	bound     string // see Provider.Bound
	otherwise int    // see Provider.Bound
	turns     *turns // nil has no conversation
	prompt    func(b []byte, model string, prompt, system []byte) []byte

	fold   func() fold // of its streams
	status bool        // the response has a status, which is why it ended if nothing else is; a stream is whole with its last event only
}

// turns is how the requests of an endpoint hold a conversation. Texts are JSON strings.
type turns struct {
	member string
	open   func(b, conversation []byte) []byte // appends the conversation without its last bracket; nil: it has a form that cannot go on
	turn   func(b []byte, role string, text []byte) []byte
}

var specs = func() (all [numEndpoints]spec) {
	for d := range dialectFacts {
		for e, s := range dialectFacts[d].endpoints {
			s.dialect = Dialect(d)
			all[e] = s
		}
	}
	for e := range all {
		if all[e].prompt == nil {
			all[e].prompt = chatPrompt
		}
		if all[e].fold == nil {
			all[e].fold = newChatFold
		}
	}
	return all
}()

// spec returns what is known of the endpoint.
func (e Endpoint) spec() *spec {
	if e >= numEndpoints {
		e = NoEndpoint
	}
	return &specs[e]
}

// String returns the endpoint's path, as in the url field of a batch input line.
func (e Endpoint) String() string { return e.spec().path }

// MarshalText returns the endpoint's path, as String does.
func (e Endpoint) MarshalText() ([]byte, error) { return []byte(e.String()), nil }

// UnmarshalText accepts the paths that String returns.
func (e *Endpoint) UnmarshalText(path []byte) error {
	i := slices.IndexFunc(Endpoints(), func(e Endpoint) bool { return e.String() == string(path) })
	if i < 0 {
		return fmt.Errorf("unknown endpoint %q", clip(string(path), 60))
	}
	*e = Endpoints()[i]
	return nil
}

// Dialect returns the dialect of the endpoint.
func (e Endpoint) Dialect() Dialect { return e.spec().dialect }

// Embeds reports whether the endpoint returns embeddings, which have no output tokens.
func (e Endpoint) Embeds() bool { return e.spec().embeds }

// ModelInPath reports whether the URL path contains the model, which the body can then omit.
func (e Endpoint) ModelInPath() bool { return e.spec().pathOf != nil }

// CountPath returns the path for counting a request's tokens, with {model} as a placeholder, or "" if the API cannot count tokens.
func (e Endpoint) CountPath() string {
	s := e.spec()
	if s.count == "" {
		return ""
	}
	return strings.TrimSuffix(s.path, s.ending) + s.count
}

// Has reports whether the provider may offer an endpoint. A provider with the dialect OpenAI may also have endpoints of other dialects,
// unless OneDialect is set.
func (p Provider) Has(e Endpoint) bool {
	return e.Dialect() == p.Dialect || p.Dialect == OpenAI && !p.OneDialect
}

// PromptEndpoint returns the endpoint for a single prompt to a model. The model's name can indicate an embedding or completion model.
func (p Provider) PromptEndpoint(model string) Endpoint {
	return dialects[p.Dialect].promptEndpoint(strings.ToLower(model))
}

// MessagesEndpoint returns the endpoint for a request with a messages field.
func (p Provider) MessagesEndpoint() Endpoint {
	return cmp.Or(dialectFacts[p.Dialect].messages, ChatCompletions)
}

// Bound returns the name of the request field that limits the output length, or "" if the endpoint has no such field. Dots separate the
// names of nested fields. otherwise is the limit for a request without one, or 0 if the provider requires no limit.
func (p Provider) Bound(e Endpoint) (member string, otherwise int) {
	if e == ChatCompletions && p.ChatBound != "" {
		return p.ChatBound, 0
	}
	return e.spec().bound, e.spec().otherwise
}

// Path returns the endpoint's path for a model. Only Gemini paths contain the model, which can be written x, models/x or tunedModels/x. Path
// rejects a model ID that could lead to another path, because IDs can come from input files.
func (e Endpoint) Path(model string) (string, error) {
	if s := e.spec(); s.pathOf != nil {
		return s.pathOf(model)
	}
	return e.String(), nil
}

// AppendPrompt appends the JSON body of a request with one prompt to b, without the closing brace, so that more fields can follow. prompt
// and system are JSON strings. If system is nil, the body has no system prompt. For Completions, AppendPrompt puts system before the prompt.
// Embedding and Gemini endpoints ignore system.
func AppendPrompt(b []byte, e Endpoint, model string, prompt, system []byte) []byte {
	return e.spec().prompt(b, model, prompt, system)
}

// ParseEndpoint returns the endpoint for the url field of a batch input line, which must be a path. model is the model in a Gemini path, or
// "". ParseEndpoint rejects complete URLs, so that an input file cannot choose the host that receives the API key.
func ParseEndpoint(path string) (e Endpoint, model string, err error) {
	for e := NoEndpoint + 1; e < numEndpoints; e++ {
		s := e.spec()
		if s.pathOf == nil {
			if path == s.path {
				return e, "", nil
			}
			continue
		}
		bare := path
		if s.stream != "" {
			bare = strings.TrimSuffix(path, "?"+s.stream) // as the documents write it
		}
		before, after, _ := strings.Cut(s.path, "models/{model}")
		id, version := strings.CutPrefix(bare, before)
		id, method := strings.CutSuffix(id, after)
		if !version || !method {
			continue
		}
		if want, err := e.Path(id); want == bare || err != nil {
			return e, strings.TrimPrefix(id, "models/"), err
		}
	}
	if strings.Contains(path, "//") {
		return NoEndpoint, "", fmt.Errorf("url %q contains a host, which only the base URL sets: "+
			"use a path such as /v1/chat/completions", Redact(clip(path, 200)))
	}
	return NoEndpoint, "", fmt.Errorf("unknown url %q: use /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, "+
		"/v1/messages or %s", Redact(clip(path, 200)), GenerateContent)
}

// endpointOf returns the endpoint that a request of some SDK is for. The path may stand below any base, such as
// /openai/deployments/x of Azure.
func endpointOf(r *http.Request) (Endpoint, bool) {
	if r.Method != http.MethodPost || r.URL == nil {
		return NoEndpoint, false
	}
	path := r.URL.Path
	for e := NoEndpoint + 1; e < numEndpoints; e++ {
		s := e.spec()
		if s.ending != "" && strings.HasSuffix(path, s.ending) && (s.pathOf == nil || modelIn(path) != "") {
			return e, true
		}
	}
	return NoEndpoint, false
}

// modelIn returns the model that stands in a path: of Gemini, or the name that stands for it with Azure. "" is none.
func modelIn(path string) string {
	if _, rest, ok := strings.Cut(path, "/deployments/"); ok {
		name, _, _ := strings.Cut(rest, "/")
		return name
	}
	at, prefix := strings.LastIndex(path, "/models/"), "/models/"
	if at < 0 {
		at, prefix = strings.LastIndex(path, "/tunedModels/"), "/" // which stays, as it tells the two apart
	}
	if at < 0 {
		return ""
	}
	name, _, _ := strings.Cut(path[at+len(prefix):], ":")
	return name
}

// URL returns the URL of an endpoint. base is a base URL as the official SDK expects it. If base is "", URL uses p.BaseURL. If an OpenAI
// base URL is only a host, URL adds /v1. If a Gemini base URL has no version, URL adds /v1beta. URL keeps the query parameters of base,
// which have precedence over p.Query. URL rejects the model IDs that Path rejects.
func (p Provider) URL(base string, e Endpoint, model string) (string, error) {
	path, err := e.Path(model)
	if err != nil {
		return "", err
	}
	return p.address(base, path, e.spec().stream, e.Dialect()), nil
}

// address returns that of a path of a dialect below base, as URL has it. What query says comes last.
func (p Provider) address(base, path, query string, of Dialect) string {
	base, own, _ := strings.Cut(cmp.Or(base, p.BaseURL), "?")
	base, path = dialects[of].address(strings.TrimRight(base, "/"), path, p.Dialect)
	if query = withQuery(withQuery(own, p.Query), query); query != "" {
		return base + path + "?" + query
	}
	return base + path
}

// versioned reports whether some part of an address's path is a version, such as /v1beta, or Vertex's /v1 before its
// projects.
func versioned(base string) bool {
	_, rest, _ := strings.Cut(base, "://")
	_, rest, _ = strings.Cut(rest, "/")
	return slices.ContainsFunc(strings.Split(rest, "/"), isVersion)
}

func isVersion(part string) bool {
	return len(part) > 1 && part[0] == 'v' && part[1] >= '0' && part[1] <= '9'
}

// withQuery adds those members of a query that the other does not name.
func withQuery(query, more string) string {
	for member := range strings.SplitSeq(more, "&") {
		name, _, _ := strings.Cut(member, "=")
		named := func(other string) bool { have, _, _ := strings.Cut(other, "="); return have == name }
		if member == "" || slices.ContainsFunc(strings.Split(query, "&"), named) {
			continue
		}
		if query != "" {
			query += "&"
		}
		query += member
	}
	return query
}

// Target contains the destination, API key and headers of a request.
type Target struct {
	BaseURL  string // base URL as the official SDK expects it (default: the provider's base URL)
	Key      string // API key for the header Provider.Auth; "" sends no key
	Endpoint Endpoint
	Model    string      // model ID, used only by endpoints whose path contains the model
	Header   http.Header // additional headers, which replace existing headers with the same name
}

// Check returns an error if the target's base URL is invalid for all endpoints and models.
func (p Provider) Check(t Target) error {
	t.Endpoint = ChatCompletions
	_, err := p.NewRequest(context.Background(), t, nil)
	return err
}

// NewRequest returns an HTTP request to the target. NewRequest sets GetBody, so that the body can be sent again.
func (p Provider) NewRequest(ctx context.Context, t Target, body []byte) (*http.Request, error) {
	if t.BaseURL == "" && p.BaseURL == "" {
		return nil, fmt.Errorf("provider %q has no default base URL: set the base URL", p.Name)
	}
	address, err := p.URL(t.BaseURL, t.Endpoint, t.Model)
	if err != nil {
		return nil, err
	}
	return p.request(ctx, t, http.MethodPost, address, t.Endpoint.Dialect(), bytes.NewReader(body))
}

// request makes a request to an address of a dialect, with what every one to the target carries.
func (p Provider) request(ctx context.Context, t Target, method, address string, of Dialect, body io.Reader) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, body)
	if err != nil {
		// A parse error quotes the whole address, which may hold a key.
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, fmt.Errorf("invalid base URL: %s", Redact(err.Error(), t.Key))
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Host == "" {
		return nil, fmt.Errorf("base URL %q is not an http or https URL", Redact(clip(t.BaseURL, 200), t.Key))
	}
	h := req.Header
	if body != nil {
		h.Set("Content-Type", "application/json")
	}
	h.Set("User-Agent", userAgent())
	for name, value := range dialectFacts[of].header {
		h.Set(name, value)
	}
	if t.Key != "" && p.Auth.Header != "" {
		h.Set(p.Auth.Header, p.Auth.Prefix+t.Key)
	}
	for k, v := range t.Header {
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

// clip shortens a text that is quoted in a message.
func clip(s string, n int) string { return prose.Clip(s, n) }
