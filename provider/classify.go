package provider

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/errtext"
	"github.com/sluice-llm/sluice/limits"
)

// maxMessage is how much of a provider's words is kept.
const maxMessage = 1000

// Classify interprets a provider's response. Classify reads the status, the headers and the error fields of the body, but not the model's
// output. Status 0 means an error without an HTTP status.
//
// A response with status 200 and an error in the body counts as an error. If the status in the body differs from the HTTP status, Classify
// uses the body's status, because some gateways return a 429 as a 400.
func Classify(p Provider, status int, h http.Header, body []byte, now time.Time) Verdict {
	return p.classify(status, h, body, nil, now)
}

// classify is Classify for a request: what an error quotes of it is not read.
func (p Provider) classify(status int, h http.Header, body []byte, sent *errtext.Echo, now time.Time) Verdict {
	if status/100 == 2 {
		s := summarize(NoEndpoint, body)
		switch {
		case s.valid && s.refuses(body):
			return p.verdict(errtext.Read(body, sent), 0, h, now)
		case !s.valid && len(body) > 0:
			// A stream, a head that was pasted with it, JSON that a server wrote by hand: what is an error in it says so.
			if v := ClassifyText(p, 0, string(body[:min(len(body), errtext.MaxRead)]), now); v.Kind != sluice.OK {
				return v
			}
		}
		return Verdict{Why: Reason{Rule: "good status", Field: "status", Value: strconv.Itoa(status)}}
	}
	return p.verdict(errtext.Read(body, sent), status, h, now)
}

// classifyEvent says what an error in the middle of a stream means. data is the event's data. The
// headers of the answer were sent before the error, so only the event's own words can ask for a wait.
func classifyEvent(p Provider, data []byte, now time.Time) Verdict {
	return p.verdict(errtext.Read(data, nil), 0, nil, now)
}

// ClassifyText interprets an error text, such as an SDK exception, the standard error of a command, a log line or a pasted response. status
// is the HTTP status, or 0 if unknown.
//
// The kind is OK unless the text looks like an error: an exception name, an error prefix, a status with its phrase, an error object, or a
// known rejection message. Texts that only discuss errors, such as commit messages, manuals, code and usage displays, have the kind OK.
func ClassifyText(p Provider, status int, text string, now time.Time) Verdict {
	if status < 400 {
		status = 0
	}
	good := Verdict{Why: Reason{Rule: "good answer"}}
	if of, h, body, ok := errtext.Head(text); ok {
		if sum := summarize(NoEndpoint, []byte(body)); of/100 == 2 && !sum.failed() && (sum.hasBody || !errtext.IsError([]byte(body))) {
			return good
		}
		if of >= 400 {
			status = of
		}
		return p.verdict(errtext.Read([]byte(body), nil), status, h, now)
	}
	s := errtext.Plain(text)
	if strings.HasPrefix(s, "{") {
		if sum := summarize(NoEndpoint, []byte(s)); sum.valid && sum.hasBody && !sum.hasError {
			return good
		}
	}
	e, ok := errtext.Find(s, status)
	switch {
	case ok:
		return p.verdict(e, status, nil, now)
	case status == 0:
		return Verdict{Why: Reason{Rule: noError}}
	}
	return p.verdict(errtext.Read([]byte(s), nil), status, nil, now)
}

// Head parses the status and headers of an HTTP response at the start of text. If text does not start with an HTTP response, ok is false.
func Head(text string) (status int, h http.Header, ok bool) {
	status, h, _, ok = errtext.Head(text)
	return status, h, ok
}

// verdict finds the rule that an error falls under, and fills in what the error says besides.
func (p Provider) verdict(e *errtext.Error, status int, h http.Header, now time.Time) Verdict {
	h = e.Headers(h)
	worded := false
	if e.Status != 0 && (status == 0 || status >= 400) {
		worded = e.Worded && e.Status != status
		status = e.Status
	}
	v := Verdict{Page: e.Page}
	if len(e.Messages) > 0 {
		v.Message = Redact(clip(e.Messages[0], maxMessage))
	} else if len(e.Marks) > 0 {
		v.Message = Redact(e.Marks[0].Value)
	}
	over := p.decide(&v, e, status, h, now)
	if v.Kind == sluice.OK {
		return Verdict{Why: v.Why}
	}
	switch {
	case worded:
		v.basis = byWords
	case status == 402 && (e.Status == 402 && !e.Worded || slices.ContainsFunc(e.Marks, structured)): // some code confirms it
		v.basis = byCode
	}
	v.fill(&p, e, over, h, now)
	if overflow := strings.Contains(v.Message, "reset reason: overflow"); status == 503 && (overflow || h.Get("X-Envoy-Overloaded") == "true") {
		v.Kind, v.Dimension, v.Proxy = sluice.RateLimit, limits.Concurrency, true
		v.Why = Reason{Rule: "limit of concurrent requests at Envoy", Field: "x-envoy-overloaded", Value: "true"}
	}
	p.doubt(&v)
	return v
}

