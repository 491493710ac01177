package provider

import (
	"net/http"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
)

// ClassifyText says what a text in an error's channel means: what an SDK threw, what a command wrote to its standard
// error, a line of a log, an answer that somebody pasted. status is the HTTP status if it is known, else 0.
//
// A text is OK unless it speaks as an error does: by the name of an exception, an error's prefix, a status beside its
// phrase, an error object, or a sentence that providers and agents are known to refuse with. What only talks about
// errors is OK, such as a commit's title, a manual, code, or a display of usage. Terminals break and decorate what
// they show; where the plain reading says nothing definite, the text is read again with its broken lines joined.
func ClassifyText(p Provider, status int, text string, now time.Time) Verdict {
	s := unadorned(ends(text))
	v, muted := p.hear(status, s, now)
	if !v.vague() || muted && v.Kind == sluice.OK {
		return v // lines that are no error's words must not become some by being joined
	}
	if joined := tight(s); joined != s {
		if w, _ := p.hear(status, joined, now); !w.vague() {
			return w
		}
	}
	return v
}

// maxLines is how many lines of a text are read.
const maxLines = 600

// ends returns a text's beginning and end if it is too long to be read whole: a log's error stands in one of them.
func ends(s string) string {
	if len(s) > maxFault {
		s = s[:maxFault/2] + "\n" + s[len(s)-maxFault/2:]
	}
	if strings.Count(s, "\n") <= maxLines {
		return s
	}
	lines := strings.SplitAfter(s, "\n")
	return strings.Join(lines[:maxLines/2], "") + strings.Join(lines[len(lines)-maxLines/2:], "")
}

// vague reports whether a verdict rests on nothing that the error says of itself.
func (v Verdict) vague() bool {
	return v.Kind == sluice.OK || v.Why.Field == "" || v.Why.Field == "status"
}

// hear classifies one reading of a text. muted says that lines of it were passed over.
func (p Provider) hear(status int, s string, now time.Time) (v Verdict, muted bool) {
	l := listener{f: &fault{heard: true}}
	l.listen(strings.TrimSpace(s))
	if status < 400 {
		status = 0
	}
	switch {
	case l.spoke:
		return p.verdict(l.f, status, l.header, now), l.muted
	case l.good:
		return Verdict{Why: Reason{Rule: "good answer"}}, l.muted
	case status == 0:
		return Verdict{Why: Reason{Rule: noError}}, l.muted
	}
	f := decode([]byte(s))
	f.heard = true
	return p.verdict(f, status, l.header, now), l.muted
}

// listener finds in a text what speaks as an error.
type listener struct {
	f      *fault
	header http.Header
	spoke  bool // an error was heard
	good   bool // it is a good answer, whatever is in it
	muted  bool // lines were passed over that are none of an error's words
	read   int  // bytes that were looked through for objects
	said   int  // utterances
}

const (
	mostRead = 4 * maxFault // so that a text of nothing but brackets is not read from each of them
	mostSaid = 300
)

// listen reads a whole text.
func (l *listener) listen(s string) {
	if s == "" {
		return
	}
	if status, h, body, ok := httpHead(s); ok {
		l.answer(status, h, body)
		return
	}
	if s[0] == '<' || strings.Contains(clip(asciiLower(s), 2000), "<html") {
		if l.f.page(s); l.f.html {
			l.spoke = l.f.status != 0
			return
		}
	}
	if s[0] == '{' {
		if sum := summarize(NoEndpoint, []byte(s)); sum.valid && sum.hasBody && !sum.hasError {
			l.good = true
			return
		}
	}
	if s[0] == '"' && strings.Contains(s, `\"`) {
		l.f.text(s, 0) // an object quoted as a text
		if l.spoke = len(l.f.marks) > 0; l.spoke {
			return
		}
	}
	l.lines(s)
}

// answer reads an HTTP answer that was pasted as text.
func (l *listener) answer(status int, h http.Header, body string) {
	if _, stream := sseError(body); status/100 == 2 && !stream {
		sum := summarize(NoEndpoint, []byte(body))
		if l.good = !sum.failed() && (sum.hasBody || !errorBody([]byte(body))); l.good {
			return
		}
	}
	l.header, l.spoke = h, true
	*l.f = *decode([]byte(body))
	l.f.heard = true
	if l.f.status == 0 && status >= 400 {
		l.f.status = status
	}
}

