package limits

import (
	"fmt"
)

// Kind classifies the result of an attempt. After a throttle kind, the lane pauses, and the attempt is not counted.
// After a transient kind of error, the call is retried. A fatal kind of error ends the entire run. Any other kind of
// error ends only the call. The zero Kind is OK. The text form of a Kind is a name such as rate_limit.
type Kind uint8

// Kinds of outcomes.
const (
	OK             Kind = iota // the provider accepted the request
	RateLimit                  // the provider asks the client to slow down (throttle)
	Overloaded                 // the provider has no capacity, as stated by status 529, or by 503 with a message (throttle)
	QuotaExhausted             // the account has no credit, or reached its spending cap (fatal)
	UsageWindow                // the daily, weekly or plan allowance is used up until the next reset (throttle)
	Timeout                    // no response arrived within the time limit of the attempt (transient)
	Network                    // the connection was refused, reset or interrupted (transient)
	Auth                       // the provider rejected the key (fatal)
	BadRequest                 // the request is invalid
	ContextLength              // the request exceeds the model's context or an entire rate limit
	ContentFilter              // the provider rejected the content of the request
	Rejected                   // the model, a feature or the region is not permitted (403)
	Blocked                    // a firewall or a proxy sent a web page in place of the provider's response
	ServerError                // any other response with status 500 or higher (transient)
	InvalidOutput              // the response violates a schema or a rule of the program (transient)
	CommandFailed              // a command failed for a reason unrelated to the provider (transient)
	Internal                   // an error in the program, such as a panic
	numKinds
)

var kindNames = [numKinds]string{
	"ok", "rate_limit", "overloaded", "quota_exhausted", "usage_window", "timeout", "network", "auth",
	"bad_request", "context_length", "content_filter", "rejected", "blocked", "server_error", "invalid_output",
	"command_failed", "internal",
}

// String returns the name of the kind, as used in files and metrics.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MarshalText returns the name of the kind.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText sets the kind by name, and returns an error for an unknown name.
func (k *Kind) UnmarshalText(b []byte) error {
	for i, name := range kindNames {
		if name == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("unknown kind %q", b)
}

// Throttle reports whether the provider asks the client to slow down. A throttled response does not count as an attempt.
func (k Kind) Throttle() bool {
	return k == RateLimit || k == Overloaded || k == UsageWindow
}

// Transient reports whether a retry may succeed. A transient failure counts as an attempt.
func (k Kind) Transient() bool {
	return k == Timeout || k == Network || k == ServerError || k == InvalidOutput || k == CommandFailed
}

// Fatal reports whether all further calls of the account will also fail.
func (k Kind) Fatal() bool { return k == QuotaExhausted || k == Auth }

// Scope is the extent of a rejection according to the response, such as a model or a key. A single response is evidence only about its own request.
type Scope uint8

// Scopes, from the smallest to the largest.
const (
	ScopeRequest  Scope = iota // only this request
	ScopeModel                 // all requests to the model
	ScopeKey                   // all requests with the key
	ScopeUpstream              // the account with all its API keys
	ScopeNetwork               // the connection to the provider
)

var scopeNames = [...]string{"request", "model", "key", "upstream", "network"}

// String returns the name of the scope, such as request.
func (s Scope) String() string {
	if int(s) < len(scopeNames) {
		return scopeNames[s]
	}
	return fmt.Sprintf("scope(%d)", uint8(s))
}

// MarshalText returns the name of the scope.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText sets the scope by name, and returns an error for an unknown name.
func (s *Scope) UnmarshalText(b []byte) error {
	for i, name := range scopeNames {
		if name == string(b) {
			*s = Scope(i)
			return nil
		}
	}
	return fmt.Errorf("unknown scope %q", b)
}

// Charge is a provider's method of counting the tokens of a request against the limits.
type Charge uint8

// Methods of counting tokens.
const (
	// ChargeDeclared counts max(input, max_tokens) when the request arrives, and refunds no tokens (OpenAI, Azure, Bedrock).
	ChargeDeclared Charge = iota
	// ChargeActual counts input tokens when the request arrives, and output tokens during generation (Anthropic, xAI).
	ChargeActual
	numCharges
)

var chargeNames = [numCharges]string{"declared", "actual"}

// String returns the name of the counting method, as used in files.
func (c Charge) String() string {
	if c < numCharges {
		return chargeNames[c]
	}
	return fmt.Sprintf("charge(%d)", uint8(c))
}

// MarshalText returns the name of the counting method.
func (c Charge) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText sets the counting method by name, and returns an error for an unknown name.
func (c *Charge) UnmarshalText(b []byte) error {
	for i, name := range chargeNames {
		if name == string(b) {
			*c = Charge(i)
			return nil
		}
	}
	return fmt.Errorf("unknown charge %q: want declared or actual", b)
}
