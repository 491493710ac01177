package provider

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// fault is an error as its structure states it, whatever the shape it came in. Only what stands in an error's place is
// in it: never a model's answer, nor an echo of the request.
type fault struct {
	status     int           // the HTTP status that the error itself names, the innermost; 0 when it names none
	marks      []mark        // what names the error: types, codes, reasons
	messages   []string      // what it says, the innermost first
	low        []string      // the same in normal form
	resetsAt   time.Time     // an instant that a member states
	resetsIn   time.Duration // a wait that a member states
	header     http.Header   // what the error quotes of another answer's head
	structured bool          // there was an object that speaks of an error
	html       bool          // it is a page, of a proxy most likely
	windowed   bool          // its words state an instant
	fromText   bool          // it was found in a text, not in an error's place
	api        bool          // an object in that text is an error's
}

const (
	maxFault       = 64 << 10 // how much of an error is read
	maxNested      = 12       // errors within the text of errors, and members within members around them
	maxMessages    = 8
	longestMessage = 8 << 10 // how much of one message is read
	maxMarks       = 64
)

// decode reads an error's body: an object in one of the forms that APIs use, text that quotes one, or text alone.
func decode(body []byte) *fault {
	f := &fault{}
	s := strings.TrimSpace(string(body[:min(len(body), maxFault)]))
	if s == "" {
		return f
	}
	if status, h, rest, ok := httpHead(s); ok {
		f.body(rest)
		f.header = f.quotedHeaders(h)
		if f.status == 0 && status >= 400 {
			f.status = status
		}
		return f
	}
	f.body(s)
	return f
}

// body reads what stands behind a head.
func (f *fault) body(s string) {
	if tagged(s) {
		f.page(s)
		return
	}
	if data, ok := sseError(s); ok {
		s = data
	}
	f.text(s, 0)
}

// sseError returns the data of the event of a stream that is an error.
func sseError(s string) (string, bool) {
	if !strings.HasPrefix(s, "event:") && !strings.HasPrefix(s, "data:") && !strings.HasPrefix(s, ":") {
		return "", false
	}
	at := 0
	if i := strings.Index(s, "event: error"); i >= 0 {
		at = i
	}
	for line := range strings.Lines(s[at:]) {
		data, ok := strings.CutPrefix(strings.TrimSpace(line), "data:")
		if v, isObject := literal(strings.TrimSpace(data)); ok && isObject && errorShaped(v) {
			return strings.TrimSpace(data), true
		}
	}
	return "", false
}

// text reads a text in an error's place: it is the message, unless it quotes an object that holds one.
func (f *fault) text(s string, nested int) {
	s = strings.TrimSpace(s)
	if s == "" || nested > maxNested {
		return
	}
	if s[0] == '"' {
		var inner string
		if json.Unmarshal([]byte(s), &inner) == nil && inner != s {
			f.text(inner, nested+1)
			return
		}
	}
	if s[0] == '"' && strings.Contains(s, `":`) {
		s = "{" + s // members whose braces were left out
	}
	at := strings.IndexAny(s, "{[")
	for n := 0; at >= 0 && n < 4; n++ {
		begin := mapStart(s, at)
		v, ok := literal(s[begin:])
		if ok && speaksOfError(v) {
			if begin > 0 {
				f.prefix(s[:begin])
			}
			f.walk(v, "", nested)
			return
		}
		next := strings.IndexAny(s[at+1:], "{[")
		if next < 0 {
			break
		}
		at += 1 + next
	}
	f.prefix(s)
	f.message(s)
}

// prefix takes the status from words like "Error code: 429 - " before a quoted error.
func (f *fault) prefix(s string) {
	if n := statusIn(s); n != 0 {
		f.status = n
	}
}

