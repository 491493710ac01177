// Package provider sends requests to LLM providers and reads their responses: endpoints, expected tokens, usage, limits and
// errors. Facts about one provider are rows of tables; code follows the structure that providers share.
//
// Most programs want NewTransport, an http.RoundTripper that makes any official SDK keep to its limits. Programs with
// a loop of their own want Exchange, which is one attempt.
package provider

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// Auth says how a key travels.
type Auth struct {
	Header string `yaml:"header"` // canonical; "" sends no key
	Prefix string `yaml:"prefix"` // before the key
}

// Provider describes one provider, as known before the first request. The zero value is an openai-compatible server
// without an address. It is a value: copy and change it freely.
type Provider struct {
	Name     string
	Aliases  []string // other names that people use for it
	BaseURL  string   // as the official SDK takes it: OpenAI with /v1, Anthropic without; "" where everybody has their own
	BaseForm string   // how one's own looks then, such as "https://{resource}.openai.azure.com/openai/deployments/{deployment}"
	KeyEnv   []string // variables that may hold the key, first come first served
	Auth     Auth
	Dialect  Dialect
	Charge   limits.Charge

	// CountsCached says whether input that is read from a prompt cache counts against the token limits.
	CountsCached bool

	// Query is what every address carries besides, without its question mark, such as Azure's "api-version=2024-10-21".
	Query string

	// OneDialect says that a server of the dialect OpenAI has no endpoints of others besides. Those of another dialect
	// have only their own.
	OneDialect bool

	// UsageUnasked says that streams of chat completions state their usage unasked, and that the server refuses a request that
	// asks for it (stream_options).
	UsageUnasked bool

	// ChatBound is the member of chat completions that bounds the length of an answer; "" is max_tokens. OpenAI's newer
	// models refuse that, and other servers do not know its new name, max_completion_tokens
	// (https://platform.openai.com/docs/api-reference/chat/create).
	ChatBound string

	// KeyOptional says that the server may do without a key.
	KeyOptional bool

	// Headers are forms of budgets that are this provider's own, or that mean something else with it (Groq's
	// x-ratelimit-*-requests count a day). They win over the forms that all providers share.
	Headers []HeaderForm

	// Codes maps the types, codes and reasons of this provider's errors, in lower case and reduced to letters and digits,
	// to kinds. They win over the shared rules.
	Codes map[string]sluice.Kind

	// UntrustedWaits are waits that this provider is known to state wrongly.
	UntrustedWaits []UntrustedWait

	// Batches describes its Batch API.
	Batches BatchAPI

	// Models are how the ids of its models begin, as Registry.Recognise reads them.
	Models []string

	Source   string // an address that says all this,
	Date     string // and when it was written or last looked at
	Note     string
	Doubtful bool // the source is not the provider, or is contradicted elsewhere
}

// HeaderForm is one way in which a budget is stated in headers. Names are canonical; Reset may be empty.
type HeaderForm struct {
	Dimension               limits.Dimension
	Limit, Remaining, Reset string
}

// UntrustedWait is one that is not to be believed: after Probe one call is let through to see.
type UntrustedWait struct {
	Wait, Probe time.Duration
}

// clone returns a copy that shares nothing with p.
func (p Provider) clone() Provider {
	p.Aliases, p.KeyEnv, p.Models = slices.Clone(p.Aliases), slices.Clone(p.KeyEnv), slices.Clone(p.Models)
	p.Headers, p.Codes = slices.Clone(p.Headers), maps.Clone(p.Codes)
	p.UntrustedWaits = slices.Clone(p.UntrustedWaits)
	return p
}

// Lookup returns the published provider of that name or alias.
func Lookup(name string) (Provider, bool) { return Published().Lookup(name) }
