// Package provider sends requests to LLM providers, and reads usage, limits and errors from their responses. A [Registry] describes the
// providers.
//
// Most programs use [NewTransport]. It returns an http.RoundTripper that keeps the requests of any official SDK within the limits of an
// account. Programs with their own retry loop use [Exchange], which makes one attempt.
package provider

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// Auth specifies the request header that carries the key.
type Auth struct {
	Header string `yaml:"header"` // canonical name of the header; "" sends no key
	Prefix string `yaml:"prefix"` // text before the key, such as "Bearer "
}

// Provider describes a provider. The zero value is an OpenAI-compatible server without a base URL. Functions of this package return copies,
// so you can change a Provider.
type Provider struct {
	Name     string
	Aliases  []string // other names of the provider
	BaseURL  string   // base URL in the form of the official SDK: OpenAI with /v1, Anthropic without; "" if each account has its own
	BaseForm string   // form of an account's base URL, such as "https://{resource}.openai.azure.com/openai/deployments/{deployment}"
	KeyEnv   []string // variables that can contain the key, in order of precedence
	Auth     Auth
	Dialect  Dialect
	Charge   limits.Charge

	// CountsCached reports whether input tokens from a prompt cache count against the token limits.
	CountsCached bool

	// Query is the query of every URL, without a question mark. For Azure, an example is "api-version=2024-10-21".
	Query string

	// OneDialect reports that a server with the dialect OpenAI has no endpoints of other dialects. Servers with another dialect never have
	// endpoints of other dialects.
	OneDialect bool

	// UsageUnasked reports that streams of chat completions always state their usage, and that the server rejects the field stream_options,
	// which asks for it.
	UsageUnasked bool

	// ChatBound is the field of chat completions that limits the output (default max_tokens). New models of OpenAI accept only
	// max_completion_tokens, which other servers do not know (https://platform.openai.com/docs/api-reference/chat/create).
	ChatBound string

	// KeyOptional reports that the server may accept requests without a key.
	KeyOptional bool

	// Headers are rate-limit headers with a special meaning at this provider. For example, x-ratelimit-*-requests of Groq count a day. They
	// have precedence over the headers that all providers share.
	Headers []HeaderForm

	// Codes maps error types, codes and reasons of this provider to kinds. Its keys have only lower-case letters and digits. Codes has
	// precedence over the rules that all providers share.
	Codes map[string]sluice.Kind

	// UntrustedWaits are waits that this provider states wrongly.
	UntrustedWaits []UntrustedWait

	// Batches describes the provider's Batch API.
	Batches BatchAPI

	// Models are prefixes of the provider's model IDs, for Registry.Recognise.
	Models []string

	Source   string // URL of the documentation
	Date     string // date of the documentation, or of the last check of it
	Note     string
	Doubtful bool // the source is not the provider, or another source contradicts it
}

// HeaderForm names the response headers that state one rate limit. The names are canonical. Reset may be empty.
type HeaderForm struct {
	Dimension               limits.Dimension
	Limit, Remaining, Reset string
}

// UntrustedWait is a stated wait that is wrong. If a provider states Wait, Sluice sends one request as a test after Probe.
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

// Lookup returns the provider with a name or alias in the built-in registry.
func Lookup(name string) (Provider, bool) { return Published().Lookup(name) }