// message adds a text to what the error says, the innermost first.
func (f *fault) message(s string) {
	s = strings.Join(strings.Fields(clip(s, longestMessage)), " ")
	if s == "" || len(f.messages) >= maxMessages || slices.Contains(f.messages, s) {
		return
	}
	eachWord(s, func(at, end int) bool {
		switch w := s[at:end]; {
		case isException(w) && happened(s, at, end):
			f.mark("exception", w)
		case errno(w):
			f.mark("code", w)
		}
		return true
	})
	f.messages = append(f.messages, s)
	f.low = append(f.low, normalise(s))
}

// speaksOfError reports whether an object has a member that errors have.
func speaksOfError(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			switch strings.ToLower(k) {
			case "error", "errors", "message", "code", "type", "detail", "fault", "msg", "status", "__type",
				"error_message", "errormessage", "statuscode", "base_resp", "limit_reached", "rate_limit", "response", "error_description", "promptfeedback":
				return true
			}
		}
	case []any:
		return len(v) > 0 && speaksOfError(v[0])
	}
	return false
}

// walk reads a member of an error and all in it. Members that quote a request or an answer are not read.
func (f *fault) walk(v any, key string, nested int) {
	if nested > literalDepth {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		f.structured = true
		// In order of their names, so that the same error always gives the same reason.
		keys := make([]string, 0, len(v))
		for k := range v {
			keys = append(keys, k)
		}
		slices.SortFunc(keys, func(a, b string) int {
			if names := isStatusName(a); names != isStatusName(b) { // so that a status within a message has the last word
				return map[bool]int{true: -1, false: 1}[names]
			}
			return strings.Compare(a, b)
		})
		for _, k := range keys {
			f.member(strings.ToLower(k), v[k], nested)
		}
	case []any:
		for i, item := range v {
			if i == maxMessages {
				return
			}
			f.walk(item, key, nested+1)
		}
	case string:
		f.member(key, v, nested)
	}
}

// isStatusName reports whether a member of that name may be the status.
func isStatusName(key string) bool {
	switch strings.ToLower(key) {
	case "code", "status", "status_code", "statuscode", "raw_status_code", "http_status", "error_code", "errorcode":
		return true
	}
	return false
}

// member reads one member.
func (f *fault) member(key string, v any, nested int) {
	switch key {
	case "input", "ctx", "body", "request", "failed_generation", "prompt", "content", "choices", "messages", "output",
		"usage", "tools", "instructions", "loc", "id", "request_id", "model", "user", "metadata.user",
		"links": // Google's Help: titles of pages, and nothing about this error
		return
	case "message", "detail", "msg", "error_message", "errormessage", "error_description", "faultstring", "raw",
		"description", "title":
		if s, ok := v.(string); ok {
			f.text(s, nested+1)
			return
		}
	case "error", "fault", "reasons", "details":
		if s, ok := v.(string); ok {
			if strings.ContainsAny(s, " {") {
				f.text(s, nested+1)
			} else {
				f.mark(key, s)
			}
			return
		}
	case "code", "status", "status_code", "statuscode", "raw_status_code", "http_status", "error_code", "errorcode":
		if n := statusOf(v); n != 0 {
			f.status = n
			return
		}
		f.label(key, v)
		return
	case "type", "reason", "errortype", "codex_error_info", "blockreason", "block_reason", "error_type", "__type", "limit_source", "quotaid", "name",
		"limit_type", "category", "error_name":
		f.label(key, v)
		return
	case "headers":
		f.quote(v)
		return
	case "base_resp":
		m, _ := v.(map[string]any)
		f.label("base_resp", m["status_code"])
	case "flagged_input", "limit_reached":
		if v != nil && v != false {
			f.mark(key, key)
		}
		return
	case "resets_at", "reset_at", "resetsat", "resets_in_seconds", "retry_after", "retry_after_seconds",
		"retry_after_ms", "retrydelay", "retry_delay", "reset_after", "estimated_time", "retryafter", "retry_in", "retryafterseconds":
		f.reset(key, v)
		return
	}
	switch v := v.(type) {
	case map[string]any, []any:
		f.walk(v, key, nested+1)
	case string:
		if strings.HasSuffix(key, "message") || strings.HasSuffix(key, "msg") || strings.HasSuffix(key, "error") && strings.Contains(v, " ") {
			f.text(v, nested+1)
		} else if strings.HasSuffix(key, "code") {
			f.label(key, v)
		}
	}
}

