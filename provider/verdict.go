package provider

import (
	"fmt"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/errtext"
	"github.com/sluice-llm/sluice/limits"
)

// Verdict is the classification of a response or of an error text.
type Verdict struct {
	Kind      sluice.Kind
	Wait      time.Duration    // wait that the provider asks for; 0 if missing
	Until     time.Time        // time at which a usage window resets; zero if missing
	Zone      string           // time zone of Until in the response, such as America/Los_Angeles; "" if missing
	Probe     time.Duration    // if Wait is probably wrong, delay before one probe request; otherwise 0
	Dimension limits.Dimension // exceeded limit
	Limit     int64            // value of the exceeded limit; 0 if missing
	Period    time.Duration    // period of the exceeded limit; 0 means a minute or a day, by Dimension
	Used      int64            // used amount of the exceeded limit; 0 if missing
	Requested int64            // amount of the exceeded limit that the request needs; 0 if missing
	TooLarge  bool             // the request alone exceeds the limit, so that no retry can succeed
	Message   string           // the provider's message, without API keys; "" for OK
	Why       Reason
	basis     evidence
	Scope     limits.Scope // scope that a rejection claims but the response does not prove (see Proven)
	Page      bool         // the response is an HTML page
	Proxy     bool         // a proxy rejected the request (see limits.Outcome)

	Unsupported string // first field of ExchangeConfig.Added that the provider rejected; "" if none
}

// evidence is what a verdict rests on. The zero value is the status, or a header.
type evidence uint8

// Bases of a verdict.
const (
	byStatus evidence = iota
	byCode            // a type, code or reason in the error's structure
	byWords           // a sentence, which may quote the request
)

// Reason explains how a verdict was reached.
type Reason struct {
	Rule  string `json:"rule"`            // Name of the rule, or `no error`.
	Field string `json:"field,omitempty"` // Matched part of the response, such as `code`.
	Value string `json:"value,omitempty"` // Value of the matched part, without keys.
	Also  string `json:"also,omitempty"`  // Second possible meaning.
}

// String returns the reason in one line.
func (r Reason) String() string {
	s := r.Rule
	if r.Field != "" {
		s = fmt.Sprintf("%s (%s: %s)", r.Rule, r.Field, r.Value)
	}
	if r.Also != "" {
		s += "; or " + r.Also
	}
	return s
}

// noError is the rule of what nothing is known of.
const noError = "no error"

// Recognised reports whether a classification rule matched. If no rule matched, Kind is OK.
func (v Verdict) Recognised() bool { return v.Kind != sluice.OK || v.Why.Rule != noError }

// Pause returns the duration for which no request should be sent: Probe if above 0, otherwise Wait.
func (v Verdict) Pause() time.Duration {
	if v.Probe > 0 {
		return v.Probe
	}
	return v.Wait
}

// Error is the Outcome.Err of an attempt if the provider's response was an error. Use errors.As to find an *Error.
type Error struct {
	Provider  string // name of the provider
	Status    int    // HTTP status; 200 for an error inside a successful response or a stream
	RequestID string // request ID in the response header
	Verdict
}

// Error returns the provider's name, the status, the kind and the message in one line.
func (e *Error) Error() string {
	msg := e.Message
	if msg == "" {
		msg = e.Why.String()
	}
	name := e.Provider
	if name == "" {
		name = "provider"
	}
	if e.Status == 0 {
		return fmt.Sprintf("%s: %s: %s", name, e.Kind, msg)
	}
	return fmt.Sprintf("%s: %d %s: %s", name, e.Status, e.Kind, msg)
}

// Source returns the part of the response that determined the kind, such as "code".
func (e *Error) Source() string { return e.Why.Field }

// without returns the verdict with a run's own key struck out of its texts.
func (v Verdict) without(keys []string) Verdict {
	v.Message, v.Why.Value = Redact(v.Message, keys...), Redact(v.Why.Value, keys...)
	return v
}

// scopes are what rejections of a kind are about, where that is more than the request.
var scopes = map[sluice.Kind]limits.Scope{
	sluice.RateLimit: limits.ScopeModel, sluice.Overloaded: limits.ScopeModel, sluice.UsageWindow: limits.ScopeUpstream,
	sluice.QuotaExhausted: limits.ScopeUpstream, sluice.Auth: limits.ScopeKey, sluice.ServerError: limits.ScopeUpstream,
	sluice.Timeout: limits.ScopeNetwork, sluice.Network: limits.ScopeNetwork,
}

// proven returns the kind that a response of an HTTP status proves. Words prove nothing about more than the request, a page
// and a 403 prove nothing about the key, and a 402 needs a code.
func (v *Verdict) proven(status int) sluice.Kind {
	wider := scopes[v.Kind] != limits.ScopeRequest
	account := v.Kind == sluice.Auth || v.Kind == sluice.QuotaExhausted
	switch worded := v.basis == byWords; {
	case status == 0 || !wider && !v.Page: // 0: the words of a command are its own
	case v.Page && status < 500 && status != 408 && status != 429:
		return sluice.Blocked
	case status == 403 && (account || worded || v.basis == byStatus), v.Why.Rule == errtext.NotAllowed && status != 401:
		return sluice.Rejected
	case status == 402 && (account || v.Kind == sluice.UsageWindow) && v.basis != byCode:
		return sluice.Rejected
	case status == 401 && account && v.basis != byCode:
		return sluice.Auth
	case !worded:
	case status == 400 || status == 404 || status == 409 || status == 413 || status == 422:
		return sluice.BadRequest
	case status == 429 && (account || v.Kind == sluice.UsageWindow):
		return sluice.RateLimit
	case account || v.Kind == sluice.UsageWindow:
		return sluice.ServerError
	}
	return v.Kind
}

// Proven returns the verdict that a response with the given HTTP status proves. If the response does not prove the claimed Kind, Proven
// corrects Kind, and sets Scope to the claimed scope.
func (v Verdict) Proven(status int) Verdict {
	claimed := v.Kind
	if v.Kind = v.proven(status); v.Kind == claimed {
		return v
	}
	if v.Scope = scopes[claimed]; !v.Kind.Throttle() {
		v.Wait, v.Until, v.Probe = 0, time.Time{}, 0
	}
	return v
}

// About returns the scope of the rejection.
func (v Verdict) About() limits.Scope { return scopes[v.Kind] }

// Outcome returns the outcome of an attempt after a response from p with this verdict and the given HTTP status.
func (v Verdict) Outcome(p Provider, status int, requestID string) sluice.Outcome {
	v = v.Proven(status)
	o := sluice.Outcome{
		Kind: v.Kind, Scope: v.Scope, Wait: v.Pause(), Until: v.Until,
		Dimension: v.Dimension, Limit: v.Limit, Used: v.Used, Requested: v.Requested, TooLarge: v.TooLarge,
		Proxy: v.Proxy && v.Kind.Throttle(),
	}
	if v.Period > 0 {
		o.Window = limits.Window{N: int(v.Limit), Period: v.Period}
		o.Limit = v.Limit * int64(v.Dimension.Window()/time.Second) / int64(v.Period/time.Second)
	}
	if v.Probe > 0 || v.Scope != limits.ScopeRequest {
		o.Until = time.Time{} // it is the same statement
	}
	if v.Kind != sluice.OK {
		o.Err = &Error{Provider: p.Name, Status: status, RequestID: requestID, Verdict: v}
	}
	return o
}
