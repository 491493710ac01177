package worlds

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
)

// Response is the end of an attempt: the raw response of a provider, or an error of the connection.
type Response struct {
	Status int         // 0: no response, see Err
	Header http.Header // nil without a response
	Body   []byte      // empty until the response is done
	Err    error       // ErrReset or ErrDeadline, or nil

	head, done time.Duration // instants at the provider, or never
	cause      cause
	limit      Dimension     // that lacked room
	wait       time.Duration // until it has room for this item, if no other takes it
	stated     time.Duration // the longest wait that the response states in headers of limits or in its body
}

// limited reports whether the response is a rejection by a rate limit or a limit of concurrency.
func (r *Response) limited() bool { return r.Status == 429 || r.cause == limited }

// speaker writes a provider's headers and bodies.
type speaker struct {
	show   Show
	epoch  time.Time
	cached [][]figure // of each lane, as they were at
	at     []time.Duration
	second int64
	date   string // of that second
}

func newSpeaker(w *World) *speaker {
	return &speaker{show: w.Show, epoch: Epoch, cached: make([][]figure, w.Lanes), at: make([]time.Duration, w.Lanes)}
}

// figure is a limit as headers show it.
type figure struct {
	dim         Dimension
	limit, left float64
	full        time.Duration // until the whole limit is there again
	law         *limit
}

// figures returns the figures of a lane's rate limits. Of two limits of one dimension it shows the scarcer one.
func (p *provider) figures(lane int) []figure {
	out := make([]figure, 0, 4)
	for _, l := range p.lanes[lane] {
		if l.Dim == Concurrency {
			continue
		}
		now := p.clock.now
		f := figure{l.Dim, l.N, max(0, math.Floor(l.left(now)+slack)), max(0, after(l, now, l.size())-now), l}
		known := false
		for i := range out {
			if out[i].dim == f.dim {
				known = true
				if f.left < out[i].left {
					out[i] = f
				}
			}
		}
		if !known {
			out = append(out, f)
		}
	}
	return out
}

// write completes a response at the provider: its headers as of now, and its body.
func (s *speaker) write(p *provider, item *Item, r *Response, v verdict) {
	if v.status == 0 {
		r.Err = ErrReset
		if r.head == r.done {
			return
		}
		v.status = 200 // until the stream breaks
	}
	r.Header = http.Header{"Date": {s.now(p)}, "Content-Type": {"application/json"}}
	if s.show.Only == "" || s.show.Only == "ok" == (v.status == 200) {
		s.rates(p, item, r, v)
	}
	if v.status == 200 {
		r.Body = s.success(item)
		return
	}
	s.retryAfter(p, r, v)
	if s.proxied(r, v) {
		return
	}
	r.Body = s.failure(item, v)
	if bytes.Contains(r.Body, []byte("again in ")) || bytes.Contains(r.Body, []byte("retry in ")) {
		r.stated = max(r.stated, v.wait)
	}
}

// now returns the provider's Date.
func (s *speaker) now(p *provider) string {
	if second := s.clock(p, 0).Unix(); s.second != second {
		s.second, s.date = second, time.Unix(second, 0).UTC().Format(http.TimeFormat)
	}
	return s.date
}

// clock returns an instant by the provider's clock.
func (s *speaker) clock(p *provider, later time.Duration) time.Time {
	return s.epoch.Add(p.clock.now + later + s.show.Skew.span())
}

