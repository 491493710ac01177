package provider

import (
	"fmt"
	"maps"
	"net/http"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// Dialect is the format of a provider's requests and responses.
type Dialect uint8

// These are the supported dialects.
const (
	OpenAI    Dialect = iota // APIs of OpenAI and OpenAI-compatible servers
	Anthropic                // Messages API
	Gemini                   // Gemini API (generateContent)
	Cohere                   // Chat API, version 2
)

// Endpoint is an API path whose request and response formats are known.
type Endpoint uint8

// These are the supported endpoints. The zero value is no endpoint.
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
	Completions                    // POST /v1/completions, for models that accept a prompt in place of messages
	CohereChat                     // POST /v2/chat
	numEndpoints
)

// dialect is the difference between one form of API and the others. Its file holds all of it: no other code tests which dialect it has.
type dialect interface {
	facts() facts

	// isFrom reports whether a request to no known endpoint is from a client of the dialect.
	isFrom(r *http.Request) bool

	// address joins a base without a final slash, which is of the other dialect, and a path.
	address(base, path string, of Dialect) (before, after string)

	// promptEndpoint returns the endpoint for a bare prompt. The model is in lower case.
	promptEndpoint(model string) Endpoint

	// refusal returns an error as a document, or as the data and the name of an event in a stream of an endpoint.
	refusal(r Refusal, in Endpoint) (event string, doc any)

	// model returns an entry of a list of models, and models the list.
	model(name string) any
	models(entries []any, names []string) any
}

// facts are the parts of a dialect that are the same for every request.
//
// Servers mix the dialects, and a response may come without the endpoint that it is of. So the members of a request, a response and a
// usage object are read as any dialect names them: the same name means the same in all of them. An error ends a stream of every dialect.
type facts struct {
	name       string            // as files spell it
	auth       Auth              // how servers take a key
	header     map[string]string // of every request
	endpoints  map[Endpoint]spec
	messages   Endpoint // for a request with the member messages; NoEndpoint is ChatCompletions
	inputApart bool     // usage states the input from a cache and into it beside the other input

	request  map[string]func(*estimate)
	response map[string]func(*summary, *jsonscan.Scanner)
	usage    map[string]figure
	event    map[string]func(*meter) // that stand for more in an event of a stream than in a whole response; its own dialect counts first
	last     map[string]bool         // types of the event that ends a stream, and whether the message is whole then
}

var (
	dialects = [...]dialect{OpenAI: openAI{}, Anthropic: anthropic{}, Gemini: gemini{}, Cohere: cohere{}}

	dialectFacts = func() (all [len(dialects)]facts) {
		for d := range dialects {
			all[d] = dialects[d].facts()
		}
		return all
	}()

	// known are the members of all dialects.
	known = func() facts {
		all := facts{request: map[string]func(*estimate){}, response: map[string]func(*summary, *jsonscan.Scanner){}, usage: map[string]figure{},
			event: map[string]func(*meter){}, last: map[string]bool{}}
		for _, f := range dialectFacts {
			maps.Copy(all.request, f.request)
			maps.Copy(all.response, f.response)
			maps.Copy(all.usage, f.usage)
			maps.Copy(all.event, f.event)
			maps.Copy(all.last, f.last)
		}
		return all
	}()
)

// Known reports whether Sluice supports the dialect.
func (d Dialect) Known() bool { return int(d) < len(dialects) }

// String returns the dialect's name as written in settings, such as "openai".
func (d Dialect) String() string {
	if d.Known() {
		return dialectFacts[d].name
	}
	return fmt.Sprintf("dialect(%d)", uint8(d))
}

// MarshalText returns the dialect's name.
func (d Dialect) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// DialectOf returns the dialect in which to send errors to the client that sent a request (default OpenAI).
func DialectOf(r *http.Request) Dialect {
	for d := range dialects {
		if dialects[d].isFrom(r) {
			return Dialect(d)
		}
	}
	return OpenAI
}

// Refusal is an error from a server other than the provider, such as a gateway.
type Refusal struct {
	Status  int    // HTTP status
	Kind    string // error code, such as queue_full or invalid_request
	Message string
	Field   string // name of the invalid request field, or ""
}

// Refusal returns the body of an error response in the dialect's format, as a value for json.Marshal.
func (d Dialect) Refusal(r Refusal) any {
	_, doc := dialects[d].refusal(r, NoEndpoint)
	return doc
}

// RefusalEvent returns an error as a stream event of the endpoint, with the event's name, or "", and a value for json.Marshal.
func (e Endpoint) RefusalEvent(r Refusal) (name string, data any) {
	return dialects[e.Dialect()].refusal(r, e)
}

// Model returns the description of a model in the dialect's format, as a value for json.Marshal.
func (d Dialect) Model(name string) any { return dialects[d].model(name) }

// Models returns a list of models in the dialect's format, as a value for json.Marshal.
func (d Dialect) Models(names []string) any {
	entries := make([]any, 0, len(names))
	for _, name := range names {
		entries = append(entries, d.Model(name))
	}
	return dialects[d].models(entries, names)
}
