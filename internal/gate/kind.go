package gate

import "fmt"

// Kind is what an answer meant. The zero value is OK.
type Kind uint8

const (
	OK             Kind = iota
	RateLimit           // slow down; spends no attempt
	Overloaded          // the provider has no capacity (529, 503 of that meaning)
	QuotaExhausted      // no credit or spend cap reached: nothing more can succeed
	UsageWindow         // a day's, week's or plan's allowance is used until a stated instant
	Timeout             // no answer within the attempt's time
	Network             // connection refused, reset or cut
	Auth                // the key was refused
	BadRequest          // the request itself is wrong
	ContextLength       // the request is larger than the model's context or the whole limit
	ContentFilter       // refused for its content
	ServerError         // 5xx
	InvalidOutput       // our own: a schema or rule refused the answer
	CommandFailed       // our own: a command ended in failure, for reasons of its own
	Internal            // our own: a handler panicked
	numKinds
)

var kindNames = [numKinds]string{
	"ok", "rate_limit", "overloaded", "quota_exhausted", "usage_window", "timeout", "network", "auth",
	"bad_request", "context_length", "content_filter", "server_error", "invalid_output",
	"command_failed", "internal",
}

// String returns the kind's name as it stands in files and metrics.
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

// Throttle reports whether the kind asks the client to slow down: such an answer spends no attempt.
func (k Kind) Throttle() bool { return k == RateLimit || k == Overloaded || k == UsageWindow }

// Transient reports whether the same call may succeed when it is tried again, at the price of an attempt.
func (k Kind) Transient() bool {
	return k == Timeout || k == Network || k == ServerError || k == InvalidOutput || k == CommandFailed
}

// Fatal reports whether no call of the account can succeed any more, so that a run stops at once.
func (k Kind) Fatal() bool { return k == QuotaExhausted || k == Auth }

// Dimension is one thing that a provider limits.
type Dimension uint8

const (
	AnyDimension   Dimension = iota // not stated
	Concurrency                     // calls open at once
	Requests                        // requests per minute
	Tokens                          // tokens per minute, input and output together
	InputTokens                     // input tokens per minute
	OutputTokens                    // output tokens per minute
	RequestsPerDay                  // requests per day
	TokensPerDay                    // tokens per day
	NumDimensions
)

var dimensionNames = [NumDimensions]string{"", "concurrent", "rpm", "tpm", "itpm", "otpm", "rpd", "tpd"}

// String returns the dimension's name as flags and files spell it; "" when it is not stated.
func (d Dimension) String() string {
	if d < NumDimensions {
		return dimensionNames[d]
	}
	return fmt.Sprintf("dimension(%d)", uint8(d))
}

// MarshalText writes the dimension's name.
func (d Dimension) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads the dimension's name.
func (d *Dimension) UnmarshalText(b []byte) error {
	for i, name := range dimensionNames {
		if name == string(b) {
			*d = Dimension(i)
			return nil
		}
	}
	return fmt.Errorf("unknown dimension %q", b)
}

// Charge says how a provider counts the tokens of a call against its budget.
type Charge uint8

const (
	// ChargeDeclared counts max(input, max_tokens) when the call arrives and refunds nothing (OpenAI, Azure, Bedrock).
	ChargeDeclared Charge = iota
	// ChargeActual counts input when the call arrives and output as it is produced (Anthropic, xAI).
	ChargeActual
	numCharges
)

var chargeNames = [numCharges]string{"declared", "actual"}

// String returns the charge's name as it stands in files.
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
