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
	Name    string   `json:"name"`              // Name for `--provider`.
	Aliases []string `json:"aliases,omitempty"` // Other names.

	// Address of the API. It is the base URL as the official SDK expects it, such as with /v1 for OpenAI; "" if each account has its own.
	BaseURL string `json:"base_url,omitempty"`

	// Address pattern with placeholders. It is the template of an account's base URL, such as
	// "https://{resource}.openai.azure.com/openai/deployments/{deployment}".
	BaseForm string `json:"base_form,omitempty"`

	KeyEnv       []string      `json:"key_env,omitempty"` // Environment variables for the key, in order.
	KeyOptional  bool          `json:"key_optional"`      // The key is optional. The server may accept requests without a key.
	Dialect      Dialect       `json:"dialect"`           // Request format, such as `openai`.
	Charge       limits.Charge `json:"charge"`            // Counted tokens: `declared` or `actual`.
	CountsCached bool          `json:"counts_cached"`     // Cached input counts against token limits.

	Models   []string `json:"models,omitempty"` // Prefixes of model IDs. Registry.Recognise finds the provider by them.
	Source   string   `json:"source,omitempty"` // Address of the source.
	Date     string   `json:"date,omitempty"`   // Date of the source. It is the date of the documentation, or of its last check.
	Doubtful bool     `json:"doubtful"`         // The source is doubtful or missing. It is not the provider, or another source contradicts it.
	Note     string   `json:"note,omitempty"`   // Note.

	Auth Auth `json:"-"`

	// Query is the query string of every URL, without a question mark. An example for Azure is "api-version=2024-10-21".
	Query string `json:"-"`

	// OneDialect reports that a server with the dialect OpenAI has no endpoints of other dialects. Servers with another dialect never have
	// endpoints of other dialects.
	OneDialect bool `json:"-"`

	// UsageUnasked reports that chat completion streams always contain usage, and that the server rejects stream_options, the field for
	// requesting usage.
	UsageUnasked bool `json:"-"`

	// ChatBound is the chat completion field that limits the output (default max_tokens). New OpenAI models accept only
	// max_completion_tokens, which other servers do not support (https://platform.openai.com/docs/api-reference/chat/create).
	ChatBound string `json:"-"`

	// Headers are rate-limit headers with a special meaning at this provider. For example, Groq's x-ratelimit-*-requests headers count
	// requests per day. A provider's own headers have precedence over headers that all providers share.
	Headers []HeaderForm `json:"-"`

	// Codes maps this provider's error types, codes and reasons to error kinds. The keys of Codes contain only lower-case letters and
	// digits. Codes has precedence over the rules that all providers share.
	Codes map[string]sluice.Kind `json:"-"`

	// UntrustedWaits lists known wrong wait times in this provider's responses.
	UntrustedWaits []UntrustedWait `json:"-"`

	// Batches describes the provider's Batch API.
	Batches BatchAPI `json:"-"`
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
