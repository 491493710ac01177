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
	"strings"
	"sync"

	"github.com/sluice-llm/sluice/internal/prose"
)

// anthropicVersion is the API version that a client names. The newer one, 2026-10-21, refuses temperature, top_p and top_k, which
// people's requests have (https://platform.claude.com/docs/en/api/versioning).
const anthropicVersion = "2023-06-01"

// Endpoint is a path of a provider's API that Sluice understands: what it costs, and what it answers.
type Endpoint uint8

// Endpoints. The zero value is none.
const (
	NoEndpoint            Endpoint = iota
	ChatCompletions                // POST /v1/chat/completions
	Responses                      // POST /v1/responses
	Embeddings                     // POST /v1/embeddings
	Messages                       // POST /v1/messages
	GenerateContent                // POST /v1beta/models/{model}:generateContent
	StreamGenerateContent          // POST /v1beta/models/{model}:streamGenerateContent?alt=sse
	EmbedContent                   // POST /v1beta/models/{model}:embedContent
	BatchEmbedContents             // POST /v1beta/models/{model}:batchEmbedContents
	numEndpoints
)

// Endpoints returns all endpoints that there are.
func Endpoints() []Endpoint {
	var all []Endpoint
	for e := NoEndpoint + 1; e < numEndpoints; e++ {
		all = append(all, e)
	}
	return all
}

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
	if method := e.method(); method != "" {
		return geminiVersion + "/models/{model}" + method
	}
	return ""
}

// geminiVersion begins the paths of Gemini (https://ai.google.dev/gemini-api/docs/api-versions).
const geminiVersion = "/v1beta"

// method returns what ends an endpoint of Gemini, behind the model (https://ai.google.dev/api/generate-content,
// https://ai.google.dev/api/embeddings), "" for all others.
func (e Endpoint) method() string {
	switch e {
	case GenerateContent:
		return ":generateContent"
	case StreamGenerateContent:
		return ":streamGenerateContent"
	case EmbedContent:
		return ":embedContent"
	case BatchEmbedContents:
		return ":batchEmbedContents"
	}
	return ""
}

// Dialect returns the form of the endpoint's requests and answers.
func (e Endpoint) Dialect() Dialect {
	switch {
	case e == Messages:
		return Anthropic
	case e.method() != "":
		return Gemini
	}
	return OpenAI
}

// Embeds reports whether the endpoint answers with embeddings, which are no tokens.
func (e Endpoint) Embeds() bool {
	return e == Embeddings || e == EmbedContent || e == BatchEmbedContents
}

// Has reports whether the provider may have an endpoint. One that speaks OpenAI's dialect may have those of others
// besides, unless it is known to have none.
func (p Provider) Has(e Endpoint) bool {
	return e.Dialect() == p.Dialect || p.Dialect == OpenAI && !p.OneDialect
}

// PromptEndpoint returns the endpoint for a bare prompt to a model, which is for embeddings if its name says so.
func (p Provider) PromptEndpoint(model string) Endpoint {
	embeds := strings.Contains(strings.ToLower(model), "embed")
	switch {
	case p.Dialect == Anthropic:
		return Messages
	case p.Dialect == Gemini && embeds:
		return EmbedContent
	case p.Dialect == Gemini:
		return GenerateContent
	case embeds:
		return Embeddings
	}
	return ChatCompletions
}

// Bound returns the member of a body that bounds the length of the answer, "" if it has none; a dot goes into an object.
// otherwise is the bound to send when nobody says one, because the provider demands one; 0 is to send none.
func (p Provider) Bound(e Endpoint) (member string, otherwise int) {
	switch {
	case e.Embeds():
		return "", 0
	case e == Messages:
		return "max_tokens", 4096
	case e == Responses:
		return "max_output_tokens", 0
	case e.Dialect() == Gemini:
		return "generationConfig.maxOutputTokens", 0
	}
	return cmp.Or(p.ChatBound, "max_tokens"), 0
}

// Path returns the endpoint's path for a model. Only Gemini's hold one: x, models/x or tunedModels/x. It fails for an id
// that could lead elsewhere, since ids come from input files.
func (e Endpoint) Path(model string) (string, error) {
	method := e.method()
	if method == "" {
		return e.String(), nil
	}
	collection, id := "/models/", strings.TrimPrefix(model, "models/")
	if tuned, ok := strings.CutPrefix(model, "tunedModels/"); ok {
		collection, id = "/tunedModels/", tuned
	}
	if id == "" || strings.Contains(id, "..") || strings.ContainsFunc(id, notInModel) {
		return "", fmt.Errorf("model %q is not the id of a Gemini model: want letters, digits, dots, dashes and underscores, "+
			"such as gemini-2.5-flash", Redact(clip(model, 200)))
	}
	return geminiVersion + collection + id + method, nil
}

