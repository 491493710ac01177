// Package explain says what an error of a provider means, how long to wait, and how Sluice handles it.
package explain

import (
	"net/http"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// Verdict explains an error. Its JSON is the document of sluice explain.
type Verdict struct {
	Kind       sluice.Kind  `json:"kind"`          // `ok`, or the kind of the failure.
	Scope      limits.Scope `json:"scope"`         // Rejection scope: `request`, `model`, `key`, `upstream` or `network`.
	RetryAfter *float64     `json:"retry_after_s"` // Wait requested by the provider.
	ResetAt    *time.Time   `json:"reset_at"`      // Time when the usage window resets.
	Dimension  *string      `json:"dimension"`     // Name of the limit, such as `rpm`.
	Limit      *int64       `json:"limit"`         // Value of the limit.
	Used       *int64       `json:"used"`          // Used amount.
	Requested  *int64       `json:"requested"`     // Requested amount.
	TooLarge   bool         `json:"too_large"`     // The request alone exceeds the limit.
	ProbeAfter *float64     `json:"probe_after_s"` // Wait before a probe request.
	Meaning
	Why      provider.Reason `json:"why"`              // Matching rule.
	Message  string          `json:"message"`          // Error message, without keys.
	ResumeAt *time.Time      `json:"resume_at"`        // Time when Sluice resumes.
	Limits   []Limit         `json:"limits,omitempty"` // Limits in headers.

	Arrived    time.Time        `json:"-"` // arrival time of the error
	HeaderWait time.Duration    `json:"-"` // wait that the headers alone ask for
	Cause      provider.Verdict `json:"-"` // classification of the error
}

// Meaning describes a kind of error.
type Meaning struct {
	Means  string `json:"-"`      // meaning, for people
	Action string `json:"action"` // `pause`, `pause_until_reset`, `retry`, `fail`, `stop` or `none`.
	Does   string `json:"-"`      // reaction of Sluice, for people
}

// Limit is a limit that headers state.
type Limit struct {
	Dimension limits.Dimension `json:"dimension"` // Name of the limit, such as `rpm`.
	Limit     int64            `json:"limit"`     // Value of the limit.
	Remaining *int64           `json:"remaining"` // Remaining amount.
	FullAt    *time.Time       `json:"full_at"`   // Time when the limit is full again.
}

// Explain classifies an error: as a response if it has a status or headers, otherwise by its text.
func Explain(q Query) Verdict {
	head := q.Headers
	if _, pasted, ok := provider.Head(q.Text); ok && len(head) == 0 {
		head = pasted
	}
	if q.Now.IsZero() {
		q.Now = time.Now()
		if at, err := http.ParseTime(head.Get("Date")); err == nil && at.Year() <= maxYear {
			q.Now = at.Local()
		}
	}
	v := q.classify()
	e := Verdict{
		Kind: v.Kind, Scope: v.About(), RetryAfter: known(v.Wait.Seconds()), ResetAt: instant(v.Until), Dimension: known(v.Dimension.String()),
		Limit: known(v.Limit), Used: known(v.Used), Requested: known(v.Requested), TooLarge: v.TooLarge, ProbeAfter: known(v.Probe.Seconds()),
		Meaning: meanings[v.Kind], Why: v.Why, Message: v.Message, ResumeAt: instant(resume(v, q.Now)),
		Arrived: q.Now, HeaderWait: provider.RetryAfter(head, nil, q.Now), Cause: v,
	}
	for _, r := range q.Provider.Stated(head, q.Now) {
		l := Limit{Dimension: r.Dimension, Limit: r.Limit}
		if r.Remaining >= 0 {
			l.Remaining = &r.Remaining
		}
		if r.Reset > 0 {
			l.FullAt = instant(q.Now.Add(r.Reset))
		}
		e.Limits = append(e.Limits, l)
	}
	return e
}

func (q *Query) classify() provider.Verdict {
	response := q.Status != 0 || len(q.Headers) > 0
	if response && q.Channel != "sdk" && q.Channel != "cli" {
		return provider.Classify(q.Provider, q.Status, q.Headers, []byte(q.Text), q.Now).Proven(q.Status)
	}
	v := provider.ClassifyText(q.Provider, q.Status, q.Text, q.Now)
	if v.Kind.Throttle() && v.Wait == 0 {
		v.Wait = provider.RetryAfter(q.Headers, nil, q.Now)
	}
	return v
}

// resume returns the time when Sluice resumes, or zero if the error is not a throttle or its wait is unknown.
func resume(v provider.Verdict, now time.Time) (at time.Time) {
	if !v.Kind.Throttle() {
		return at
	}
	if pause := v.Pause(); pause > 0 {
		at = now.Add(pause)
	}
	if v.Kind == sluice.UsageWindow && v.Probe == 0 && v.Until.After(at) {
		return v.Until // after a shorter wait, the provider would reject again
	}
	return at
}

// instant returns a time in UTC, or nil for zero.
func instant(at time.Time) *time.Time { return known(at.UTC()) }

// known returns nil for zero, which means unknown.
func known[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

var meanings = map[sluice.Kind]Meaning{
	sluice.OK: {"no error", "none", "nothing"},
	sluice.RateLimit: {"the provider asks to slow down", "pause",
		"keep the item, and correct the limit or pause requests that share it; no attempt is spent"},
	sluice.Overloaded: {"the provider has no capacity", "pause", "keep the item and pause requests to the model; no attempt is spent"},
	sluice.UsageWindow: {"an allowance of hours, days or a plan is used up", "pause_until_reset",
		"keep the item and pause requests that share the allowance until it is renewed; no attempt is spent"},
	sluice.QuotaExhausted: {"no credit is left, or a spend cap is reached", "stop", "stop the run, which can be resumed: no item can succeed"},
	sluice.Rejected:       {"the request is not allowed", "fail", rejected},
	sluice.Blocked:        {"a firewall or proxy responded instead of the provider", "fail", rejected},
	sluice.Auth: {"the key was rejected", "stop",
		"exclude the key if other requests with it are rejected too; without another key, stop the run, which can be resumed"},
	sluice.Timeout: {"no response within the timeout", "retry", retried},
	sluice.Network: {"the connection failed or was interrupted", "retry",
		"retry after a backoff; an attempt is spent if the request was sent"},
	sluice.ServerError:   {"the provider had an internal error", "retry", retried},
	sluice.CommandFailed: {"a command failed without an error of a provider", "retry", retried},
	sluice.BadRequest:    {"the request is invalid", "fail", failed},
	sluice.ContextLength: {"the request alone exceeds the model's context window or a limit", "fail", failed},
	sluice.ContentFilter: {"rejected for its content", "fail", failed},
}

const (
	retried  = "retry after a backoff; an attempt is spent"
	rejected = "retry the item once at the end, then fail it; stop the run if no other item succeeds"
	failed   = "fail the item: the same request would be rejected again"
)