// httpHead splits a text that begins with the status line of an HTTP answer.
func httpHead(s string) (status int, h http.Header, body string, ok bool) {
	for n := 0; n < 40 && requestLine(s); n++ {
		_, s, _ = strings.Cut(s, "\n")
		s = strings.TrimLeft(s, " \n")
	}
	s = strings.TrimPrefix(s, "< ")
	if !strings.HasPrefix(s, "HTTP/") {
		return 0, nil, s, false
	}
	line, rest, _ := strings.Cut(s, "\n")
	_, after, _ := strings.Cut(line, " ")
	if len(after) < 3 || !isDigit(after[0]) || !isDigit(after[1]) || !isDigit(after[2]) {
		return 0, nil, s, false
	}
	status = int(after[0]-'0')*100 + int(after[1]-'0')*10 + int(after[2]-'0')
	h = http.Header{}
	for rest != "" {
		line, body, _ := strings.Cut(rest, "\n")
		line = strings.TrimSpace(strings.TrimPrefix(line, "< "))
		k, v, named := strings.Cut(line, ":")
		if line == "" || !named || strings.ContainsAny(k, " {\"'") {
			if line == "" {
				rest = body
			}
			break
		}
		h.Add(strings.TrimSpace(k), strings.TrimSpace(v))
		rest = body
	}
	return status, h, strings.TrimSpace(rest), true
}

// Head returns the status and the headers of an HTTP answer that was pasted as text; false if the text begins otherwise.
func Head(text string) (status int, h http.Header, ok bool) {
	status, h, _, ok = httpHead(strings.TrimSpace(unadorned(ends(text))))
	return status, h, ok
}

// requestLine reports whether s begins with a line of the request that an answer was to, as clients print it.
func requestLine(s string) bool {
	return startsWithAny(s, "> ", "* ", ">\n", "*\n", "POST http", "POST /", "GET http", "GET /")
}

// lines reads a text line by line. An error goes on over the lines that follow it until a blank one, or until
// something else begins.
func (l *listener) lines(s string) {
	diff := strings.Contains(s, "\n@@ ") || strings.Contains(s, "diff --git ")
	open := false // the line before spoke
	skip := false // the line before announced a line of code
	tool := false // what an agent's tool printed
	var said strings.Builder
	flush := func() {
		l.utter(said.String())
		said.Reset()
		open = false
	}
	for i := 0; i < len(s); {
		end := strings.IndexByte(s[i:], '\n')
		if end < 0 {
			end = len(s) - i
		}
		line := strings.TrimSpace(s[i : i+end])
		next := i + end + 1
		switch {
		case skip:
			skip = false
		case line == "":
			flush()
			tool = false
		case toolCall(line):
			flush()
			tool, l.muted = true, true
		case tool && !strings.HasPrefix(line, "API Error"):
		case strings.HasPrefix(line, "File \""):
			flush()
			skip = true
		case noise(line, diff):
			flush()
			l.muted = true
		default:
			if n := l.object(s, i, i+end); n > 0 {
				flush()
				next = n
				break
			}
			if at, ok := voiceIn(line); ok {
				flush()
				l.lead(line[:at])
				said.WriteString(line[at:])
				open = true
			} else if open && said.Len() < maxMessage {
				said.WriteByte(' ')
				said.WriteString(line)
			}
		}
		i = next
	}
	flush()
}

// object reads the error object that begins on the line s[i:end], and returns where it ends; 0 when there is none.
// What stands before it on the line speaks with it.
func (l *listener) object(s string, i, end int) int {
	for n := 0; n < 4; n++ {
		at := strings.IndexAny(s[i:end], "{[")
		if at < 0 {
			return 0
		}
		at += i
		if l.read > mostRead {
			return 0
		}
		v, found, size := literalIn(s[at:])
		if l.read += size; !found {
			size = 0
		}
		if m, ok := v.(map[string]any); ok && m["is_error"] == true {
			l.result(m)
			return at + size
		}
		if size > 0 && errorShaped(v) {
			before := lineBefore(s, at)
			if _, voiced := voiceIn(before + " {"); !voiced && hedged(before) {
				return at + size
			}
			l.names(before)
			l.f.prefix(before)
			l.f.walk(v, "", 0)
			l.words(before)
			m, _ := v.(map[string]any)
			_, plain := m["error"].(string)
			l.spoke, l.f.api = true, l.f.api || len(m) != 1 || m["error"] != nil && !plain
			rest := s[at+size : at+size+firstLine(s[at+size:])]
			if d := waitIn(normalise(rest)); d > 0 && l.f.resetsIn == 0 {
				l.f.message(strings.Trim(rest, " )·-,."))
			}
			return at + size + len(rest)
		}
		if size > 0 && isObject(v) && (at == i || strings.HasSuffix(strings.TrimSpace(s[i:at]), "data:")) {
			return at + size // no error: an answer, an event, a display
		}
		i = at + 1
	}
	return 0
}

// result reads the event by which an agent ends: its result is the error's text if it says that it is one.
func (l *listener) result(m map[string]any) {
	if s, ok := m["result"].(string); ok {
		inner := listener{f: l.f}
		inner.lines(unadorned(s))
		l.spoke = l.spoke || inner.spoke
	}
}

// lineBefore returns the part of a line that ends at i.
func lineBefore(s string, i int) string {
	return strings.TrimSpace(s[strings.LastIndexByte(s[:i], '\n')+1 : i])
}