// rates adds rate-limit headers, with the defects that the world asks for.
func (s *speaker) rates(p *provider, item *Item, r *Response, v verdict) {
	if _, ok := forms[s.show.Headers]; s.show.Headers == "" || !ok && (s.show.Dialect == "gemini" || s.show.Dialect == "bare") {
		return
	}
	figures := p.figures(item.Lane)
	switch s.show.Headers {
	case "end":
		if r.head != never && v.status == 200 {
			p.clock.at(r.head, func() { s.set(p, r, p.figures(item.Lane)) })
			return
		}
	case "early":
		for i := range figures {
			if v.status == 200 {
				figures[i].left = min(figures[i].limit, figures[i].left+p.w.cost(figures[i].dim, item))
			}
		}
	case "cached":
		lane := item.Lane
		if s.cached[lane] == nil || p.clock.now-s.at[lane] > s.show.Cached.span() {
			s.cached[lane], s.at[lane] = figures, p.clock.now
		}
		figures = s.cached[lane]
	case "constant":
		for i := range figures {
			figures[i].left, figures[i].full = figures[i].limit, 0
		}
	case "rounded":
		for i := range figures {
			unit := 1000.0
			if figures[i].dim == RPM {
				unit = 10
			}
			figures[i].left = math.Round(figures[i].left/unit) * unit
		}
	case "other": // requests per day instead of per minute
		for i := range figures {
			if figures[i].dim == RPM {
				day := figures[i].limit * 24
				figures[i].limit, figures[i].left = day, day-float64(p.accepted[item.Lane])
				figures[i].full = time.Duration(float64(24*time.Hour) * float64(p.accepted[item.Lane]) / day)
			}
		}
	}
	s.set(p, r, figures)
}

// headerNames are the names of limit, remaining and reset of a dimension.
var headerNames = map[string]map[Dimension][3]string{
	"openai": {
		RPM: {"X-Ratelimit-Limit-Requests", "X-Ratelimit-Remaining-Requests", "X-Ratelimit-Reset-Requests"},
		TPM: {"X-Ratelimit-Limit-Tokens", "X-Ratelimit-Remaining-Tokens", "X-Ratelimit-Reset-Tokens"},
	},
	"anthropic": {
		RPM:  {"Anthropic-Ratelimit-Requests-Limit", "Anthropic-Ratelimit-Requests-Remaining", "Anthropic-Ratelimit-Requests-Reset"},
		TPM:  {"Anthropic-Ratelimit-Tokens-Limit", "Anthropic-Ratelimit-Tokens-Remaining", "Anthropic-Ratelimit-Tokens-Reset"},
		ITPM: {"Anthropic-Ratelimit-Input-Tokens-Limit", "Anthropic-Ratelimit-Input-Tokens-Remaining", "Anthropic-Ratelimit-Input-Tokens-Reset"},
		OTPM: {"Anthropic-Ratelimit-Output-Tokens-Limit", "Anthropic-Ratelimit-Output-Tokens-Remaining", "Anthropic-Ratelimit-Output-Tokens-Reset"},
	},
}

// form is how rate limiters state limit, remaining requests and reset: in three headers or, with a format, in the first one.
type form struct {
	names  [3]string
	format string // takes remaining requests, seconds until the reset, and the limit
	unix   int64  // units per second of a reset that counts from 1970; 0: seconds from now
	policy string // takes limit and period; empty: the period is not stated
}

// forms are the forms that Show.Headers can name: the older ones, and drafts 6 to 8 of the IETF.
var forms = map[string]form{
	"seconds": {names: [3]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}},
	"unix":    {names: [3]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}, unix: 1},
	"unixms":  {names: [3]string{"X-Ratelimit-Limit", "X-Ratelimit-Remaining", "X-Ratelimit-Reset"}, unix: 1000},
	"draft6":  {names: [3]string{"Ratelimit-Limit", "Ratelimit-Remaining", "Ratelimit-Reset"}, policy: "%d;w=%d"},
	"draft7":  {names: [3]string{"Ratelimit"}, format: "limit=%[3]d, remaining=%[1]d, reset=%[2]d", policy: "%d;w=%d"},
	"draft8":  {names: [3]string{"Ratelimit"}, format: `"default"; r=%[1]d; t=%[2]d`, policy: `"default"; q=%d; w=%d`},
}

