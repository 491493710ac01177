package errtext

import (
	"encoding/json"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/prose"
)

// Error is what an error says of itself, whatever the form it came in. Only what stands in an error's place is in it: never a
// model's answer, nor an echo of the request.
type Error struct {
	Status   int           // the HTTP status that the error itself names, the innermost; 0: none
	Worded   bool          // that status stands in a sentence
	Messages []string      // its sentences, the innermost first
	Marks    []Mark        // what names it: types, codes, reasons, exceptions
	Header   http.Header   // that it quotes of another response
	Fields   []string      // of the request, that its members name
	Page     bool          // it is an HTML page
	ResetsAt time.Time     // an instant that a member states
	ResetsIn time.Duration // a wait that a member states
	known    bool          // it has the form of an error, though no row of the table may know it
	inText   bool          // it was found in a text, not in an error's place
	figured  *figured      // what Figures returns
	words    [][]word      // of the messages, without quotations of the request
	echo     *Echo
	said     int // depth within sentences of what is being read
}

// Mark is one name that an error bears.
type Mark struct {
	Field string
	Value string // as it stands there
	Name  string // its letters and digits, in lower case
	Said  bool   // it stands in a sentence, which may quote the request
}

const (
	MaxRead     = 64 << 10 // how much of an error is read
	maxNested   = 12       // errors within the text of errors
	maxMessages = 8
	maxMessage  = 8 << 10
	maxMarks    = 64
)

// Read reads an error's body: an object in one of the forms that APIs use, text that quotes one, or text alone. sent is the
// request, whose quotations are not evidence; nil if it is unknown.
func Read(body []byte, sent *Echo) *Error {
	e := &Error{echo: sent}
	s := strings.TrimSpace(string(body[:min(len(body), MaxRead)]))
	if Tagged(s) {
		e.page(s)
		return e
	}
	if data := eventError(s); data != "" {
		s = data
	}
	e.text(s, 0)
	return e
}

// IsError reports whether a body without any answer in it has the form of an error.
func IsError(body []byte) bool {
	s := string(body[:min(len(body), MaxRead)])
	v, ok, _ := Literal(s)
	return ok && shaped(v) || eventError(s) != ""
}

// Headers returns the headers of a response and, where it has none of that name, those that its error quotes.
func (e *Error) Headers(h http.Header) http.Header {
	if len(e.Header) > 0 {
		all := e.Header.Clone()
		for k, v := range h {
			all[http.CanonicalHeaderKey(k)] = v
		}
		h = all
	}
	for _, k := range [...]string{"X-Amzn-Errortype", "X-Error-Code", "X-Error-Type"} {
		e.mark(strings.ToLower(k), h.Get(k))
	}
	return h
}

// eventError returns the data of the event of a stream that is an error; "" if s is no such stream.
func eventError(s string) string {
	if !strings.HasPrefix(s, "event:") && !strings.HasPrefix(s, "data:") && !strings.HasPrefix(s, ":") {
		return ""
	}
	for line := range strings.Lines(s[max(0, strings.Index(s, "event: error")):]) {
		if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data:"); ok {
			if v, isObject, _ := Literal(strings.TrimSpace(data)); isObject && shaped(v) {
				return strings.TrimSpace(data)
			}
		}
	}
	return ""
}

// text reads a text in an error's place: it is the message, unless it quotes an object that holds one.
func (e *Error) text(s string, nested int) {
	s = strings.TrimSpace(s)
	if s == "" || nested > maxNested {
		return
	}
	if s[0] == '"' {
		var inner string
		if json.Unmarshal([]byte(s), &inner) == nil && inner != s {
			e.text(inner, nested+1)
			return
		}
	}
	whole := s
	if s = braced(s); s[0] != '{' && s[0] != '[' {
		s = e.echo.without(s)
	}
	at := strings.IndexAny(s, "{[")
	for n := 0; at >= 0 && n < 4; n++ {
		if v, ok, _ := Literal(s[at:]); ok && speaks(v) {
			if at > 0 {
				e.prefix(s[:at])
				e.said++
				defer func() { e.said-- }()
			}
			e.walk(v, "", nested)
			return
		}
		next := strings.IndexAny(s[at+1:], "{[")
		if next < 0 {
			break
		}
		at += 1 + next
	}
	e.prefix(s)
	e.message(whole)
}

// braced returns members whose braces were left out with one in front.
func braced(s string) string {
	if s[0] == '"' && strings.Contains(s[:min(len(s), 80)], `":`) {
		return "{" + s
	}
	return s
}