func notInModel(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_')
}

// ParseEndpoint reads the url of a batch line, which is exactly one of the known paths, and the model that stands in it
// with Gemini. An address is refused, so that no input file decides where the key is sent.
func ParseEndpoint(path string) (e Endpoint, model string, err error) {
	for e := NoEndpoint + 1; e < numEndpoints; e++ {
		method := e.method()
		if method == "" {
			if path == e.String() {
				return e, "", nil
			}
			continue
		}
		bare := path
		if e == StreamGenerateContent {
			bare = strings.TrimSuffix(path, "?"+eventQuery) // as the documents write it
		}
		id, ok := strings.CutSuffix(bare, method)
		if !ok {
			continue
		}
		if rest, ok := strings.CutPrefix(id, geminiVersion+"/"); ok {
			if want, err := e.Path(rest); want == bare || err != nil {
				return e, strings.TrimPrefix(rest, "models/"), err
			}
		}
	}
	if strings.Contains(path, "//") {
		return NoEndpoint, "", fmt.Errorf("url %q is an address: only a path is allowed, such as /v1/chat/completions; "+
			"the address comes from the base URL", Redact(clip(path, 200)))
	}
	return NoEndpoint, "", fmt.Errorf("unknown url %q: want /v1/chat/completions, /v1/responses, /v1/embeddings, "+
		"/v1/messages or %s", Redact(clip(path, 200)), GenerateContent)
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
	for e := GenerateContent; e <= BatchEmbedContents; e++ {
		if strings.HasSuffix(path, e.method()) && modelIn(path) != "" {
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
	query := ""
	if e == StreamGenerateContent {
		query = eventQuery
	}
	return p.address(base, path, query, e.Dialect()), nil
}

// address returns that of a path of a dialect below base, as URL has it. What query says comes last.
func (p Provider) address(base, path, query string, of Dialect) string {
	if base == "" {
		base = p.BaseURL
	}
	base, own, _ := strings.Cut(base, "?")
	base = strings.TrimRight(base, "/")
	_, afterScheme, _ := strings.Cut(base, "://")
	hasPath := strings.Contains(afterScheme, "/")
	switch {
	case of == Gemini:
		if p.Dialect == OpenAI {
			base = strings.TrimSuffix(base, "/v1") // that is OpenAI's
		}
		base, path = geminiAddress(base, path)
	case strings.HasSuffix(base, "/v1") || hasPath && of == OpenAI:
		path = strings.TrimPrefix(path, "/v1")
	}
	if query = withQuery(withQuery(own, p.Query), query); query != "" {
		return base + path + "?" + query
	}
	return base + path
}

// geminiAddress joins a path to a base that may hold a version. Files are uploaded to, and downloaded from, paths that have a
// word before theirs (https://ai.google.dev/gemini-api/docs/files, https://ai.google.dev/gemini-api/docs/batch-api).
func geminiAddress(base, path string) (before, after string) {
	if !versioned(base) {
		return base, path
	}
	for _, word := range [...]string{"/upload", "/download"} {
		rest, ok := strings.CutPrefix(path, word+geminiVersion)
		if i := strings.LastIndexByte(base, '/'); ok && isVersion(base[i+1:]) {
			return base[:i], word + base[i:] + rest
		}
	}
	return base, strings.TrimPrefix(path, geminiVersion)
}

// eventQuery asks Gemini for server-sent events; without, a stream is one JSON array.
const eventQuery = "alt=sse"

// versioned reports whether some part of an address's path is a version, such as /v1beta, or Vertex's /v1 before its
// projects.
func versioned(base string) bool {
	_, rest, _ := strings.Cut(base, "://")
	_, rest, _ = strings.Cut(rest, "/")
	for part := range strings.SplitSeq(rest, "/") {
		if isVersion(part) {
			return true
		}
	}
	return false
}

func isVersion(part string) bool {
	return len(part) > 1 && part[0] == 'v' && part[1] >= '0' && part[1] <= '9'
}

// withQuery adds those members of a query that the other does not name.
func withQuery(query, more string) string {
	if more == "" {
		return query
	}
	for member := range strings.SplitSeq(more, "&") {
		name, _, _ := strings.Cut(member, "=")
		named := false
		for other := range strings.SplitSeq(query, "&") {
			have, _, _ := strings.Cut(other, "=")
			named = named || have == name
		}
		switch {
		case named || member == "":
		case query == "":
			query = member
		default:
			query += "&" + member
		}
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

// Check returns the error that every request to the target's address would have, whatever its endpoint and model.
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
	if of == Anthropic {
		h.Set("Anthropic-Version", anthropicVersion)
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