// write adds the headers of a limit of requests. A window's reset is its end, for a sliding window the expiry of its oldest
// request. A bucket's reset is the time until it has room for a request, in whole seconds, as at Envoy.
func (o form) write(s *speaker, p *provider, r *Response, f figure) {
	now, limit := p.clock.now, int(f.law.size()+slack)
	reset, up := f.full, time.Second-1
	switch m := f.law.meter.(type) {
	case *fixed:
		reset = max(0, m.end-now)
	case *sliding:
		reset = after(m, now, min(f.left+1, m.size())) - now
	case *bucket:
		reset, up = after(m, now, min(1, m.size()))-now, 0
	}
	r.stated = max(r.stated, reset)
	seconds := int((reset + up) / time.Second)
	if o.policy != "" {
		r.Header["Ratelimit-Policy"] = []string{fmt.Sprintf(o.policy, limit, int(f.law.Burst))}
	}
	if o.format != "" {
		text := fmt.Sprintf(o.format, int(f.left), seconds, limit)
		r.Header[o.names[0]] = []string{text}
		return
	}
	text := strconv.Itoa(seconds)
	if o.unix > 0 { // rounded up or down
		at := s.clock(p, reset).UnixNano() + int64(p.w.Seed%2)*(1e9/o.unix-1)
		text = strconv.FormatInt(at/(1e9/o.unix), 10)
	}
	for i, value := range []string{strconv.Itoa(limit), strconv.Itoa(int(f.left)), text} {
		r.Header[o.names[i]] = []string{value}
	}
}

func (s *speaker) set(p *provider, r *Response, figures []figure) {
	dialect := cmp.Or(s.show.Dialect, "openai")
	form, limiter := forms[s.show.Headers]
	for _, f := range figures {
		if limiter && f.dim == RPM {
			form.write(s, p, r, f)
			continue
		}
		names, ok := headerNames[dialect][f.dim]
		if !ok {
			continue
		}
		r.Header[names[0]] = []string{strconv.Itoa(int(f.limit))}
		r.Header[names[1]] = []string{strconv.Itoa(int(f.left))}
		r.Header[names[2]] = []string{s.reset(p, dialect, f.full)}
		if r.stated = max(r.stated, f.full); s.show.Headers == "units" {
			r.stated = never // milliseconds may be read as seconds
		}
	}
}

// reset writes when a limit is whole again, in the dialect's unit or in another one.
func (s *speaker) reset(p *provider, dialect string, full time.Duration) string {
	if s.show.Headers == "units" {
		switch p.w.Seed % 3 {
		case 0:
			return strconv.Itoa(int(math.Ceil(full.Seconds())))
		case 1:
			return strconv.FormatInt(full.Milliseconds(), 10)
		default:
			return strconv.FormatInt(s.clock(p, full).Unix(), 10)
		}
	}
	if dialect == "anthropic" {
		return s.clock(p, full+time.Second-1).Format(time.RFC3339)
	}
	return full.Round(time.Millisecond).String()
}

// retryAfter adds Retry-After to a rejection.
func (s *speaker) retryAfter(p *provider, r *Response, v verdict) {
	if v.cause == stormed {
		if v.wait > 0 {
			r.Header["Retry-After"] = []string{strconv.Itoa(int(math.Ceil(v.wait.Seconds())))}
		}
		return
	}
	if v.status != 429 || v.large || v.words {
		return
	}
	value := ""
	switch s.show.RetryAfter {
	case "right":
		value = strconv.Itoa(int(math.Ceil(v.wait.Seconds())))
	case "ms":
		r.Header["Retry-After-Ms"] = []string{strconv.FormatInt(v.wait.Milliseconds()+1, 10)}
		value = strconv.Itoa(int(math.Ceil(v.wait.Seconds())))
	case "short":
		value = strconv.Itoa(int(v.wait.Seconds() * 0.3))
	case "constant":
		value = strconv.Itoa(int(s.show.Constant))
	case "date":
		value = s.clock(p, v.wait+time.Second-1).Format(http.TimeFormat)
	default:
		return
	}
	r.Header["Retry-After"] = []string{value}
}