// structured reports whether a name is none of a sentence's.
func structured(m errtext.Mark) bool { return !m.Said }

// quote is how a reason quotes a value.
func quote(s string) string { return Redact(clip(s, 120)) }

// decide applies the first rule that holds: a request larger than the limit is too large whatever its code is called,
// then come the provider's own codes, then the table that all share, then the class of the status. It returns when the
// rejection is over by the rule alone; zero if the rule does not know.
func (p Provider) decide(v *Verdict, e *errtext.Error, status int, h http.Header, now time.Time) (over time.Time) {
	fig, msg := e.Figures()
	if limited := status == 0 || status == 413 || status == 429; limited && fig.Requested > fig.Limit && fig.Limit > 0 {
		v.Kind, v.TooLarge = sluice.ContextLength, true
		v.Why = Reason{Rule: "request alone exceeds the limit", Field: "message", Value: quote(msg)}
		return over
	}
	if m, ok := e.Named(func(m *errtext.Mark) bool { return p.Codes[m.Name] != sluice.OK }); ok {
		d := errtext.Decision{Mark: m}
		v.rest(p.Codes[m.Name], "code of "+p.Name, &d, status)
		return over
	}
	d, ok := e.Decide(status)
	if !ok {
		v.fallback(e, status, headerWait(h, now))
		return over
	}
	v.rest(d.Kind, d.Rule(), &d, status)
	if p.Name == "" || d.Always {
		v.Why.Also = d.Also
	}
	told := func() bool { _, told := e.Wait(now); return told }
	window, _, rejected := rejectedWindow(h, now)
	switch {
	case d.Name == errtext.Redirect:
		v.Message = strings.TrimSuffix("the base URL redirects to another URL, and redirects are not followed: use the other URL: "+v.Message, ": ")
	case d.Name == errtext.PaymentRequired && (headerWait(h, now) > 0 || h.Get("Retry-After") != ""):
		v.Kind = sluice.RateLimit
		v.Why = Reason{Rule: "payment required, with a wait time", Field: "retry-after", Value: quote(h.Get("Retry-After"))}
	case d.Kind == sluice.QuotaExhausted && h.Get("X-Sluice-Error") != "" && headerWait(h, now) > 0: // the cap of a tenant
		v.Kind, v.basis = sluice.UsageWindow, byCode
		v.Why = Reason{Rule: "spending cap with a reset time", Field: "x-sluice-error", Value: quote(h.Get("X-Sluice-Error"))}
	case d.Name == errtext.QuotaInWords && p.Dialect == Gemini && status != 402:
		v.Kind, v.Why.Also = sluice.RateLimit, "usage_window: Google sends the same message for a daily quota"
	case d.Kind == sluice.QuotaExhausted && d.Message != "" && told():
		v.Kind, v.Why.Also = sluice.RateLimit, "" // money does not come back by itself
	case d.Kind == sluice.RateLimit && status == 429 && rejected:
		// Subscriptions of Anthropic state their windows only in these headers.
		v.Kind, v.basis = sluice.UsageWindow, byCode
		v.Why = Reason{Rule: "usage window in headers", Field: strings.ToLower(window), Value: "rejected"}
	}
	if d.Until != nil {
		over = d.Until(now)
	}
	return over
}

// rest takes a kind from what a decision rests on.
func (v *Verdict) rest(kind sluice.Kind, rule string, d *errtext.Decision, status int) {
	field, value := d.Reason(status)
	v.Kind, v.Why = kind, Reason{Rule: rule, Field: field, Value: quote(value)}
	switch {
	case d.Worded():
		v.basis = byWords
	case field != "status":
		v.basis = byCode
	}
}

// fallback is the verdict on what no rule speaks of: statuses by their class, and an error without a status is taken
// for a passing one if it has the form of an error at all.
func (v *Verdict) fallback(e *errtext.Error, status int, wait time.Duration) {
	v.Why = Reason{Rule: "status", Field: "status", Value: strconv.Itoa(status)}
	switch {
	case status == 503:
		v.Kind, v.Proxy = sluice.Overloaded, e.Page && wait == 0
	case status >= 500:
		v.Kind = sluice.ServerError
	case status >= 300:
		v.Kind = sluice.BadRequest
	case e.Known():
		v.Kind, v.Why = sluice.ServerError, Reason{Rule: "error of unknown type"}
	default:
		v.Kind, v.Why = sluice.OK, Reason{Rule: noError}
	}
}

