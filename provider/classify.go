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
		s := summarize(NoEndpoint, body)
		switch {
		case s.valid && s.refuses(body):
			return p.verdict(decode(body), 0, h, now)
		case !s.valid && len(body) > 0:
			// A stream, a head that was pasted with it, JSON that a server wrote by hand: what is an error in it says so.
			if v, _ := p.readText(0, string(body[:min(len(body), maxFault)]), now); v.Kind != sluice.OK {
				return v
			}
		}
		return Verdict{Why: Reason{Rule: "good status", Field: "status", Value: strconv.Itoa(status)}}
	}
	return p.verdict(decode(body), status, h, now)
}

// errorBody reports whether a body without any answer in it has the form of an error.
func errorBody(body []byte) bool {
	v, ok := literal(string(body[:min(len(body), maxFault)]))
	return ok && errorShaped(v)
}

// ClassifyEvent says what an error in the middle of a stream means. data is the event's data. The
// headers of the answer were sent before the error, so only the event's own words can ask for a wait.
func ClassifyEvent(p Provider, data []byte, now time.Time) Verdict {
	return p.verdict(decode(data), 0, nil, now)
}

// verdict finds the rule that a fault falls under, and fills in what the fault says besides.
func (p Provider) verdict(f *fault, status int, h http.Header, now time.Time) Verdict {
	h = f.quotedHeaders(h)
	f.headerMarks(h)
	if f.status != 0 && (status == 0 || status >= 400) {
		status = f.status
	}
	v := Verdict{Message: f.words()}
	r := p.decide(&v, f, status, h)
	if r == nil && v.Kind == sluice.OK {
		v.state(f, status)
	}
	if r == nil && v.Kind == sluice.OK {
		v.fallback(f, status)
	}
	if v.Kind == sluice.OK {
		return Verdict{Why: v.Why}
	}
	if v.Kind == sluice.QuotaExhausted && (r != nil && r.waited || v.Why.Rule == statementRule) && f.told(now) {
		v.Kind, v.Why.Also = sluice.RateLimit, "" // money does not come back by itself
	}
	v.fill(&p, f, r, h, now)
	p.doubt(&v)
	return v
}

// decide applies the first rule that holds: a request larger than the limit is too large whatever its code is called,
// then come the provider's own codes, then the rules that all share. The rule is nil if it is none of the table's.
func (p Provider) decide(v *Verdict, f *fault, status int, h http.Header) *rule {
	fig, msg := f.figures()
	if limited := status == 0 || status == 413 || status == 429; limited && fig.requested > fig.limit && fig.limit > 0 {
		v.Kind, v.TooLarge = sluice.ContextLength, true
		v.Why = Reason{Rule: "request larger than the whole limit", Field: "message", Value: quote(msg)}
		return nil
	}
	if m, ok := f.coded(p.Codes); ok {
		v.Kind = p.Codes[m.name]
		v.Why = Reason{Rule: "code of " + p.Name, Field: m.field, Value: quote(m.value)}
		return nil
	}
	for i := range rules {
		r := &rules[i]
		if r.loose && f.fromText && !f.api || r.dialect != OpenAI && r.dialect != p.Dialect {
			continue
		}
		if why, ok := r.holds(f, status, h); ok {
			if like, vague := r.vague(status); vague && v.state(f, like) {
				return nil // what the words state is more than such a rule knows
			}
			if p.Name == "" || r.either {
				why.Also = r.also
			}
			v.Kind, v.TooLarge, v.Why = r.kind, r.tooLarge, why
			if r.hint != "" {
				v.Message = strings.TrimSuffix(r.hint+": "+v.Message, ": ")
			}
			return r
		}
	}
	return nil
}

// vague reports whether the rule knows a class of errors only, from a status or from a type that says no more, and which
// status the class is.
func (r *rule) vague(status int) (like int, ok bool) {
	switch {
	case r.words != nil && r.class == 0 || r.header != "":
		return 0, false
	case r.marks == nil && r.words == nil:
		return status, true
	case r.class != 0:
		return r.class, true
	}
	return 0, false
}

// holds reports whether a fault falls under the rule, and by what.
func (r *rule) holds(f *fault, status int, h http.Header) (Reason, bool) {
	why := Reason{Rule: r.name, Field: "status", Value: strconv.Itoa(status)}
	if r.statuses != nil && !slices.Contains(r.statuses, status) {
		return why, false
	}
	if r.marks != nil {
		m, ok := f.named(r.marks, r.field)
		if !ok {
			return why, false
		}
		why = Reason{Rule: r.name, Field: m.field, Value: quote(m.value)}
	}
	if r.words != nil {
		msg, ok := f.said(r.words)
		if !ok {
			return why, false
		}
		why = Reason{Rule: r.name, Field: "message", Value: quote(msg)}
	}
	switch r.header {
	case "":
	case "rejected":
		k, _, ok := rejectedWindow(h, time.Time{})
		if !ok {
			return why, false
		}
		why = Reason{Rule: r.name, Field: strings.ToLower(k), Value: "rejected"}
	default:
		if headerWait(h, time.Time{}) == 0 && h.Get(r.header) == "" {
			return why, false
		}
		why = Reason{Rule: r.name, Field: strings.ToLower(r.header), Value: quote(h.Get(r.header))}
	}
	return why, true
}

