package provider

import (
	"encoding/json"
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
	s := strings.ReplaceAll(unadorned(ends(text)), "<class '", "") // the name of an exception in Python's brackets
	v, skipped := p.readText(status, s, now)
	if !v.vague() || skipped && v.Kind == sluice.OK {
		return v // lines that are no error's words must not become some by being joined
	}
	if joined := tight(s); joined != s {
		if w, _ := p.readText(status, joined, now); !w.vague() {
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

// readText classifies one reading of a text. muted says that lines of it were passed over.
func (p Provider) readText(status int, s string, now time.Time) (v Verdict, skipped bool) {
	r := textReader{f: &fault{fromText: true}}
	r.read(strings.TrimSpace(s))
	if status < 400 {
		status = 0
	}
	if r.f.resetsIn == 0 {
		r.f.resetsIn = protoDelay(s)
	}
	switch {
	case r.found:
		return p.verdict(r.f, status, r.header, now), r.skipped
	case r.good:
		return Verdict{Why: Reason{Rule: "good answer"}}, r.skipped
	case status == 0:
		return Verdict{Why: Reason{Rule: noError}}, r.skipped
	}
	f := decode([]byte(s))
	f.fromText = true
	return p.verdict(f, status, r.header, now), r.skipped
}

// textReader finds in a text what speaks as an error.
type textReader struct {
	f       *fault
	header  http.Header
	found   bool // an error was found
	good    bool // it is a good answer, whatever is in it
	skipped bool // lines were passed over that are none of an error's words
	looked  int  // bytes that were looked through for objects
	taken   int  // how often words were taken
}

const (
	mostLooked = 4 * maxFault // so that a text of nothing but brackets is not read from each of them
	mostTaken  = 300
)

// read takes what is an error in a whole text.
func (r *textReader) read(s string) {
	if s == "" {
		return
	}
	if status, h, body, ok := httpHead(s); ok {
		r.answer(status, h, body)
		return
	}
	if tagged(s) || strings.Contains(clip(asciiLower(s), 2000), "<html") {
		if r.f.page(s); r.f.html {
			r.found = r.f.status != 0
			return
		}
	}
	if s[0] == '{' {
		if sum := summarize(NoEndpoint, []byte(s)); sum.valid && sum.hasBody && !sum.hasError {
			r.good = true
			return
		}
	}
	if s[0] == '"' && strings.Contains(clip(s, 80), `":`) {
		s = "{" + s // members whose braces were left out
	}
	if s[0] == '"' && strings.Contains(s, `\"`) {
		r.f.text(s, 0) // an object quoted as a text
		if r.found = len(r.f.marks) > 0; r.found {
			return
		}
	}
	r.lines(s)
}

// lines reads a text line by line. An error goes on over the lines that follow it until a blank one, or until
// something else begins.
func (r *textReader) lines(s string) {
	diff := strings.Contains(s, "\n@@ ") || strings.Contains(s, "diff --git ")
	// The line before spoke; was what an agent's tool printed; announced a line of code, which may be missing, and was so far indented.
	open, tool, frame := false, false, -1
	var said strings.Builder
	var lead string // what stands before it on its line
	flush := func() {
		r.take(said.String())
		if said.Len() > 0 && waitIn(normalise(lead)) > 0 {
			r.f.message(lead) // what a client says of its own next try
		}
		said.Reset()
		open = false
	}
	for i := 0; i < len(s); {
		whole, _, _ := strings.Cut(s[i:], "\n")
		end := i + len(whole)
		line, next := strings.TrimSpace(whole), end+1
		indent := len(whole) - len(strings.TrimLeft(whole, " \t"))
		code := frame >= 0 && indent >= frame && !strings.HasPrefix(line, "File \"")
		frame = -1
		switch {
		case code:
		case line == "":
			flush()
			tool = false
		case toolCall(line):
			flush()
			tool, r.skipped = true, true
		case tool && !strings.HasPrefix(line, "API Error"):
		case strings.HasPrefix(line, "File \""):
			flush()
			frame = indent
		case noise(line, diff) && ranInto(line) == 0:
			flush()
			r.skipped = true
		default:
			if n := r.object(s, i, end); n > 0 {
				flush()
				next = n
				break
			}
			if at, ok := errorIn(line); ok {
				flush()
				lead = line[:at]
				r.lead(lead)
				said.WriteString(line[at:])
				open = true
			} else if open && said.Len() < maxMessage {
				said.WriteByte(' ')
				said.WriteString(line)
			} else if r.found && comesBack(line) {
				r.f.message(line) // when to try the call above again, or when the window ends
			}
		}
		i = next
	}
	flush()
}

// comesBack reports whether a line does nothing but say when something is tried again or reset.
func comesBack(line string) bool {
	low := asciiLower(clip(line[leading(line):], 160))
	return strings.ContainsAny(low, "0123456789") && startsWithAny(low, "retry", "will retry", "try again", "please try again", "please wait", "wait ",
		"resets", "reset ", "usage will reset", "usage resets", "your limit", "limit will reset", "limit resets", "your quota", "quota will reset",
		"quota resets", "next reset", "available again", "waiting ")
}

// object reads the error object that begins on the line s[i:end], and returns where it ends; 0 when there is none.
// What stands before it on the line speaks with it.
func (r *textReader) object(s string, i, end int) int {
	for n := 0; n < 4; n++ {
		at := strings.IndexAny(s[i:end], "{[")
		if at < 0 {
			return 0
		}
		at = mapStart(s, at+i)
		if r.looked > mostLooked {
			return 0
		}
		v, found, size := literalIn(s[at:])
		if r.looked += size; !found {
			size = 0
		}
		if m, ok := v.(map[string]any); ok && m["is_error"] == true {
			r.result(m)
			return at + size
		}
		if size > 0 && errorShaped(v) {
			before := lineBefore(s, at)
			if _, speaks := errorIn(before + " {"); !speaks && hedged(before) {
				return at + size
			}
			r.names(before)
			r.f.prefix(before)
			r.f.walk(v, "", 0)
			r.words(before)
			r.found, r.f.api = true, r.f.api || ofAPI(v)
			rest := s[at+size : at+size+firstLine(s[at+size:])]
			if d := waitIn(normalise(rest)); d > 0 && r.f.resetsIn == 0 {
				r.f.message(strings.Trim(rest, " )·-,."))
			}
			return at + size + len(rest)
		}
		if size > 0 && isObject(v) && (at == i || strings.HasSuffix(strings.TrimSpace(s[i:at]), "data:")) {
			return at + size // no error: an answer, an event, a display
		}
		i = at + 1 + strings.IndexAny(s[at:], "{[")
	}
	return 0
}

// mapStart returns where the literal with the bracket at s[at] begins: maps of Go have a word before it.
func mapStart(s string, at int) int {
	if s[at] == '[' && strings.HasSuffix(s[:at], "map") {
		return at - len("map")
	}
	return at
}

// result reads the event by which an agent ends: its result is the error's text if it says that it is one.
func (r *textReader) result(m map[string]any) {
	if s, ok := m["result"].(string); ok {
		inner := textReader{f: r.f}
		inner.lines(unadorned(s))
		r.found = r.found || inner.found
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

// take takes what a line and those after it say as the words of an error.
func (r *textReader) take(s string) {
	if r.taken++; s == "" || r.taken > mostTaken {
		return
	}
	r.found = true
	r.names(s)
	r.f.prefix(s)
	r.words(s)
	r.f.message(s)
}

// words takes what a text says behind the prefixes that introduce it.
func (r *textReader) words(s string) {
	said, status := afterPrefixes(s)
	if r.f.status == 0 {
		r.f.status = status
	}
	r.f.message(said)
}

// lead takes the status from what stands before an error on its line.
func (r *textReader) lead(s string) {
	if n := statusIn(s); n != 0 && r.f.status == 0 {
		r.f.status = n
	}
}

// names takes the names of exceptions and codes that words of an error bear.
func (r *textReader) names(s string) {
	eachWord(s, func(at, end int) bool {
		switch w := s[at:end]; {
		case isException(w):
			r.f.mark("exception", w)
		case strings.HasSuffix(s[:at], "block_reason: "), strings.HasSuffix(s[:at], "block_reason=<"): // as Google's clients print it
			r.f.mark("blockreason", w)
		case strings.Contains(w, "PerDay"), strings.Contains(w, "PerMinute"): // of Google's quotas
			r.f.mark("quotaid", w)
		case isCode(w), errno(w), ofRPC(s, at, end), strings.HasSuffix(s[:at], "code = "): // of gRPC
			r.f.mark("code", w)
		}
		return true
	})
}

// numbered reports whether a code is a number of a provider's own.
func numbered(code any) bool {
	n, ok := code.(json.Number)
	return ok && len(n) > 3 && n[0] != '-'
}
