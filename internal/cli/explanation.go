package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// explanation is a verdict as JSON. Fields are only ever added.
type explanation struct {
	Kind       sluice.Kind     `json:"kind"`
	RetryAfter *float64        `json:"retry_after_s"`
	ResetAt    *time.Time      `json:"reset_at"`
	Dimension  *string         `json:"dimension"`
	Limit      *int64          `json:"limit"`
	Used       *int64          `json:"used"`
	Requested  *int64          `json:"requested"`
	TooLarge   bool            `json:"too_large"`
	ProbeAfter *float64        `json:"probe_after_s"`
	Action     string          `json:"action"`
	Why        provider.Reason `json:"why"`
	Message    string          `json:"message"`
}

func newExplanation(v provider.Verdict) explanation {
	e := explanation{
		Kind: v.Kind, RetryAfter: stated(v.Wait.Seconds()), Limit: stated(v.Limit), Used: stated(v.Used), Requested: stated(v.Requested),
		TooLarge: v.TooLarge, ProbeAfter: stated(v.Probe.Seconds()), Action: meanings[v.Kind].action, Why: v.Why, Message: v.Message,
		Dimension: stated(v.Dimension.String()),
	}
	if !v.Until.IsZero() {
		at := v.Until.UTC()
		e.ResetAt = &at
	}
	return e
}

// stated returns nil for what a verdict does not state.
func stated[T comparable](v T) *T {
	var none T
	if v == none {
		return nil
	}
	return &v
}

// printVerdict prints a verdict as people read it.
func printVerdict(s *streams, v provider.Verdict, now time.Time) error {
	m := meanings[v.Kind]
	lines := []string{fmt.Sprintf("%s: %s", v.Kind, m.means)}
	add := func(name, format string, args ...any) {
		lines = append(lines, fmt.Sprintf("  %-8s%s", name, fmt.Sprintf(format, args...)))
	}
	if limited := v.Kind.Throttle(); limited && v.Wait > 0 {
		add("wait", "%s, until %s", v.Wait.Round(time.Millisecond), moment(now.Add(v.Wait), now))
	} else if limited && v.Until.IsZero() {
		add("wait", "not stated")
	}
	if !v.Until.IsZero() && v.Until.Sub(now.Add(v.Wait)).Abs() > time.Second {
		add("reset", "%s", moment(v.Until, now))
	}
	if v.Probe > 0 {
		add("probe", "after %s: a wait of %s is not to be believed here", v.Probe, v.Wait.Round(time.Millisecond))
	}
	if figures := limitFigures(v); figures != "" {
		add("limit", "%s", figures)
	}
	if v.TooLarge {
		add("size", "the request alone is larger than the whole limit: it can never pass")
	}
	add("sluice", "%s", m.does)
	add("why", "%s", provider.Reason{Rule: v.Why.Rule, Field: v.Why.Field, Value: v.Why.Value})
	if v.Why.Also != "" {
		add("or", "%s", v.Why.Also)
	}
	if v.Message != "" {
		add("said", "%s", v.Message)
	}
	for _, line := range lines {
		if _, err := fmt.Fprintln(s.out, escape(line)); err != nil {
			return err
		}
	}
	return nil
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

// limitFigures names the limit that was exceeded, with its figures.
func limitFigures(v provider.Verdict) string {
	var parts []string
	switch {
	case v.Limit > 0 && v.Dimension != sluice.AnyDimension:
		parts = append(parts, group(v.Limit)+" "+v.Dimension.String())
	case v.Limit > 0:
		parts = append(parts, group(v.Limit))
	case v.Dimension != sluice.AnyDimension:
		parts = append(parts, v.Dimension.String())
	}
	if v.Used > 0 {
		parts = append(parts, group(v.Used)+" used")
	}
	if v.Requested > 0 {
		parts = append(parts, group(v.Requested)+" requested")
	}
	return strings.Join(parts, ", ")
}
