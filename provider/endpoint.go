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

// Endpoints returns all endpoints that there are.
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

// String returns the endpoint's path as a batch line's url spells it.
func (e Endpoint) String() string { return e.spec().path }

// Dialect returns the form of the endpoint's requests and responses.
func (e Endpoint) Dialect() Dialect { return e.spec().dialect }

// Embeds reports whether the endpoint answers with embeddings, which are no tokens.
func (e Endpoint) Embeds() bool { return e.spec().embeds }

// ModelInPath reports whether the path names the model, and the body need not.
func (e Endpoint) ModelInPath() bool { return e.spec().pathOf != nil }

// CountPath returns the path at which the tokens of a request are counted, as documents write it; "" is none.
func (e Endpoint) CountPath() string {
	s := e.spec()
	if s.count == "" {
		return ""
	}
	return strings.TrimSuffix(s.path, s.ending) + s.count
}

// Has reports whether the provider may have an endpoint. One that speaks OpenAI's dialect may have the endpoints
// of other dialects too, unless it is known to have none.
func (p Provider) Has(e Endpoint) bool {
	return e.Dialect() == p.Dialect || p.Dialect == OpenAI && !p.OneDialect
}

// PromptEndpoint returns the endpoint for a bare prompt to a model, which is for embeddings if its name says so.
func (p Provider) PromptEndpoint(model string) Endpoint {
	return dialects[p.Dialect].promptEndpoint(strings.ToLower(model))
}

// MessagesEndpoint returns the endpoint for a request with the member messages.
func (p Provider) MessagesEndpoint() Endpoint {
	return cmp.Or(dialectFacts[p.Dialect].messages, ChatCompletions)
}

// Bound returns the member of a body that bounds the length of the answer, "" if it has none; a dot goes into an object.
// otherwise is the bound to send when the request has none, because the provider demands one; 0 is to send none.
func (p Provider) Bound(e Endpoint) (member string, otherwise int) {
	if e == ChatCompletions && p.ChatBound != "" {
		return p.ChatBound, 0
	}
	return e.spec().bound, e.spec().otherwise
}

// Path returns the endpoint's path for a model. Only Gemini's hold one: x, models/x or tunedModels/x. It fails for an id
// that could lead elsewhere, since ids come from input files.
func (e Endpoint) Path(model string) (string, error) {
	if s := e.spec(); s.pathOf != nil {
		return s.pathOf(model)
	}
	return e.String(), nil
}

// AppendPrompt appends the body of a bare prompt, but for its closing brace, so that more members can follow. prompt and
// system are JSON strings; a system of nil is none, and so is any where the endpoint has no place for one but a member. Before the
// prompt of a completion it stands as text.
func AppendPrompt(b []byte, e Endpoint, model string, prompt, system []byte) []byte {
	return e.spec().prompt(b, model, prompt, system)
}

// ParseEndpoint reads the url of a batch line, which is exactly one of the known paths, and the model that stands in it
// with Gemini. An address is refused, so that no input file decides where the key is sent.
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
		return NoEndpoint, "", fmt.Errorf("url %q is an address: only a path is allowed, such as /v1/chat/completions; "+
			"the address comes from the base URL", Redact(clip(path, 200)))
	}
	return NoEndpoint, "", fmt.Errorf("unknown url %q: want /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, "+
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

// URL returns the address of an endpoint below base, which is as the official SDK takes it; "" is the provider's own.
// A base for OpenAI that is only a host gets the /v1 that such servers want, one for Gemini without any version its
// /v1beta. A query in base is kept (Azure's api-version), and wins over what the provider's Query says of the same name.
// It fails like Path.
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

// Target says where a call goes and how.
type Target struct {
	BaseURL  string // as the official SDK takes it; "" is the provider's own
	Key      string // sent as the provider wants it; "" sends none
	Endpoint Endpoint
	Model    string      // goes into the path where it belongs there (see URL), and is not looked at elsewhere
	Header   http.Header // wins over all other headers
}

// Check returns the error that every request to the target's address would have, for every endpoint and model.
func (p Provider) Check(t Target) error {
	t.Endpoint = ChatCompletions
	_, err := p.NewRequest(context.Background(), t, nil)
	return err
}

// NewRequest makes the request of one call. The body can be sent again (GetBody is set).
func (p Provider) NewRequest(ctx context.Context, t Target, body []byte) (*http.Request, error) {
	if t.BaseURL == "" && p.BaseURL == "" {
		return nil, fmt.Errorf("provider %q has no base URL of its own: give one", p.Name)
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
		return nil, fmt.Errorf("base URL: %s", Redact(err.Error(), t.Key))
	}
	if req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.URL.Host == "" {
		return nil, fmt.Errorf("base URL %q is not an http or https address", Redact(clip(t.BaseURL, 200), t.Key))
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
