package provider

import (
	"fmt"
	"time"

	"github.com/sluice-llm/sluice"
)

// Verdict is what an answer means.
type Verdict struct {
	Kind      sluice.Kind
	Wait      time.Duration    // how long the provider asks to wait; 0 when it does not say
	Until     time.Time        // when a usage window resets; zero when it does not say
	Zone      string           // in which its words state Until, such as America/Los_Angeles; "" when they name none
	Probe     time.Duration    // when not zero, do not believe Wait: let one call through after this
	Dimension sluice.Dimension // which limit was exceeded
	Limit     int64            // that limit, the part of it in use, and what the call asked for, where the words say so
	Used      int64
	Requested int64
	TooLarge  bool   // the call alone is larger than the whole limit: it can never pass
	Message   string // the provider's own words, without keys; "" for OK
	Why       Reason
}

// Reason says how a verdict was reached.
type Reason struct {
	Rule  string `json:"rule"`            // the rule's name, such as "insufficient quota"
	Field string `json:"field,omitempty"` // what it read: status, type, code, message, ...
	Value string `json:"value,omitempty"` // what it found there, without keys
	Also  string `json:"also,omitempty"`  // the other reading that the same error allows: "rate_limit: ..."
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

// Recognised reports whether a verdict rests on anything: on an error that is known, or on an answer that is good. One
// that does not is OK because nothing in a text spoke as an error does, which the text may be nevertheless.
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

// without returns the verdict with a run's own key struck out of its texts.
func (v Verdict) without(keys []string) Verdict {
	v.Message, v.Why.Value = Redact(v.Message, keys...), Redact(v.Why.Value, keys...)
	return v
}

// Outcome returns the verdict as the outcome of an attempt: of an answer of that status by p.
func (v Verdict) Outcome(p Provider, status int, requestID string) sluice.Outcome {
	o := sluice.Outcome{
		Kind: v.Kind, Wait: v.Pause(), Until: v.Until,
		Dimension: v.Dimension, Limit: v.Limit, Used: v.Used, Requested: v.Requested, TooLarge: v.TooLarge,
	}
	if v.Probe > 0 {
		o.Until = time.Time{} // it is the same statement
	}
	if v.Kind != sluice.OK {
		o.Err = &Error{Provider: p.Name, Status: status, RequestID: requestID, Verdict: v}
	}
	return o
}
