package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// solution is what an error means at the instant it came.
type solution struct {
	provider.Verdict
	now     time.Time
	asked   time.Duration    // the wait of the headers alone
	budgets []limits.Reading // what the headers state of limits
}

// resume returns when Sluice goes on; the zero time where nothing says how long to wait, or nothing is waited for.
func (v solution) resume() time.Time {
	if !v.Kind.Throttle() {
		return time.Time{}
	}
	var at time.Time
	if pause := v.Pause(); pause > 0 {
		at = v.now.Add(pause)
	}
	if v.Kind == sluice.UsageWindow && v.Probe == 0 && v.Until.After(at) {
		at = v.Until // asked to wait for less, it would be refused again
	}
	return at
}

// explanation is a solution as JSON. Fields are only ever added.
type explanation struct {
	Kind       sluice.Kind     `json:"kind"`             // `ok`, or the kind of the failure.
	Scope      limits.Scope    `json:"scope"`            // Rejection scope: `request`, `model`, `key`, `upstream` or `network`.
	RetryAfter *float64        `json:"retry_after_s"`    // Wait requested by the provider.
	ResetAt    *time.Time      `json:"reset_at"`         // Time when the usage window resets.
	Dimension  *string         `json:"dimension"`        // Name of the limit, such as `rpm`.
	Limit      *int64          `json:"limit"`            // Value of the limit.
	Used       *int64          `json:"used"`             // Used amount.
	Requested  *int64          `json:"requested"`        // Requested amount.
	TooLarge   bool            `json:"too_large"`        // The request alone exceeds the limit.
	ProbeAfter *float64        `json:"probe_after_s"`    // Wait before a probe request.
	Action     string          `json:"action"`           // `pause`, `pause_until_reset`, `retry`, `fail`, `stop` or `none`.
	Why        provider.Reason `json:"why"`              // Matching rule.
	Message    string          `json:"message"`          // Error message, without keys.
	ResumeAt   *time.Time      `json:"resume_at"`        // Time when Sluice resumes.
	Budgets    []budgetFigures `json:"limits,omitempty"` // Limits in headers.
}

// budgetFigures is a budget that headers state.
type budgetFigures struct {
	Dimension limits.Dimension `json:"dimension"` // Name of the limit, such as `rpm`.
	Limit     int64            `json:"limit"`     // Value of the limit.
	Remaining *int64           `json:"remaining"` // Remaining amount.
	FullAt    *time.Time       `json:"full_at"`   // Time when the limit is full again.
}

func newExplanation(v solution) explanation {
	e := explanation{
		Kind: v.Kind, Scope: v.About(), RetryAfter: stated(v.Wait.Seconds()), Limit: stated(v.Limit), Used: stated(v.Used), Requested: stated(v.Requested),
		TooLarge: v.TooLarge, ProbeAfter: stated(v.Probe.Seconds()), Action: meaningOf(v.Kind).action, Why: v.Why, Message: v.Message,
		Dimension: stated(v.Dimension.String()), ResetAt: instant(v.Until), ResumeAt: instant(v.resume()),
	}
	for _, b := range v.budgets {
		f := budgetFigures{Dimension: b.Dimension, Limit: b.Limit, FullAt: instant(v.fullAt(b))}
		if b.Remaining >= 0 {
			f.Remaining = &b.Remaining
		}
		e.Budgets = append(e.Budgets, f)
	}
	return e
}

// fullAt returns when a budget is full again; the zero time where nobody says.
func (v solution) fullAt(b limits.Reading) time.Time {
	if b.Reset <= 0 {
		return time.Time{}
	}
	return v.now.Add(b.Reset)
}

// instant returns a time as files have it; nil where there is none.
func instant(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC()
	return &at
}

