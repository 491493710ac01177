package provider

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
)

// maxMessage is how much of a provider's words is kept.
const maxMessage = 1000

// Classify says what an answer means. It reads the status, the headers, and of the body only what stands in an error's
// place: an answer of a model is OK whatever it talks about. A status of 0 is an error without one.
//
// An error inside an answer of status 200 is an error, and an error may name another status than HTTP did, which then
// counts: gateways wrap a 429 in a 400.
func Classify(p Provider, status int, h http.Header, body []byte, now time.Time) Verdict {
	if status/100 == 2 {
		if s := summarize(NoEndpoint, body); !s.valid || !s.failed() {
			return Verdict{Why: Reason{Rule: "good status", Field: "status", Value: strconv.Itoa(status)}}
		}
		return verdict(decode(body), 0, h, now)
	}
	return verdict(decode(body), status, h, now)
}

// ClassifyEvent says what an error in the middle of a stream means. data is the event's data. The
// headers of the answer were sent before the error, so only the event's own words can ask for a wait.
func ClassifyEvent(data []byte, now time.Time) Verdict {
	return verdict(decode(data), 0, nil, now)
}

// verdict finds the rule that a fault falls under, and fills in what the fault says besides.
func verdict(f *fault, status int, h http.Header, now time.Time) Verdict {
	f.headerMarks(h)
	if f.status != 0 && (status == 0 || status >= 400) {
		status = f.status
	}
	v := Verdict{Message: f.words()}
	r := v.decide(f, status, h)
	if r == nil {
		v.fallback(f, status)
	}
	if v.Kind == sluice.OK {
		return Verdict{Why: v.Why}
	}
	v.fill(f, r, h, now)
	return v
}

// decide applies the first rule that holds.
func (v *Verdict) decide(f *fault, status int, h http.Header) *rule {
	fig, msg := f.figures()
	if limited := status == 0 || status == 413 || status == 429; limited && fig.requested > fig.limit && fig.limit > 0 {
		v.Kind, v.TooLarge = sluice.ContextLength, true
		v.Why = Reason{"request larger than the whole limit", "message", quote(msg)}
		return nil
	}
	for i := range rules {
		r := &rules[i]
		if why, ok := r.holds(f, status, h); ok {
			v.Kind, v.TooLarge, v.Why = r.kind, r.tooLarge, why
			if r.hint != "" {
				v.Message = strings.TrimSuffix(r.hint+": "+v.Message, ": ")
			}
			return r
		}
	}
	return nil
}

// holds reports whether a fault falls under the rule, and by what.
func (r *rule) holds(f *fault, status int, h http.Header) (Reason, bool) {
	why := Reason{r.name, "status", strconv.Itoa(status)}
	if r.statuses != nil && !slices.Contains(r.statuses, status) {
		return why, false
	}
	if r.marks != nil {
		m, ok := f.named(r.marks)
		if !ok {
			return why, false
		}
		why = Reason{r.name, m.field, quote(m.value)}
	}
	if r.words != nil {
		msg, ok := f.said(r.words)
		if !ok {
			return why, false
		}
		why = Reason{r.name, "message", quote(msg)}
	}
	switch r.header {
	case "":
	case "rejected":
		k, _, ok := rejectedWindow(h, time.Time{})
		if !ok {
			return why, false
		}
		why = Reason{r.name, strings.ToLower(k), "rejected"}
	default:
		if headerWait(h, time.Time{}) == 0 && h.Get(r.header) == "" {
			return why, false
		}
		why = Reason{r.name, strings.ToLower(r.header), quote(h.Get(r.header))}
	}
	return why, true
}

// fallback is the verdict on what no rule speaks of: statuses by their class, and an error without a status is taken
// for a passing one if it has the form of an error at all.
func (v *Verdict) fallback(f *fault, status int) {
	if v.TooLarge {
		return
	}
	v.Why = Reason{"status", "status", strconv.Itoa(status)}
	switch {
	case status == 503 && !f.html:
		v.Kind = sluice.Overloaded
	case status >= 500:
		v.Kind = sluice.ServerError
	case status >= 300:
		v.Kind = sluice.BadRequest
	case f.structured:
		v.Kind, v.Why = sluice.ServerError, Reason{Rule: "error of no known type"}
	default:
		v.Kind, v.Why = sluice.OK, Reason{Rule: "no error"}
	}
}

