package errtext

import (
	"net/http"
	"regexp"
	"strings"
)

var (
	// sent are the lines of the request that a response was to, as clients print them.
	sent       = regexp.MustCompile(`^(?:(?:[>*](?: [^\n]*)?|(?:POST|GET) [^\n]*)\n\s*){1,40}`)
	statusLine = regexp.MustCompile(`^(?:< |[^\n]{0,80}: )?HTTP/[\d.]+ (\d\d\d)[^\n]*(?:\n|$)`)
	headerLine = regexp.MustCompile(`^(?:< )?([A-Za-z0-9-]+):[ \t]*([^\n]*)(?:\n|$)`)
	blankLine  = regexp.MustCompile(`^(?:<)?[ \t]*\n`)
	heading    = regexp.MustCompile(`(?is)<(?:title|h1)[^>]*>([^<]*)<`)
	lawOfPage  = regexp.MustCompile(`(?i)<p>(\d[\d,]* per \d+ [a-z]+)</p>`) // Werkzeug's page has the text of Flask-Limiter
	anyStatus  = regexp.MustCompile(`\b[45]\d\d\b`)
)

// Head returns the status, the headers and the body of an HTTP response that was pasted as text; false if the text begins
// otherwise.
func Head(text string) (status int, h http.Header, body string, ok bool) {
	s := Plain(text)
	s = s[len(sent.FindString(s)):]
	m := statusLine.FindStringSubmatch(s)
	if m == nil || !strings.HasPrefix(s, "HTTP/") && !strings.HasPrefix(s, "< ") && !headerLine.MatchString(s[len(m[0]):]) {
		return 0, nil, s, false // a client's own words before it are followed by headers
	}
	s = s[len(m[0]):]
	h = http.Header{}
	for line := headerLine.FindStringSubmatch(s); line != nil; line = headerLine.FindStringSubmatch(s) {
		h.Add(line[1], strings.TrimSpace(line[2]))
		s = s[len(line[0]):]
	}
	s = s[len(blankLine.FindString(s)):]
	return int(float(m[1])), h, strings.TrimSpace(s), true
}

// Tagged reports whether a text begins as a page does. A log's "<4>" is no tag.
func Tagged(s string) bool { return tag.MatchString(s) }

var tag = regexp.MustCompile(`^<[A-Za-z!?]`)

// page reads the title of a page, where proxies put the status, and a limit with its period.
func (e *Error) page(s string) {
	low := strings.ToLower(s)
	at := max(strings.Index(low, "<html"), strings.Index(low, "<!doctype"))
	if at < 0 && s[0] != '<' {
		return
	}
	e.Page = true
	e.prefix(s[:max(0, strings.IndexByte(s, '<'))])
	for _, m := range heading.FindAllStringSubmatch(s, 2) {
		e.message(strings.TrimSpace(m[1]))
		if n := anyStatus.FindString(m[1]); n != "" && e.Status == 0 {
			e.Status, e.Worded = statusOf(n), true
		}
	}
	if m := lawOfPage.FindStringSubmatch(s); m != nil {
		e.message(m[1])
	}
}