// stated returns nil for what a verdict does not state.
func stated[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

// print prints a solution as people read it.
func (v solution) print(s *term.Streams) error {
	lines := []string{fmt.Sprintf("%s: %s", v.Kind, meaningOf(v.Kind).means)}
	if !v.Recognised() {
		lines[0] = "no provider error recognized"
	}
	add := func(name, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-8s%s", name, fmt.Sprintf(format, args...)))
	}
	v.printWaits(add)
	if figures := v.limitFigures(); figures != "" {
		add("limit", "%s", figures)
	}
	for _, b := range v.budgets {
		add("budget", "%s", v.budgetWords(b))
	}
	if v.TooLarge {
		add("size", "the request alone exceeds the limit, so every retry would fail")
	}
	if v.Recognised() {
		add("sluice", "%s", meaningOf(v.Kind).does)
		about := "the " + v.About().String()
		if v.Scope > v.About() {
			about += fmt.Sprintf(": the response blames the %s, but without proof", v.Scope)
		}
		add("about", "%s", about)
		add("why", "%s", provider.Reason{Rule: v.Why.Rule, Field: v.Why.Field, Value: v.Why.Value})
	} else {
		add("why", "the text does not look like a provider's error; add --status and --header")
	}
	if v.Why.Also != "" {
		add("or", "%s", v.Why.Also)
	}
	if said := s.RedactData(v.Message); said != "" { // before it is cut, which could part a key
		if short := prose.Clip(said, mostMessage); short != said {
			said = short + " (--json has more)"
		}
		add("said", "%s", said)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(s.Out, term.Escape(line)); err != nil {
			return err
		}
	}
	return nil
}

// printWaits says how long Sluice waits, and what the provider asked for where that is something else.
func (v solution) printWaits(add func(name, format string, args ...any)) {
	resume := v.resume()
	switch {
	case !resume.IsZero():
		add("wait", "%s, until %s", wait(max(0, resume.Sub(v.now))), moment(resume, v.now))
	case v.Kind.Throttle():
		add("wait", "not stated")
	case !v.Until.IsZero():
		add("reset", "%s", moment(v.Until, v.now))
	}
	if !v.Kind.Throttle() {
		return
	}
	switch {
	case v.Probe > 0:
		add("asked", "%s, which is not trusted for this error: one test request is sent earlier", wait(v.Wait))
	case v.Wait > 0 && resume.Sub(v.now) > v.Wait+time.Second:
		add("asked", "%s, although the allowance is renewed later", wait(v.Wait))
	case v.asked > 0 && v.asked != v.Wait:
		add("asked", "%s in the header, but the text is more exact", wait(v.asked))
	}
	if differs := v.Until.Sub(resume).Abs() > time.Second; !v.Until.IsZero() && differs && v.Probe == 0 {
		add("reset", "%s", moment(v.Until, v.now))
	}
}

// wait writes a wait as it was stated, to the millisecond.
func wait(d time.Duration) string { return d.Round(time.Millisecond).String() }

// budgetWords is what the headers state of a budget.
func (v solution) budgetWords(b limits.Reading) string {
	text := fmt.Sprintf("%s %s by the headers", prose.Group(b.Limit), b.Dimension)
	if b.Remaining >= 0 {
		text += fmt.Sprintf(", %s left", prose.Group(b.Remaining))
	}
	if at := v.fullAt(b); !at.IsZero() {
		text += fmt.Sprintf(", full again in %s, at %s", wait(b.Reset), moment(at, v.now))
	}
	return text
}

// moment writes an instant in local time and in UTC.
func moment(at, now time.Time) string {
	const layout = "2006-01-02 15:04:05"
	local, utc := at.In(now.Location()), at.UTC()
	if _, east := local.Zone(); east == 0 {
		return utc.Format(layout) + " UTC"
	}
	return fmt.Sprintf("%s (%s UTC)", local.Format(layout+" -07:00"), utc.Format(layout))
}

// limitFigures names the limit that was exceeded, with its figures; "" if a budget of the headers says as much.
func (v solution) limitFigures() string {
	var parts []string
	stated := func(b limits.Reading) bool { return b.Dimension == v.Dimension }
	if v.Limit == 0 && v.Used == 0 && v.Requested == 0 && slices.ContainsFunc(v.budgets, stated) {
		return ""
	}
	switch {
	case v.Period > 0:
		parts = append(parts, fmt.Sprintf("%s %s in %s", prose.Group(v.Limit), v.Dimension.WindowName(), prose.Span(v.Period)))
	case v.Limit > 0 && v.Dimension != limits.AnyDimension:
		parts = append(parts, prose.Group(v.Limit)+" "+v.Dimension.String())
	case v.Limit > 0:
		parts = append(parts, prose.Group(v.Limit))
	case v.Dimension != limits.AnyDimension:
		parts = append(parts, v.Dimension.String())
	}
	if v.Used > 0 {
		parts = append(parts, prose.Group(v.Used)+" used")
	}
	if v.Requested > 0 {
		parts = append(parts, prose.Group(v.Requested)+" requested")
	}
	return strings.Join(parts, ", ")
}
