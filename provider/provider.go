// Package provider sends requests to LLM providers, and reads usage, limits and errors from their responses. A [Registry] describes the
// providers.
//
// Most programs use [NewTransport]. NewTransport returns an http.RoundTripper that keeps the requests of any official SDK within the limits
// of an account. Programs with their own retry loop use [Exchange], which makes one attempt.
package provider

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

// Auth specifies the request header that carries the API key.
type Auth struct {
	Header string `yaml:"header"` // canonical name of the header; "" sends no key
	Prefix string `yaml:"prefix"` // text before the key in the header, such as "Bearer "
}

// Provider describes a provider. The zero value describes an OpenAI-compatible server without a base URL. Functions of this package return
// copies, so you can change a returned Provider.
type Provider struct {
	Name     string
	Aliases  []string // other names of the provider
	BaseURL  string   // base URL as the official SDK expects it, such as with /v1 for OpenAI; "" if each account has its own base URL
	BaseForm string   // template for an account's base URL, such as "https://{resource}.openai.azure.com/openai/deployments/{deployment}"
	KeyEnv   []string // environment variables that can contain the API key, in order of precedence
	Auth     Auth
	Dialect  Dialect
	Charge   limits.Charge

	// CountsCached reports whether input tokens from a prompt cache count against the token limits.
	CountsCached bool

	// Query is the query string of every URL, without a question mark. An example for Azure is "api-version=2024-10-21".
	Query string

	// OneDialect reports that a server with the dialect OpenAI has no endpoints of other dialects. Servers with another dialect never have
	// endpoints of other dialects.
	OneDialect bool

	// UsageUnasked reports that chat completion streams always contain usage, and that the server rejects stream_options, the field for
	// requesting usage.
	UsageUnasked bool

	// ChatBound is the chat completion field that limits the output (default max_tokens). New OpenAI models accept only
	// max_completion_tokens, which other servers do not support (https://platform.openai.com/docs/api-reference/chat/create).
	ChatBound string

	// KeyOptional reports that the server may accept requests without a key.
	KeyOptional bool

	// Headers are rate-limit headers with a special meaning at this provider. For example, Groq's x-ratelimit-*-requests headers count
	// requests per day. A provider's own headers have precedence over headers that all providers share.
	Headers []HeaderForm

	// Codes maps this provider's error types, codes and reasons to error kinds. The keys of Codes contain only lower-case letters and
	// digits. Codes has precedence over the rules that all providers share.
	Codes map[string]sluice.Kind

	// UntrustedWaits lists known wrong wait times in this provider's responses.
	UntrustedWaits []UntrustedWait

	// Batches describes the provider's Batch API.
	Batches BatchAPI

	// Models lists prefixes of the provider's model IDs, for Registry.Recognise.
	Models []string

	Source   string // URL of the documentation
	Date     string // date of the documentation, or of its last check
	Note     string
	Doubtful bool // the values do not come from the provider, or another source contradicts them
}

// HeaderForm contains the canonical names of the response headers that describe one rate limit. Reset may be empty.
type HeaderForm struct {
	Dimension               limits.Dimension
	Limit, Remaining, Reset string
}

// UntrustedWait is a wrong wait time that a provider sends. Sluice sends one probe request after the time Probe instead of the time Wait.
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

// Lookup finds a provider by name or alias in the built-in registry.
func Lookup(name string) (Provider, bool) { return Published().Lookup(name) }
