// Package provider knows how LLM providers speak: where their endpoints are, what a request will cost, what an answer
// cost, what their headers and errors mean. Facts about one provider are rows of tables; code follows the structure
// that providers share.
//
// Most programs want NewTransport, an http.RoundTripper that makes any official SDK keep to its limits. Programs with
// a loop of their own want Exchange, which is one try.
package provider

import (
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
)

// Dialect is the form of a provider's requests and answers.
type Dialect uint8

// Dialects.
const (
	OpenAI    Dialect = iota // chat completions, responses, embeddings, and everything compatible with them
	Anthropic                // messages
	Gemini                   // generateContent
)

// Auth says how a key travels.
type Auth struct {
	Header string // canonical; "" sends no key
	Prefix string // before the key
}

// Provider is what is known of one provider before anything was sent. The zero value is an openai-compatible server
// without an address. It is a value: copy and change it freely.
type Provider struct {
	Name    string
	BaseURL string   // as the official SDK takes it: OpenAI with /v1, Anthropic without
	KeyEnv  []string // variables that may hold the key, first come first served
	Auth    Auth
	Dialect Dialect
	Charge  sluice.Charge

	// CountsCached says whether input that is read from a prompt cache counts against the token limits.
	CountsCached bool

	// Query is what every address carries besides, without its question mark, such as Azure's "api-version=2024-10-21".
	Query string

	// KeyOptional says that the server may do without a key.
	KeyOptional bool

	// Headers are forms of budgets that are this provider's own, or that mean something else with it (Groq's
	// x-ratelimit-*-requests count a day). They win over the forms that all providers share.
	Headers []HeaderForm

	// Codes are types, codes and reasons that this provider's errors bear, in lower case without anything but letters
	// and digits, and what they mean. They win over the shared rules.
	Codes map[string]sluice.Kind

	// Liars are waits that this provider is known to state wrongly.
	Liars []Liar
}

// HeaderForm is one way in which a budget is stated in headers. Names are canonical; Reset may be empty.
type HeaderForm struct {
	Dimension               sluice.Dimension
	Limit, Remaining, Reset string
}

// Liar is a wait that is not to be believed: after Probe one call is let through to see.
type Liar struct {
	Wait, Probe time.Duration
}

// Sources: the headings "openai" and "anthropic" of the providers' own rate-limit pages,
// https://platform.openai.com/docs/guides/rate-limits (tokens are counted up front as max(input, max_tokens)) and
// https://docs.anthropic.com/en/api/rate-limits (output is counted as it is produced; cache reads are not counted).
// Gemini limits the tokens of the input alone (https://ai.google.dev/gemini-api/docs/rate-limits), cached ones included
// (https://ai.google.dev/gemini-api/docs/caching), so nothing is to be reserved for what a request declares.
func table() []Provider {
	bearer := Auth{Header: "Authorization", Prefix: "Bearer "}
	return []Provider{
		{
			Name:         "openai",
			BaseURL:      "https://api.openai.com/v1",
			KeyEnv:       []string{"OPENAI_API_KEY"},
			Auth:         bearer,
			Dialect:      OpenAI,
			Charge:       sluice.ChargeDeclared,
			CountsCached: true,
		},
		{
			Name:    "anthropic",
			BaseURL: "https://api.anthropic.com",
			KeyEnv:  []string{"ANTHROPIC_API_KEY"},
			Auth:    Auth{Header: "X-Api-Key"},
			Dialect: Anthropic,
			Charge:  sluice.ChargeActual,
		},
		{
			Name:         "gemini",
			BaseURL:      "https://generativelanguage.googleapis.com/v1beta",
			KeyEnv:       []string{"GEMINI_API_KEY", "GOOGLE_API_KEY"},
			Auth:         Auth{Header: "X-Goog-Api-Key"},
			Dialect:      Gemini,
			Charge:       sluice.ChargeActual,
			CountsCached: true,
		},
		{
			Name:         "openai-compatible",
			KeyEnv:       []string{"OPENAI_API_KEY"},
			Auth:         bearer,
			Dialect:      OpenAI,
			Charge:       sluice.ChargeDeclared,
			CountsCached: true,
			KeyOptional:  true,
		},
		{
			Name:         "sim",
			BaseURL:      "http://sim.invalid/v1", // never resolved: the imitation is a RoundTripper
			Dialect:      OpenAI,
			Charge:       sluice.ChargeDeclared,
			CountsCached: true,
		},
	}
}

// prefixes are how the model ids of a provider begin, in lower case. An id that begins otherwise may be anybody's.
func prefixes() []struct{ prefix, provider string } {
	return []struct{ prefix, provider string }{
		{"gpt-", "openai"},
		{"chatgpt", "openai"},
		{"o1", "openai"},
		{"o3", "openai"},
		{"o4", "openai"},
		{"text-embedding", "openai"},
		{"claude", "anthropic"},
		{"gemini", "gemini"}, // but not gemma, whose weights anybody may serve
		{"models/gemini", "gemini"},
	}
}

// Lookup returns the provider of that name.
func Lookup(name string) (Provider, bool) {
	for _, p := range table() {
		if p.Name == name {
			return p, true
		}
	}
	return Provider{}, false
}

// Recognise returns the provider that a model id belongs to. It says false of an id that it does not know, also of
// open models that begin like a provider's own (gpt-oss).
func Recognise(model string) (Provider, bool) {
	m := strings.ToLower(strings.TrimSpace(model))
	if strings.HasPrefix(m, "gpt-oss") || strings.HasPrefix(m, "gpt-j") || strings.HasPrefix(m, "gpt-neo") {
		return Provider{}, false
	}
	for _, row := range prefixes() {
		rest, ok := strings.CutPrefix(m, row.prefix)
		if !ok {
			continue
		}
		// "o1" and "o1-mini" are models of OpenAI, "o1x" is not.
		if len(row.prefix) == 2 && rest != "" && rest[0] != '-' {
			continue
		}
		return Lookup(row.provider)
	}
	return Provider{}, false
}

// Names returns the names that Lookup knows.
func Names() []string {
	rows := table()
	names := make([]string, len(rows))
	for i, p := range rows {
		names[i] = p.Name
	}
	return names
}