// fallback is the verdict on what no rule speaks of: statuses by their class, and an error without a status is taken
// for a passing one if it has the form of an error at all.
func (v *Verdict) fallback(f *fault, status int) {
	if v.TooLarge {
		return
	}
	v.Why = Reason{Rule: "status", Field: "status", Value: strconv.Itoa(status)}
	switch {
	case status == 503 && !f.html:
		v.Kind = sluice.Overloaded
	case status >= 500:
		v.Kind = sluice.ServerError
	case status >= 300:
		v.Kind = sluice.BadRequest
	case f.structured && (f.api || !f.fromText):
		v.Kind, v.Why = sluice.ServerError, Reason{Rule: "error of no known type"}
	default:
		v.Kind, v.Why = sluice.OK, Reason{Rule: noError}
	}
}

// fill adds what the error says of limits and waits. What is no limit has no wait.
func (v *Verdict) fill(p *Provider, f *fault, r *rule, h http.Header, now time.Time) {
	if !v.Kind.Throttle() && !v.TooLarge && v.Kind != sluice.QuotaExhausted {
		return
	}
	fig, _ := f.figures()
	v.Dimension, v.Limit, v.Used, v.Requested = fig.dimension, fig.limit, fig.used, fig.requested
	if v.Dimension == sluice.AnyDimension {
		v.Dimension = f.dimension()
	}
	if v.Dimension == sluice.AnyDimension && v.Kind == sluice.RateLimit {
		v.Dimension = p.exhausted(h, now)
	}
	if !v.Kind.Throttle() {
		v.Until = r.over(now)
		return
	}
	if v.Wait = f.wait(now); v.Wait == 0 {
		v.Wait = headerWait(h, now)
	}
	if v.Wait == 0 && v.Kind != sluice.Overloaded {
		v.Wait = platformReset(h, now)
	}
	if spent := codexReset(h, now); v.Kind == sluice.RateLimit && v.Wait == 0 && spent.After(now) {
		v.Kind = sluice.UsageWindow
		v.Why.Also = "rate_limit: the status says no more, but a window of the plan is used up"
	}
	if v.Kind == sluice.RateLimit && v.Dimension == sluice.AnyDimension && v.Wait > longLimit {
		v.Kind = sluice.UsageWindow
		v.Why.Also = "rate_limit: it is called one, but asks for longer than any of them"
	}
	if v.Kind == sluice.RateLimit && v.Wait == 0 && f.allowance() {
		v.Kind = sluice.UsageWindow
		v.Why.Also = "rate_limit: it may refill all the time, but says nothing of when"
	}
	if v.Kind != sluice.Overloaded {
		v.fillWindow(f, r, h, now)
	}
}

// allowance reports whether the limit that the error speaks of is one of a day or longer.
func (f *fault) allowance() bool {
	for _, low := range f.low {
		for _, period := range [...]string{"per day", "/day", "(rpd)", "(tpd)", " tpd ", " rpd ", "for today", "today's", "for the day", "this month", "this week",
			"daily", "weekly", "monthly", "per week", "per month", "/month", "per 86400", "每日", "每天", "当日", "今日", "每周", "每月", "本月"} {
			if strings.Contains(low, period) {
				return true
			}
		}
	}
	return false
}

// over returns when what the rule speaks of is over, if the rule knows.
func (r *rule) over(now time.Time) time.Time {
	if r == nil || r.until == nil {
		return time.Time{}
	}
	return r.until(now)
}

// longLimit is the wait from which a limit is none of requests or tokens per minute but an allowance of hours or days.
const longLimit = 90 * time.Minute

// fillWindow finds out when a window ends, and that it is one. What the error's members say wins over its words, those
// over headers, and all over what the rule knows of such windows.
func (v *Verdict) fillWindow(f *fault, r *rule, h http.Header, now time.Time) {
	until := f.resetsAt
	for _, m := range f.messages {
		if until.IsZero() {
			until = windowEnd(m, now)
			f.windowed = !until.IsZero()
			v.Zone = zoneOf(until, now)
		}
	}
	if v.Kind == sluice.RateLimit {
		if until.After(now) && v.Wait == 0 {
			v.Wait = positive(until.Sub(now))
		}
		if !f.windowed || v.Dimension != sluice.AnyDimension || until.Sub(now).Abs() < longReset {
			return
		}
		v.Kind = sluice.UsageWindow // limits per minute state no time of the day
	}
	if _, at, ok := rejectedWindow(h, now); ok && until.IsZero() {
		until = at
	}
	if until.IsZero() {
		until = codexReset(h, now)
	}
	if until.IsZero() && f.resetsIn > 0 {
		until = now.Add(f.resetsIn)
	}
	if v.Wait == 0 && until.After(now) {
		v.Wait = positive(until.Sub(now))
	}
	if until.IsZero() && v.Wait > 0 {
		until = now.Add(v.Wait)
	}
	// What a rule knows of its windows is not stated, so it is no Wait. It stands above a wait that is: Google asks for
	// seconds when a day's quota is spent (https://github.com/ogkalu2/comic-translate/issues/403).
	if known := r.over(now); known.After(until) && f.resetsAt.IsZero() && !f.windowed {
		until = known
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
	switch v.Dimension {
	case sluice.Requests, sluice.Tokens, sluice.InputTokens, sluice.OutputTokens:
		if v.Kind == sluice.RateLimit && v.Wait > doubtful {
			v.Probe = time.Minute
		}
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
