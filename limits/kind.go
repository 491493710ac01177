package limits

import (
	"fmt"
)

// Kind is the meaning of a response, which decides what follows. Throttle kinds pause the lane and spend no attempt, transient kinds
// are retried and spend one, fatal kinds end a run, and the others fail their call. The zero value is OK. Its text is a name such as
// rate_limit.
type Kind uint8

// Kinds.
const (
	OK             Kind = iota
	RateLimit           // the provider asks the client to slow down: a throttle
	Overloaded          // the provider has no capacity (529, or a 503 that says so): a throttle
	QuotaExhausted      // no credit remains, or a spending cap is reached: fatal
	UsageWindow         // the allowance of a day, a week or a plan is used until it is reset: a throttle
	Timeout             // no response within the time of the attempt: transient
	Network             // the connection was refused, reset or cut: transient
	Auth                // the provider rejected the key: fatal
	BadRequest          // the request is wrong
	ContextLength       // the request is larger than the context of the model or than a whole limit
	ContentFilter       // rejected for its content
	Rejected            // not permitted: the model, a feature or the region (403)
	Blocked             // a page of a firewall or proxy in place of a response
	ServerError         // any other status from 500: transient
	InvalidOutput       // the response broke a schema or a rule of the program: transient
	CommandFailed       // a command failed for a reason of its own: transient
	Internal            // a fault of the program, such as a function that panicked
	numKinds
)

var kindNames = [numKinds]string{
	"ok", "rate_limit", "overloaded", "quota_exhausted", "usage_window", "timeout", "network", "auth",
	"bad_request", "context_length", "content_filter", "rejected", "blocked", "server_error", "invalid_output",
	"command_failed", "internal",
}

// String returns the kind's name, as files and metrics spell it.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// MarshalText writes the kind's name.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText reads the kind's name.
func (k *Kind) UnmarshalText(b []byte) error {
	for i, name := range kindNames {
		if name == string(b) {
			*k = Kind(i)
			return nil
		}
	}
	return fmt.Errorf("unknown kind %q", b)
}

// Throttle reports whether the provider asks the client to slow down. Such a response spends no attempt.
func (k Kind) Throttle() bool {
	return k == RateLimit || k == Overloaded || k == UsageWindow
}

// Transient reports whether a retry may succeed. It spends an attempt.
func (k Kind) Transient() bool {
	return k == Timeout || k == Network || k == ServerError || k == InvalidOutput || k == CommandFailed
}

// Fatal reports whether every further call of the account will fail too.
func (k Kind) Fatal() bool { return k == QuotaExhausted || k == Auth }

// Scope is what a rejection claims to be about, beyond its Kind. One response proves nothing about more than its request.
type Scope uint8

// Scopes, from the smallest to the largest.
const (
	ScopeRequest Scope = iota
	ScopeModel
	ScopeKey
	ScopeUpstream // the account, with all of its keys
	ScopeNetwork
)

var scopeNames = [...]string{"request", "model", "key", "upstream", "network"}

// String returns the scope's name, such as request.
func (s Scope) String() string {
	if int(s) < len(scopeNames) {
		return scopeNames[s]
	}
	return fmt.Sprintf("scope(%d)", uint8(s))
}

// MarshalText writes the scope's name.
func (s Scope) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads the scope's name.
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

// Ways to count tokens.
const (
	// ChargeDeclared counts max(input, max_tokens) when the request arrives and refunds nothing (OpenAI, Azure, Bedrock).
	ChargeDeclared Charge = iota
	// ChargeActual counts input when the request arrives and output as it is produced (Anthropic, xAI).
	ChargeActual
	numCharges
)

var chargeNames = [numCharges]string{"declared", "actual"}

// String returns the charge's name, as files spell it.
func (c Charge) String() string {
	if c < numCharges {
		return chargeNames[c]
	}
	return fmt.Sprintf("charge(%d)", uint8(c))
}

// MarshalText writes the charge's name.
func (c Charge) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads the charge's name.
func (c *Charge) UnmarshalText(b []byte) error {
	for i, name := range chargeNames {
		if name == string(b) {
			*c = Charge(i)
			return nil
		}
	}
	return fmt.Errorf("unknown charge %q: it is declared or actual", b)
}