// fill adds what the error says of limits and waits. What is no limit has no wait.
func (v *Verdict) fill(f *fault, r *rule, h http.Header, now time.Time) {
	if !v.Kind.Throttle() && !v.TooLarge && v.Kind != sluice.QuotaExhausted {
		return
	}
	fig, _ := f.figures()
	v.Dimension, v.Limit, v.Used, v.Requested = fig.dimension, fig.limit, fig.used, fig.requested
	if v.Dimension == sluice.AnyDimension {
		v.Dimension = f.dimension()
	}
	if v.Dimension == sluice.AnyDimension && v.Kind == sluice.RateLimit {
		v.Dimension = exhausted(h)
	}
	if r != nil && r.until != nil {
		v.Until = r.until(now)
	}
	if !v.Kind.Throttle() {
		return
	}
	if v.Wait = f.wait(now); v.Wait == 0 {
		v.Wait = headerWait(h, now)
	}
	if v.Wait == 0 && v.Kind != sluice.Overloaded {
		v.Wait = platformReset(h, now)
	}
	if v.Kind == sluice.UsageWindow {
		v.fillWindow(f, h, now)
	}
}

// fillWindow finds out when a usage window ends.
func (v *Verdict) fillWindow(f *fault, h http.Header, now time.Time) {
	v.Until = f.resetsAt
	for _, m := range f.low {
		if at := instantIn(m); !at.IsZero() {
			v.Until = at
		}
	}
	if _, at, ok := rejectedWindow(h, now); ok && v.Until.IsZero() {
		v.Until = at
	}
	if v.Until.IsZero() && f.resetsIn > 0 {
		v.Until = now.Add(f.resetsIn)
	}
	if v.Wait == 0 && v.Until.After(now) {
		v.Wait = positive(v.Until.Sub(now))
	}
}

// words returns what the provider said, without keys.
func (f *fault) words() string {
	if len(f.messages) > 0 {
		return Redact(clip(f.messages[0], maxMessage))
	}
	if len(f.marks) > 0 {
		return Redact(f.marks[0].value)
	}
	return ""
}

// quote is how a reason quotes a value.
func quote(s string) string { return Redact(clip(s, 120)) }

// figures returns the numbers of the first message that has any, or that names a dimension.
func (f *fault) figures() (fig figures, msg string) {
	for i, m := range f.low {
		g := parseFigures(m)
		if g.limit > 0 {
			return g, f.messages[i]
		}
		if fig.dimension == sluice.AnyDimension {
			fig, msg = g, f.messages[i]
		}
	}
	return fig, msg
}

// dimension returns which limit the error's type names: OpenAI's is "tokens" or "requests".
func (f *fault) dimension() sluice.Dimension {
	for _, m := range f.marks {
		switch {
		case m.name == "tokens":
			return sluice.Tokens
		case m.name == "requests":
			return sluice.Requests
		case strings.Contains(m.name, "requestsperday"):
			return sluice.RequestsPerDay
		case strings.Contains(m.name, "tokensperday"):
			return sluice.TokensPerDay
		case strings.Contains(m.name, "requestsperminute"):
			return sluice.Requests
		case strings.Contains(m.name, "inputtokens") && strings.Contains(m.name, "perminute"):
			return sluice.InputTokens
		case strings.Contains(m.name, "concurren"):
			return sluice.Concurrency
		}
	}
	return sluice.AnyDimension
}

// platformReset reads the end of a window that a spent x-ratelimit-reset states (OpenRouter, on refusals only). The
// resets of buckets are no waits: they say when the bucket is full, not when a call fits.
func platformReset(h http.Header, now time.Time) time.Duration {
	left, ok := count(h["X-Ratelimit-Remaining"])
	v := h["X-Ratelimit-Reset"]
	if !ok || left > 0 || len(v) == 0 {
		return 0
	}
	d, form := resetIn(v[0], h, now)
	if form == bucketReset {
		return 0
	}
	return d
}

// rejectedWindow finds the window of a subscription that is used up, in Anthropic's undocumented headers
// anthropic-ratelimit-unified-{5h,7d}-status, and when it resets (unix seconds).
func rejectedWindow(h http.Header, now time.Time) (key string, until time.Time, ok bool) {
	for _, name := range [...]string{"7d-", "5h-", ""} {
		prefix := "Anthropic-Ratelimit-Unified-" + http.CanonicalHeaderKey(name)
		status := h[http.CanonicalHeaderKey(prefix+"Status")]
		if len(status) == 0 || !strings.EqualFold(status[0], "rejected") {
			continue
		}
		if v := h[http.CanonicalHeaderKey(prefix+"Reset")]; len(v) > 0 {
			if d, _ := resetIn(v[0], h, now); d > 0 {
				until = now.Add(d)
			}
		}
		return prefix + "Status", until, true
	}
	return "", time.Time{}, false
}