// message adds a text to what the error says.
func (e *Error) message(s string) {
	s = strings.Join(strings.Fields(prose.Clip(s, maxMessage)), " ")
	if s == "" || len(e.Messages) >= maxMessages || slices.Contains(e.Messages, s) {
		return
	}
	read := e.echo.without(s)
	e.said++
	for _, m := range exception.FindAllStringSubmatch(read, maxMarks) {
		e.mark("exception", m[1])
	}
	for _, m := range errno.FindAllString(read, maxMarks) {
		e.mark("code", m)
	}
	e.said--
	e.Messages = append(e.Messages, s)
	e.words = append(e.words, split(straight.Replace(read)))
}

// mark adds a name of the error.
func (e *Error) mark(field, value string) {
	if len(e.Marks) >= maxMarks || value == "" || len(value) > 200 {
		return
	}
	name := value
	if field == "exception" { // without its package
		name = name[strings.LastIndexAny(name, ".$:")+1:]
	}
	m := Mark{field, value, PlainName(name), e.said > 0}
	if structured := (Mark{field, value, m.Name, false}); !slices.Contains(e.Marks, m) && !slices.Contains(e.Marks, structured) {
		e.Marks = append(e.Marks, m)
	}
}

// PlainName returns the letters and digits of a name in lower case: rate_limit_exceeded, RateLimitExceeded,
// "ThrottlingException:http://..." and "com.amazon#ThrottlingException" compare alike.
func PlainName(s string) string {
	s, _, _ = strings.Cut(s, ":")
	s = s[strings.LastIndexByte(s, '#')+1:]
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return -1
	}, strings.ToLower(s))
}

// role is what a member of an error's object says.
type role uint8

const (
	other  role = iota
	echoed      // of a request or an answer: not read
	message
	either // a message, or a name if it is one word
	status
	name
	field // of the request, or the path to it
	reset
)

// roles are those of members by their names, without what PlainName leaves out.
var roles = func() map[string]role {
	all := map[string]role{}
	for r, names := range map[role]string{
		echoed: "input ctx body request failedgeneration prompt content choices messages output usage tools instructions id " +
			"requestid model user links",
		message: "message detail msg errormessage errordescription faultstring raw description title",
		either:  "error fault reasons details",
		status:  "code status statuscode rawstatuscode httpstatus errorcode",
		name:    "type reason errortype codexerrorinfo blockreason limitsource quotaid name limittype category errorname",
		field:   "param loc",
		reset: "resetsat resetat resetsinseconds retryafter retryafterseconds retryafterms retrydelay resetafter estimatedtime " +
			"retryin",
	} {
		for n := range set(names) {
			all[n] = r
		}
	}
	return all
}()

// speaks reports whether an object has a member that errors have.
func speaks(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			switch r := roles[PlainName(k)]; {
			case r > echoed && r != field, strings.Contains(strings.ToLower(k), "error"), PlainName(k) == "baseresp", PlainName(k) == "ratelimit",
				PlainName(k) == "limitreached", PlainName(k) == "response", PlainName(k) == "promptfeedback":
				return true
			}
		}
	case []any:
		return len(v) > 0 && speaks(v[0])
	}
	return false
}

// walk reads a member of an error and all in it.
func (e *Error) walk(v any, key string, nested int) {
	if nested > maxDepth {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		e.known = e.known || !e.inText
		// In order of their names, so that the same error always gives the same reason; statuses first, since one in a message counts
		// more.
		keys := slices.SortedFunc(maps.Keys(v), func(a, b string) int {
			if first := roles[PlainName(a)] == status; first != (roles[PlainName(b)] == status) {
				return map[bool]int{true: -1, false: 1}[first]
			}
			return strings.Compare(a, b)
		})
		for _, k := range keys {
			e.member(strings.ToLower(k), v[k], nested)
		}
	case []any:
		for _, item := range v[:min(len(v), maxMessages)] {
			e.walk(item, key, nested+1)
		}
	case string:
		e.member(key, v, nested)
	}
}

// messageKeys matches the name of a member that holds a sentence, with the sentence.
var messageKeys = regexp.MustCompile(`^\w*(?:message|msg|error \S+) `)

// member reads one member.
func (e *Error) member(key string, v any, nested int) {
	plain := PlainName(key)
	text, isText := v.(string)
	switch r := roles[plain]; {
	case r == echoed:
	case r == message && isText, r == either && isText && strings.ContainsAny(text, " {"),
		r == other && isText && messageKeys.MatchString(plain+" "+text):
		e.said++
		e.text(text, nested+1)
		e.said--
	case r == either && isText, r == other && isText && strings.HasSuffix(plain, "code"):
		e.mark(key, text)
	case r == status && statusOf(written(v)) != 0:
		e.Status, e.Worded = statusOf(written(v)), e.said > 0
	case r == status || r == name:
		if s := written(v); s != "" {
			e.mark(key, s)
		} else {
			e.walk(v, key, nested+1)
		}
	case r == field:
		e.field(v)
	case r == reset:
		e.reset(plain, written(v))
	case key == "headers":
		e.quote(v)
	case plain == "baseresp":
		m, _ := v.(map[string]any)
		e.mark(key, written(m["status_code"]))
	case plain == "flaggedinput" || plain == "limitreached":
		if v != nil && v != false {
			e.mark(key, key)
		}
	case !isText:
		e.walk(v, key, nested+1)
	}
}

