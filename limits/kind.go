package limits

import (
	"fmt"
)

// Kind classifies the result of an attempt. Throttle kinds pause the lane and do not count as attempts. Transient kinds
// cause a retry. Fatal kinds end a run. All other kinds fail the call. The zero value is OK. The text form is a name
// such as rate_limit.
type Kind uint8

// Kinds of outcome.
const (
	OK             Kind = iota // the provider accepted the request
	RateLimit                  // the provider asks the client to slow down (throttle)
	Overloaded                 // the provider has no capacity: 529, or 503 with such a message (throttle)
	QuotaExhausted             // the account has no credit, or reached its spending cap (fatal)
	UsageWindow                // the allowance of a day, a week or a plan is used up until its reset (throttle)
	Timeout                    // no response arrived within the time limit of the attempt (transient)
	Network                    // the connection was refused, reset or interrupted (transient)
	Auth                       // the provider rejected the key (fatal)
	BadRequest                 // the request is invalid
	ContextLength              // the request exceeds the model's context or an entire rate limit
	ContentFilter              // the provider rejected the content of the request
	Rejected                   // the model, a feature or the region is not permitted (403)
	Blocked                    // a firewall or a proxy sent a page in place of a response
	ServerError                // any other response with status 500 or higher (transient)
	InvalidOutput              // the response violates a schema or a rule of the program (transient)
	CommandFailed              // a command failed, but not because of the provider (transient)
	Internal                   // an error in the program, such as a panic
	numKinds
)

var kindNames = [numKinds]string{
	"ok", "rate_limit", "overloaded", "quota_exhausted", "usage_window", "timeout", "network", "auth",
	"bad_request", "context_length", "content_filter", "rejected", "blocked", "server_error", "invalid_output",
	"command_failed", "internal",
}

// String returns the name of the kind, as in files and metrics.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MarshalText returns the name of the kind.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText sets the kind by its name. An unknown name is an error.
func (k *Kind) UnmarshalText(b []byte) error {
	for i, name := range kindNames {
		if name == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("unknown kind %q", b)
}

// Throttle reports whether the provider asks the client to slow down. Such a response does not count as an attempt.
func (k Kind) Throttle() bool {
	return k == RateLimit || k == Overloaded || k == UsageWindow
}

// Transient reports whether a retry may succeed. Such a result counts as an attempt.
func (k Kind) Transient() bool {
	return k == Timeout || k == Network || k == ServerError || k == InvalidOutput || k == CommandFailed
}

// Fatal reports whether all further calls of the account will fail too.
func (k Kind) Fatal() bool { return k == QuotaExhausted || k == Auth }

// Scope is the extent of a rejection, such as a model or a key, as the response states it. One response is evidence only about its own request.
type Scope uint8

// Scopes, from the smallest to the largest.
const (
	ScopeRequest  Scope = iota // only this request
	ScopeModel                 // all requests to the model
	ScopeKey                   // all requests with the key
	ScopeUpstream              // the account with all its keys
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

// UnmarshalText sets the scope by its name. An unknown name is an error.
func (s *Scope) UnmarshalText(b []byte) error {
	for i, name := range scopeNames {
		if name == string(b) {
			*s = Scope(i)
			return nil
		}
	}
	return fmt.Errorf("unknown scope %q", b)
}

// Charge is the way in which a provider counts the tokens of a request against its limits.
type Charge uint8

// Ways in which providers count tokens.
const (
	// ChargeDeclared counts max(input, max_tokens) when the request arrives, and refunds no tokens (OpenAI, Azure, Bedrock).
	ChargeDeclared Charge = iota
	// ChargeActual counts input tokens when the request arrives, and output tokens during generation (Anthropic, xAI).
	ChargeActual
	numCharges
)

var chargeNames = [numCharges]string{"declared", "actual"}

// String returns the name of the charge, as in files.
func (c Charge) String() string {
	if c < numCharges {
		return chargeNames[c]
	}
	return fmt.Sprintf("charge(%d)", uint8(c))
}

// MarshalText returns the name of the charge.
func (c Charge) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText sets the charge by its name. An unknown name is an error.
func (c *Charge) UnmarshalText(b []byte) error {
	for i, name := range chargeNames {
		if name == string(b) {
			*c = Charge(i)
			return nil
		}
	}
	return fmt.Errorf("unknown charge %q: want declared or actual", b)
}