// fill adds what the error says of limits and waits. What is no limit has no wait.
func (v *Verdict) fill(p *Provider, e *errtext.Error, over time.Time, h http.Header, now time.Time) {
	if !v.Kind.Throttle() && !v.TooLarge && v.Kind != sluice.QuotaExhausted {
		return
	}
	fig, _ := e.Figures()
	v.Dimension, v.Limit, v.Period, v.Used, v.Requested = fig.Dimension, fig.Limit, fig.Period, fig.Used, fig.Requested
	if v.Dimension == limits.AnyDimension && v.Kind == sluice.RateLimit {
		v.Dimension = p.exhausted(h, now)
	}
	if !v.Kind.Throttle() {
		v.Until = over
		return
	}
	if v.Wait, _ = e.Wait(now); v.Wait == 0 {
		v.Wait = headerWait(h, now)
	}
	if v.Wait == 0 && v.Kind != sluice.Overloaded {
		v.Wait = platformReset(h, now)
	}
	if spent := codexReset(h, now); v.Kind == sluice.RateLimit && v.Wait == 0 && spent.After(now) {
		v.Kind, v.basis = sluice.UsageWindow, byCode
		v.Why.Also = "rate_limit: the error names no usage window, but headers state that a window of the plan is exhausted"
	}
	if v.Kind == sluice.RateLimit && v.Dimension == limits.AnyDimension && v.Wait > longLimit {
		v.Kind, v.basis = sluice.UsageWindow, byWords // a wait alone confirms no window
		v.Why.Also = "rate_limit: the error names a rate limit, but its wait is too long for a rate limit"
	}
	if v.Kind == sluice.RateLimit && v.Wait == 0 && e.Allowance() {
		v.Kind, v.basis = sluice.UsageWindow, byWords
		v.Why.Also = "rate_limit: the limit may refill continuously, because the error states no reset"
	}
	if v.Kind != sluice.Overloaded {
		v.fillWindow(e, over, h, now)
	}
}

// longLimit is the wait from which a limit is none of requests or tokens per minute but an allowance of hours or days.
const longLimit = 90 * time.Minute

// fillWindow finds out when a window ends, and that it is one. What the error's members say wins over its words, those
// over headers, and all over what the rule knows of such windows.
func (v *Verdict) fillWindow(e *errtext.Error, over time.Time, h http.Header, now time.Time) {
	until, worded := e.Until(now)
	if at := until.Location(); worded && at != now.Location() && at != time.Local {
		v.Zone = at.String()
	}
	if v.Kind == sluice.RateLimit {
		if until.After(now) && v.Wait == 0 {
			v.Wait = positive(until.Sub(now))
		}
		if !worded || v.Dimension != limits.AnyDimension || until.Sub(now).Abs() < longReset {
			return
		}
		v.Kind, v.basis = sluice.UsageWindow, byWords // limits per minute state no time of the day
	}
	if _, at, ok := rejectedWindow(h, now); ok && until.IsZero() {
		until = at
	}
	if until.IsZero() {
		until = codexReset(h, now)
	}
	if in := e.ResetsIn; until.IsZero() && in > 0 {
		until = now.Add(in)
	}
	if v.Wait == 0 && until.After(now) {
		v.Wait = positive(until.Sub(now))
	}
	if until.IsZero() && v.Wait > 0 {
		until = now.Add(v.Wait)
	}
	// What a rule knows of its windows is not stated, so it is no Wait. It stands above a wait that is: Google asks for
	// seconds when a day's quota is spent (https://github.com/ogkalu2/comic-translate/issues/403).
	if over.After(until) && e.ResetsAt.IsZero() && !worded {
		until = over
	}
	if !until.IsZero() {
		v.Until = until.UTC()
	}
}

// doubtful is how long a limit per minute may ask to wait and be believed.
const doubtful = time.Hour

// doubt finds a wait that is not to be believed: one that this provider is known to state wrongly, or hours for a limit
// per minute. Azure states a day for the minute of a tiny deployment (https://github.com/alex-wolf-ps/dbchatprov2/issues/2).
func (p Provider) doubt(v *Verdict) {
	for _, u := range p.UntrustedWaits {
		if v.Wait > 0 && v.Wait == u.Wait && u.Probe < v.Wait {
			v.Probe = u.Probe
			return
		}
	}
	if v.Dimension.Window() == time.Minute && v.Kind == sluice.RateLimit && v.Wait > doubtful {
		v.Probe = time.Minute
	}
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

// codexReset returns when the windows of a ChatGPT plan that are used up have all reset, from the headers that Codex is
// sent: X-Codex-{Primary,Secondary}-{Used-Percent,Reset-At,Reset-After-Seconds}.
func codexReset(h http.Header, now time.Time) (until time.Time) {
	for _, name := range [...]string{"Primary", "Secondary"} {
		prefix := "X-Codex-" + name + "-"
		if used, ok := count(h[prefix+"Used-Percent"]); !ok || used < 100 {
			continue
		}
		for _, key := range [...]string{prefix + "Reset-After-Seconds", prefix + "Reset-At"} {
			if v := h[key]; len(v) > 0 {
				if d, _ := resetIn(v[0], h, now); d > 0 && now.Add(d).After(until) {
					until = now.Add(d)
				}
				break
			}
		}
	}
	return until
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