// firstLine returns the length of the first line of s.
func firstLine(s string) int {
	if n := strings.IndexByte(s, '\n'); n >= 0 {
		return n
	}
	return len(s)
}

// utter takes what a line and those after it say as the words of an error.
func (l *listener) utter(s string) {
	if l.said++; s == "" || l.said > mostSaid {
		return
	}
	l.spoke = true
	l.names(s)
	l.f.prefix(s)
	l.words(s)
	l.f.message(s)
}

// words takes what a text says behind the prefixes that introduce it.
func (l *listener) words(s string) {
	said, status := afterPrefixes(s)
	if l.f.status == 0 {
		l.f.status = status
	}
	l.f.message(said)
}

// lead takes the status from what stands before an error on its line.
func (l *listener) lead(s string) {
	if n := statusIn(s); n != 0 && l.f.status == 0 {
		l.f.status = n
	}
}

// names takes the names of exceptions and codes that words of an error bear.
func (l *listener) names(s string) {
	eachWord(s, func(at, end int) bool {
		switch w := s[at:end]; {
		case isException(w):
			l.f.mark("exception", w)
		case isCode(w), errno(w), strings.HasSuffix(s[:at], "code = "): // of gRPC
			l.f.mark("code", w)
		}
		return true
	})
}

// errorShaped reports whether an object is an error's own: stricter than speaksOfError, which is asked about what
// stands in an error's place already.
func errorShaped(v any) bool {
	switch v := v.(type) {
	case []any:
		return len(v) > 0 && errorShaped(v[0])
	case map[string]any:
		for k, member := range v {
			if errorMember(asciiLower(k), member) {
				return true
			}
		}
		message, worded := first(v, "message", "detail", "msg", "errorMessage")
		_, isText := message.(string)
		if code, coded := first(v, "code", "status", "statusCode", "status_code", "error_code"); worded && isText && coded {
			return statusOf(code) != 0 || named(code)
		}
		t, _ := v["type"].(string)
		return worded && isText && (len(v) == 1 || isCode(t))
	}
	return false
}

// named reports whether a code is a name.
func named(code any) bool {
	s, ok := code.(string)
	return ok && len(s) > 2 && (isLetter(s[0]) || isDigit(s[0]))
}

// errorMember reports whether a member makes an error of its object.
func errorMember(key string, v any) bool {
	s, _ := v.(string)
	switch v := v.(type) {
	case map[string]any:
		if key == "promptfeedback" { // of Gemini, in place of an answer
			_, blocked := first(v, "blockReason", "block_reason")
			return blocked
		}
		return len(v) > 0 && (strings.Contains(key, "error") || (key == "cause" || key == "data" || key == "response") && errorShaped(v))
	case []any:
		return key == "errors" && len(v) > 0
	case bool:
		return v && (key == "error" || key == "iserror" || key == "is_error")
	}
	switch key {
	case "type", "object", "event", "level", "severity", "status":
		low := asciiLower(s)
		return strings.HasSuffix(low, "error") || low == "response.failed" || low == "fatal"
	case "code", "errno":
		return errno(s)
	case "name":
		return isException(s)
	case "__type", "$fault":
		return s != ""
	}
	return s != "" && strings.Contains(key, "error") && !strings.EqualFold(s, "none") && !strings.EqualFold(s, "null")
}

// isObject reports whether a value is an object or a list of them. Text in brackets reads as a list of words.
func isObject(v any) bool {
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
	}
	_, ok := v.(map[string]any)
	return ok
}

// first returns the first member that an object has.
func first(m map[string]any, names ...string) (any, bool) {
	for _, n := range names {
		if v, ok := m[n]; ok && v != nil {
			return v, true
		}
	}
	return nil, false
}

// page reads the title of a page: proxies put the status there.
func (f *fault) page(s string) {
	low := asciiLower(s)
	i := strings.Index(low, "<html")
	if i < 0 {
		i = strings.Index(low, "<!doctype")
	}
	if i < 0 && s[0] != '<' {
		return
	}
	f.html = true
	f.prefix(s[:max(i, 0)])
	for _, tag := range [...]string{"title", "h1"} {
		text, ok := element(s, low, tag)
		if !ok {
			continue
		}
		f.message(text)
		eachWord(text, func(at, end int) bool {
			if f.status == 0 {
				f.status = statusOf(text[at:end])
			}
			return f.status == 0
		})
	}
}

// element returns the text of the first element of a name. low is s in lower case.
func element(s, low, tag string) (string, bool) {
	at := strings.Index(low, "<"+tag)
	if at < 0 {
		return "", false
	}
	open := strings.IndexByte(low[at:], '>')
	if open < 0 {
		return "", false
	}
	at += open + 1
	end := strings.Index(low[at:], "<")
	if end < 0 {
		return "", false
	}
	return strings.TrimSpace(s[at : at+end]), true
}