// quote keeps the first headers that an error quotes, each a text or a list of texts.
func (e *Error) quote(v any) {
	m, _ := v.(map[string]any)
	if e.Header != nil || len(m) == 0 {
		return
	}
	e.Header = http.Header{}
	for _, k := range slices.Sorted(maps.Keys(m)) { // of names that differ in case alone the same one counts each time
		v := m[k]
		if list, ok := v.([]any); ok && len(list) > 0 {
			v = list[0]
		}
		if s := written(v); s != "" {
			e.Header.Set(k, s)
		}
	}
}

// field takes a member that names a field, or has the path to it.
func (e *Error) field(v any) {
	if path, ok := v.([]any); ok && len(path) > 0 {
		v = path[len(path)-1]
	}
	if name, ok := v.(string); ok && name != "" && len(e.Fields) < maxMarks {
		e.Fields = append(e.Fields, name)
	}
}

// reset takes a member that says when to come back.
func (e *Error) reset(name, s string) {
	n, err := strconv.ParseFloat(s, 64)
	switch {
	case strings.HasSuffix(name, "ms"):
		e.ResetsIn = Scaled(n, time.Millisecond)
	case err == nil && n >= epoch:
		e.ResetsAt = SinceEpoch(n)
	case len(s) > 10 && s[4] == '-':
		if at, err := time.Parse(time.RFC3339, s); err == nil {
			e.ResetsAt = at
		}
	default:
		if d, _ := Duration(s); d > 0 {
			e.ResetsIn = d
		}
	}
}

// written is a number, or a string, as it is written; "" for others.
func written(v any) string {
	switch v := v.(type) {
	case json.Number:
		return v.String()
	case string:
		return v
	}
	return ""
}

// statusOf reads an HTTP status of an error; 0 if s is none.
func statusOf(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 400 || n > 599 {
		return 0
	}
	return n
}

// errorKeys are the names of members that hold an error's words or name: "last_error", "errorMessage", and no figure about
// errors.
var errorKeys = regexp.MustCompile(`(?i)error(?:s|_?(?:message|msg|code|type|name|description|info|details?))?$`)

// shaped reports whether an object is an error's own. It is stricter than what is asked about an object in an error's place.
func shaped(v any) bool {
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v[:min(len(v), maxMessages)], shaped)
	case map[string]any:
		for k, member := range v {
			if errorMember(strings.ToLower(k), member) {
				return true
			}
		}
		text, _ := first(v, "message", "detail", "msg", "errorMessage").(string)
		code := written(first(v, "code", "status", "statusCode", "status_code", "error_code"))
		kind, _ := v["type"].(string)
		_, param := v["param"]
		_, coded := v["code"]
		named := len(code) > 2 && (statusOf(code) != 0 || !isDigit(code[0]) && code[0] != '-' || len(code) > 3 && v["data"] == nil)
		return text != "" && (named || param && coded || len(v) == 1 || codeLike.MatchString(kind))
	}
	return false
}

// errorMember reports whether a member makes an error of its object.
func errorMember(key string, v any) bool {
	switch v := v.(type) {
	case map[string]any:
		switch PlainName(key) {
		case "promptfeedback": // of Gemini, in place of an answer
			return first(v, "blockReason", "block_reason") != nil
		case "baseresp":
			n := written(v["status_code"])
			return n != "" && n != "0"
		case "cause", "data", "response", "detail":
			return shaped(v)
		}
		return v["limit_reached"] == true || len(v) > 0 && strings.Contains(key, "error")
	case []any:
		return key == "errors" && len(v) > 0
	case bool:
		return v && (key == "error" || PlainName(key) == "iserror")
	case string:
		switch key {
		case "type", "object", "event", "level", "severity", "status":
			low := strings.ToLower(v)
			return strings.HasSuffix(low, "error") || low == "response.failed" || low == "fatal"
		case "@type":
			return strings.Contains(v, "google.rpc.")
		case "code", "errno":
			return errno.MatchString(v)
		case "name":
			return exception.MatchString(v)
		case "__type":
			return v != ""
		}
		return v != "" && v != "none" && v != "null" && errorKeys.MatchString(key)
	}
	return false
}