// proxied writes a rejection as rate limiters in front of a provider do. It returns false if the world has none.
func (s *speaker) proxied(r *Response, v verdict) bool {
	if v.cause != limited {
		return false
	}
	switch s.show.Body {
	case "law": // slowapi
		r.Body = fmt.Appendf(nil, `{"error":"Rate limit exceeded: %.0f per %.0f second"}`, v.limit.size(), float64(v.limit.Burst))
	case "page": // nginx
		text := map[int]string{429: "429 Too Many Requests", 503: "503 Service Temporarily Unavailable"}[v.status]
		r.Header["Content-Type"] = []string{"text/html"}
		r.Body = []byte("<html>\r\n<head><title>" + text + "</title></head>\r\n<body>\r\n<center><h1>" + text +
			"</h1></center>\r\n<hr><center>nginx</center>\r\n</body>\r\n</html>\r\n")
	case "overflow": // Envoy
		r.Header["Content-Type"], r.Header["X-Envoy-Overloaded"] = []string{"text/plain"}, []string{"true"}
		r.Body = []byte("upstream connect error or disconnect/reset before headers. reset reason: overflow")
	default:
		return false
	}
	return true
}

// success writes the body of a 200.
func (s *speaker) success(item *Item) []byte {
	in, out, all := strconv.Itoa(item.input), strconv.Itoa(item.output), strconv.Itoa(item.input+item.output)
	switch s.show.Dialect {
	case "anthropic":
		return []byte(`{"id":"msg_1","type":"message","role":"assistant","model":"` + item.LaneName() + `","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":` + in + `,"output_tokens":` + out + `}}`)
	case "gemini":
		return []byte(`{"candidates":[{"content":{"parts":[{"text":"ok"}],"role":"model"},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":` + in + `,"candidatesTokenCount":` + out + `,"totalTokenCount":` + all + `}}`)
	case "bare":
		return []byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`)
	}
	return []byte(`{"id":"chatcmpl-1","object":"chat.completion","model":"` + item.LaneName() + `","choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}],"usage":{"prompt_tokens":` + in + `,"completion_tokens":` + out + `,"total_tokens":` + all + `}}`)
}

// failure writes the body of any other response.
func (s *speaker) failure(item *Item, v verdict) []byte {
	kind, text := "rate_limit_error", "Rate limited. Please try again later."
	switch {
	case v.status == 400:
		kind, text = "invalid_request_error", fmt.Sprintf("prompt is too long: %d tokens > 200000 maximum", item.input)
	case v.status == 500:
		kind, text = "api_error", "The server had an error while processing your request."
	case v.status != 429:
		kind, text = "overloaded_error", "Overloaded"
	case v.words:
		text = "Sorry, that is more than we can do for you just now."
	case v.large:
		text = fmt.Sprintf("Request too large for %s in organization org-1 on %s: Limit %.0f, Requested %d. The input or output tokens must be reduced in order to run successfully.",
			item.LaneName(), perMinute[v.limit.Dim], v.limit.N, item.input)
	case v.limit != nil:
		return s.limited(item, v)
	}
	return s.envelope(v.status, kind, text, "")
}

// perMinute is how bodies name the limits.
var perMinute = map[Dimension]string{
	RPM: "requests per min (RPM)", TPM: "tokens per min (TPM)", ITPM: "input tokens per min (ITPM)",
	OTPM: "output tokens per min (OTPM)", RPD: "requests per day (RPD)",
}

// anthropicNames are the same in the words of that dialect.
var anthropicNames = map[Dimension]string{
	RPM: "requests per minute", TPM: "tokens per minute", ITPM: "input tokens per minute",
	OTPM: "output tokens per minute", RPD: "requests per day",
}

// limited writes the body of a 429 about a limit.
func (s *speaker) limited(item *Item, v verdict) []byte {
	l, dim := v.limit, v.limit.Dim
	if s.show.Body == "wrong" {
		dim = map[Dimension]Dimension{RPM: TPM}[dim]
		dim = cmp.Or(dim, RPM)
	}
	wait := (v.wait + time.Millisecond - 1).Truncate(time.Millisecond)
	used := l.N - v.left
	if s.show.Body == "contradictory" {
		used = l.size() - v.left
	}
	kind := "tokens"
	if dim == RPM || dim == RPD {
		kind = "requests"
	}
	text, gemini := "", ""
	switch {
	case s.show.Body == "":
		if s.show.Dialect == "gemini" {
			return s.envelope(429, "", "Resource has been exhausted (e.g. check quota).", "")
		}
		return s.envelope(429, "rate_limit_error", "Rate limited. Please try again later.", "")
	case dim == Concurrency:
		return s.envelope(429, "rate_limit_error", "Number of concurrent requests has exceeded your rate limit. Please try again later.", "")
	case s.show.Body == "wait":
		text = fmt.Sprintf("Rate limit is exceeded. Try again in %d seconds.", int(math.Ceil(v.wait.Seconds())))
	case s.show.Dialect == "anthropic":
		text = fmt.Sprintf("This request would exceed your organization's rate limit of %s %s (org: org-1, model: %s). For details, refer to: https://docs.claude.com/en/api/rate-limits.",
			prose.Group(l.N), anthropicNames[dim], item.LaneName())
		kind = "rate_limit_error"
	case s.show.Dialect == "gemini":
		text = fmt.Sprintf("You exceeded your current quota, please check your plan and billing details. \n* Quota exceeded for metric: generativelanguage.googleapis.com/generate_%s, limit: %.0f, model: %s\nPlease retry in %.9fs.", kind, l.N, item.LaneName(), v.wait.Seconds())
		gemini = s.violation(dim, l.N, v.wait)
	case s.show.Body == "named" || s.show.Body == "wrong":
		text = fmt.Sprintf("Rate limit reached for %s in organization org-1 on %s.", item.LaneName(), perMinute[dim])
	default:
		text = fmt.Sprintf("Rate limit reached for %s in organization org-1 on %s: Limit %.0f, Used %.0f, Requested %.0f. Please try again in %s. Visit https://platform.openai.com/account/rate-limits to learn more.",
			item.LaneName(), perMinute[dim], l.N, max(0, math.Ceil(used)), requested(dim, item, v), wait)
	}
	return s.envelope(429, kind, text, gemini)
}

// requested returns the cost that a rejection states.
func requested(dim Dimension, item *Item, v verdict) float64 {
	switch {
	case dim == v.limit.Dim:
		return v.cost
	case dim == RPM:
		return 1
	}
	return float64(item.input)
}

func (s *speaker) violation(dim Dimension, n float64, wait time.Duration) string {
	metric := "Tokens"
	if dim == RPM || dim == RPD {
		metric = "Requests"
	}
	per := "Minute"
	if dim == RPD {
		per = "Day"
	}
	return fmt.Sprintf(`,"details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaId":"Generate%sPer%sPerProjectPerModel","quotaValue":"%.0f"}]},{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"%.3fs"}]`,
		metric, per, n, wait.Seconds())
}

// envelope wraps the text of an error as the dialect does.
func (s *speaker) envelope(status int, kind, text, details string) []byte {
	quoted := strconv.Quote(text)
	switch s.show.Dialect {
	case "anthropic":
		return []byte(`{"type":"error","error":{"type":"` + kind + `","message":` + quoted + `},"request_id":"req_1"}`)
	case "gemini":
		words := map[int]string{400: "INVALID_ARGUMENT", 429: "RESOURCE_EXHAUSTED", 500: "INTERNAL"}
		return []byte(`{"error":{"code":` + strconv.Itoa(status) + `,"message":` + quoted + `,"status":"` + cmp.Or(words[status], "UNAVAILABLE") + `"` + details + `}}`)
	case "bare":
		return []byte(http.StatusText(status))
	}
	code := "null"
	if status == 429 {
		code = `"rate_limit_exceeded"`
	}
	return []byte(`{"error":{"message":` + quoted + `,"type":"` + kind + `","param":null,"code":` + code + `}}`)
}
