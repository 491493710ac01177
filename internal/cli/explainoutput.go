package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	verdicts "github.com/sluice-llm/sluice/internal/explain"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// verdictText collects the lines about a verdict.
type verdictText struct {
	verdicts.Verdict
	lines []string
}

func (t *verdictText) add(name, format string, args ...any) {
	t.lines = append(t.lines, fmt.Sprintf("  %-8s%s", name, fmt.Sprintf(format, args...)))
}

// printVerdict prints a verdict for people.
func printVerdict(s *term.Streams, v verdicts.Verdict) error {
	t := verdictText{v, []string{fmt.Sprintf("%s: %s", v.Kind, v.Means)}}
	recognized := v.Cause.Recognised()
	if !recognized {
		t.lines[0] = "no provider error recognized"
	}
	t.addWaits()
	t.addLimits()
	if v.TooLarge {
		t.add("size", "the request alone exceeds the limit, so every retry would fail")
	}
	if recognized {
		t.add("sluice", "%s", v.Does)
		about := "the " + v.Scope.String()
		if v.Cause.Scope > v.Scope {
			about += fmt.Sprintf(": the response blames the %s, but without proof", v.Cause.Scope)
		}
		t.add("about", "%s", about)
		t.add("why", "%s", provider.Reason{Rule: v.Why.Rule, Field: v.Why.Field, Value: v.Why.Value})
	} else {
		t.add("why", "the text does not look like a provider's error; add --status and --header")
	}
	if v.Why.Also != "" {
		t.add("or", "%s", v.Why.Also)
	}
	if said := s.RedactData(v.Message); said != "" { // before clipping, which could cut a key in two
		if short := prose.Clip(said, runinfo.MaxMessage); short != said {
			said = short + " (--json has more)"
		}
		t.add("said", "%s", said)
	}
	for _, line := range t.lines {
		if _, err := fmt.Fprintln(s.Out, term.Escape(line)); err != nil {
			return err
		}
	}
	return nil
}

// addWaits adds how long Sluice waits, and the wait that the provider asks for if it differs.
func (t *verdictText) addWaits() {
	until, throttle := t.Cause.Until, t.Kind.Throttle()
	var resume time.Time
	switch {
	case t.ResumeAt != nil:
		resume = *t.ResumeAt
		t.add("wait", "%s, until %s", wait(max(0, resume.Sub(t.Arrived))), t.moment(resume))
	case throttle:
		t.add("wait", "not stated")
	}
	switch asked := t.Cause.Wait; {
	case !throttle:
	case t.ProbeAfter != nil:
		t.add("asked", "%s, which is not trusted for this error: one test request is sent earlier", wait(asked))
	case asked > 0 && resume.Sub(t.Arrived) > asked+time.Second:
		t.add("asked", "%s, although the allowance is renewed later", wait(asked))
	case t.HeaderWait > 0 && t.HeaderWait != asked:
		t.add("asked", "%s in the header, but the text is more exact", wait(t.HeaderWait))
	}
	differs := until.Sub(resume).Abs() > time.Second && t.ProbeAfter == nil
	if t.ResetAt != nil && (differs || !throttle) {
		t.add("reset", "%s", t.moment(until))
	}
}

// wait writes a wait to the millisecond.
func wait(d time.Duration) string { return d.Round(time.Millisecond).String() }

// moment writes an instant in local time and in UTC.
func (t *verdictText) moment(at time.Time) string {
	const layout = "2006-01-02 15:04:05"
	local, utc := at.In(t.Arrived.Location()), at.UTC()
	if _, east := local.Zone(); east == 0 {
		return utc.Format(layout) + " UTC"
	}
	return fmt.Sprintf("%s (%s UTC)", local.Format(layout+" -07:00"), utc.Format(layout))
}

// addLimits adds the exceeded limit, unless headers state it as completely, and the limits in headers.
func (t *verdictText) addLimits() {
	c, name := t.Cause, t.Cause.Dimension.String()
	amount := func(n int64, unit string) string {
		if n <= 0 {
			return ""
		}
		return prose.Group(n) + " " + unit
	}
	if c.Period > 0 {
		name = c.Dimension.WindowName() + " in " + prose.Span(c.Period)
	}
	limit := cmp.Or(strings.TrimSpace(amount(c.Limit, name)), name)
	parts := slices.DeleteFunc([]string{limit, amount(c.Used, "used"), amount(c.Requested, "requested")}, func(p string) bool { return p == "" })
	inHeaders := slices.ContainsFunc(t.Limits, func(l verdicts.Limit) bool { return l.Dimension == c.Dimension })
	if amounts := c.Limit + c.Used + c.Requested; len(parts) > 0 && (amounts > 0 || !inHeaders) {
		t.add("limit", "%s", strings.Join(parts, ", "))
	}
	for _, l := range t.Limits {
		text := fmt.Sprintf("%s %s by the headers", prose.Group(l.Limit), l.Dimension)
		if l.Remaining != nil {
			text += fmt.Sprintf(", %s left", prose.Group(*l.Remaining))
		}
		if l.FullAt != nil {
			text += fmt.Sprintf(", full again in %s, at %s", wait(l.FullAt.Sub(t.Arrived)), t.moment(*l.FullAt))
		}
		t.add("budget", "%s", text)
	}
}
