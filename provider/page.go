package provider

import (
	"net/http"
	"strings"
)

// answer reads an HTTP answer that was pasted as text.
func (r *textReader) answer(status int, h http.Header, body string) {
	if _, stream := sseError(body); status/100 == 2 && !stream {
		sum := summarize(NoEndpoint, []byte(body))
		if r.good = !sum.failed() && (sum.hasBody || !errorBody([]byte(body))); r.good {
			return
		}
	}
	r.header, r.found = h, true
	*r.f = *decode([]byte(body))
	r.f.fromText = true
	if r.f.status == 0 && status >= 400 {
		r.f.status = status
	}
}

// httpHead splits a text that begins with the status line of an HTTP answer.
func httpHead(s string) (status int, h http.Header, body string, ok bool) {
	for n := 0; n < 40 && requestLine(s); n++ {
		_, s, _ = strings.Cut(s, "\n")
		s = strings.TrimLeft(s, " \n")
	}
	s = strings.TrimPrefix(s, "< ")
	if at := strings.Index(s[:firstLine(s)], ": HTTP/"); at >= 0 && at < 80 && headerLine(s[firstLine(s):]) {
		s = s[at+2:] // behind a client's own words
	}
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

// headerLine reports whether the first line of s that is not empty is a header: a name and what it is.
func headerLine(s string) bool {
	s = strings.TrimLeft(s, "\n")
	name, _, ok := strings.Cut(s[:firstLine(s)], ": ")
	return ok && name != "" && strings.Trim(asciiLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// requestLine reports whether s begins with a line of the request that an answer was to, as clients print it.
func requestLine(s string) bool {
	return startsWithAny(s, "> ", "* ", ">\n", "*\n", "POST http", "POST /", "GET http", "GET /")
}

// tagged reports whether a text begins as a page does. A log's "<4>" is no tag.
func tagged(s string) bool {
	return len(s) > 1 && s[0] == '<' && (isLetter(s[1]) || s[1] == '!' || s[1] == '?')
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