// reset takes a member that says when to come back.
func (f *fault) reset(key string, v any) {
	s, ok := written(v)
	if !ok {
		return
	}
	n, err := strconv.ParseFloat(s, 64)
	switch {
	case strings.HasSuffix(key, "_ms"):
		f.resetsIn = seconds(s, time.Millisecond)
	case err == nil && n >= 1e12 && n < 1e15:
		f.resetsAt = time.UnixMilli(int64(n))
	case err == nil && n >= 1e9 && n < 1e12:
		f.resetsAt = time.Unix(int64(n), 0)
	case len(s) > 10 && s[4] == '-':
		if at, err := time.Parse(time.RFC3339, s); err == nil {
			f.resetsAt = at
		}
	default:
		if d, _ := span(s); d > 0 {
			f.resetsIn = d
		}
	}
}

// written is a number, or a string, as it is written.
func written(v any) (s string, ok bool) {
	switch v := v.(type) {
	case json.Number:
		return v.String(), true
	case string:
		return v, true
	}
	return "", false
}

// statusOf reads a member that is an HTTP status of an error.
func statusOf(v any) int {
	s, _ := written(v)
	n, err := strconv.Atoi(s)
	if err != nil || n < 400 || n > 599 {
		return 0
	}
	return n
}

// statusIn finds the status that a text before an error names: "429 {", "Error code: 429 - ", "status code 429",
// "(status=400)", "ChatGPT error 503:".
func statusIn(s string) int {
	s = strings.ToLower(strings.TrimSpace(clip(s, 300)))
	if n := leadingStatus(s); n != 0 {
		return n
	}
	for _, word := range []string{"error code:", "status code", "status:", "status=", "status", "http", "error"} {
		rest := s
		for {
			_, after, ok := strings.Cut(rest, word)
			if !ok {
				break
			}
			rest = after
			if n := leadingStatus(strings.TrimLeft(after, " :=(")); n != 0 {
				return n
			}
		}
	}
	return 0
}

// leadingStatus reads a status from the beginning of a text.
func leadingStatus(s string) int {
	if len(s) < 3 || len(s) > 3 && (s[3] >= '0' && s[3] <= '9' || s[3]|0x20 >= 'a' && s[3]|0x20 <= 'z') {
		return 0
	}
	return statusOf(s[:3])
}

// wait returns how long the error itself asks to wait: a member's word, a sentence's, or what its numbers come to.
func (f *fault) wait(now time.Time) time.Duration {
	said := f.saidWait()
	switch {
	case f.resetsIn > 0 && said > f.resetsIn && said < f.resetsIn+time.Second:
		return said // Gemini's retryDelay is its own sentence cut down to the second
	case f.resetsIn > 0:
		return f.resetsIn
	case !f.resetsAt.IsZero():
		if d := positive(f.resetsAt.Sub(now)); d > 0 {
			return d
		}
	}
	if said > 0 {
		return said
	}
	for _, m := range f.low {
		if d := parseFigures(m).wait(); d > 0 {
			return d
		}
	}
	return 0
}

// told reports whether the provider itself asks to wait. What a client waits before it tries again says nothing of why.
func (f *fault) told(now time.Time) bool {
	said := func(low string) bool { return toldWait(low) > 0 || parseFigures(low).wait() > 0 }
	return f.resetsIn > 0 || f.resetsAt.After(now) || slices.ContainsFunc(f.low, said)
}

// saidWait returns the wait that a sentence states.
func (f *fault) saidWait() time.Duration {
	for _, m := range f.low {
		if d := waitIn(m); d > 0 {
			return d
		}
	}
	return 0
}

// said returns the first message that one of the patterns matches.
func (f *fault) said(patterns []string) (string, bool) {
	for i, low := range f.low {
		for _, pattern := range patterns {
			if matches(pattern, low) {
				return f.messages[i], true
			}
		}
	}
	return "", false
}
