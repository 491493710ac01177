package provider

import (
	"fmt"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/errtext"
	"github.com/sluice-llm/sluice/limits"
)

// Verdict is what an answer means.
type Verdict struct {
	Kind      sluice.Kind
	Wait      time.Duration    // how long the provider asks to wait; 0 when it does not say
	Until     time.Time        // when a usage window resets; zero when it does not say
	Zone      string           // in which its words state Until, such as America/Los_Angeles; "" when they name none
	Probe     time.Duration    // when not zero, do not believe Wait: let one call through after this
	Dimension limits.Dimension // which limit was exceeded
	Limit     int64            // that limit, the part of it in use, and what the call asked for, where the words say so
	Period    time.Duration    // to which Limit refers; 0: a minute or a day, as Dimension says
	Used      int64
	Requested int64
	TooLarge  bool   // the call alone is larger than the whole limit: it can never pass
	Message   string // the provider's own words, without keys; "" for OK
	Why       Reason
	basis     evidence
	Scope     limits.Scope // the scope that it claims, if the response does not prove another: see Proven
	Page      bool         // it is an HTML page
	Proxy     bool         // see limits.Outcome

	Unsupported string // the first of ExchangeConfig.Added that the provider says a request may not have; "": none
}

// evidence is what a verdict rests on. The zero value is the status, or a header.
type evidence uint8

// Bases of a verdict.
const (
	byStatus evidence = iota
	byCode            // a type, code or reason in the error's structure
	byWords           // a sentence, which may quote the request
)

// Reason says how a verdict was reached.
type Reason struct {
	Rule  string `json:"rule"`            // Name of the rule; `no error` if none matched.
	Field string `json:"field,omitempty"` // Part of the response, such as `code`.
	Value string `json:"value,omitempty"` // Value of that part, without keys.
	Also  string `json:"also,omitempty"`  // Second possible meaning.
}

// String returns the reason as one line.
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

// Recognised reports whether a rule matched. If not, Kind is OK because no known error was found.
func (v Verdict) Recognised() bool { return v.Kind != sluice.OK || v.Why.Rule != noError }

// Pause returns how long to send nothing: what the provider asks for, unless that is not to be believed.
func (v Verdict) Pause() time.Duration {
	if v.Probe > 0 {
		return v.Probe
	}
	return v.Wait
}

// Error is the error of an Outcome that a provider's answer led to. Use errors.As to reach it.
type Error struct {
	Provider  string // its name
	Status    int    // of HTTP; 200 for an error inside a good answer or a stream
	RequestID string
	Verdict
}

// Error says what the provider answered, in one line.
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

// Source names the part of the response from which its kind was read, such as "code".
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

// Proven returns the verdict that a response of an HTTP status proves. Its Scope is the claimed one if none is proven.
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

// About returns what the rejection is about.
func (v Verdict) About() limits.Scope { return scopes[v.Kind] }

// Outcome returns the verdict as the outcome of an attempt: of an answer of that status by p.
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
