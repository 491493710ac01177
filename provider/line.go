package provider

import (
	"net/http"
	"slices"
	"strings"
)

// errorIn finds where on a line an error begins to speak. ok is false for what only talks about errors.
func errorIn(line string) (at int, ok bool) {
	line = clip(line, 4*maxMessage)
	if at := ranInto(line); at > 0 {
		return at, true
	}
	told := sentenceIn(line)
	if firstPerson(line) {
		told = -1
	}
	found := -1
	words := 0
	var before string // the word before, in lower case
	eachWord(line, func(i, end int) bool {
		w := line[i:end]
		low := asciiLower(w)
		switch {
		case programming(w), ofLibrary(w):
			told = -1
			return false
		case isException(w) && happened(line, i, end),
			statusWord(line, i, end, before),
			words < 10 && prefixed(line, low, end) && !firstPerson(line) && !raises(line[end:]),
			words == 0 && strings.HasSuffix(w, "_error") && strings.HasPrefix(line[end:], ": "),
			errno(w), ofRPC(line, i, end):
			if !hedged(line[:i]) {
				found = i
			}
			return false
		}
		before, words = low, words+1
		return true
	})
	if i := errorWordIn(line); i >= 0 && (found < 0 || i < found) && !hedged(line[:i]) {
		found = i
	}
	if told >= 0 && (found < 0 || told < found) {
		found = told
	}
	return found, found >= 0
}

// firstPerson reports whether somebody speaks of himself on a line. Providers do not.
func firstPerson(line string) bool {
	return startsWithAny(line, "I ", "I'") || strings.Contains(line, " I ") || strings.Contains(line, " I'") || strings.Contains(line, " my ")
}

// statusWord reports whether the word is an error's status, said as one: after "status code", "HTTP" and the like, or
// before its own phrase ("429 Too Many Requests"), or first on the line before a sentence or an object.
func statusWord(line string, i, end int, before string) bool {
	w := line[i:end]
	status := statusOf(w)
	if lead := asciiLower(line[max(0, i-12):i]); status == 0 || strings.HasSuffix(lead, "exit code ") || strings.HasSuffix(lead, "exited with ") {
		return false
	}
	rest := strings.TrimLeft(line[end:], " :-)]'\"—–·")
	low := asciiLower(clip(rest, 40))
	if startsWithAny(low, "errors", "responses", "failures") {
		return false // many of them are spoken about
	}
	phrase := strings.ToLower(http.StatusText(status))
	if status == 529 {
		phrase = "overloaded"
	}
	if phrase != "" && strings.HasPrefix(low, phrase) {
		return true
	}
	for _, code := range [...]string{"resource_exhausted", "unavailable", "status code", "invalid_argument", "permission_denied",
		"unauthenticated", "internal", "deadline_exceeded", "overloaded", "service unavailable", "rate limit", "bad gateway",
		"too many requests", "client error", "server error"} {
		if strings.HasPrefix(low, code) {
			return true
		}
	}
	switch before {
	case "code", "status", "status_code", "statuscode", "http", "1.1", "2", "2.0", "1.0", "error", "errorcode", "error_code", "apierror", "capierror", "rejected":
		return i == 0 || strings.IndexByte(" :=(\"'[", line[i-1]) >= 0
	}
	lead := strings.TrimSpace(line[:i])
	if lead == "" || line[i-1] == ' ' && strings.IndexByte(":=-", lead[len(lead)-1]) >= 0 && errorish(asciiLower(lead)) {
		return rest == "" || rest[0] == '{' || rest[0] >= 'A' && rest[0] <= 'Z' || rest[0] >= 0x80
	}
	return false
}

// errorish reports whether what introduces a status is about errors at all.
func errorish(low string) bool {
	low = low[strings.LastIndexByte(low, ',')+1:]
	return strings.Contains(low, "error") || strings.Contains(low, "fail") || strings.Contains(low, "exception")
}

// prefixed reports whether a word early on a line makes it an error's: "error:", "failed", "unable to".
func prefixed(line, low string, end int) bool {
	rest := line[end:]
	switch low {
	case "error", "fatal", "exception", "panic", "err", "fehler", "erreur", "erro", "errore":
		if start := end - len(low); start > 0 && strings.HasSuffix(strings.TrimRight(line[:start], " "), `"`) {
			return false // the error that was quoted
		}
		t := strings.TrimLeft(rest, " ]*)\"'")
		if n := strings.TrimLeft(t, ": "); leadingStatus(n) != 0 && strings.HasPrefix(n[3:], " errors ") {
			return false // "API Error: 500 errors are", of many
		}
		return t == "" || strings.HasPrefix(rest, " {") && start(line, end, low) || t[0] == ':' || t[0] == '(' || t[0] == '-' || strings.HasPrefix(rest, "]") || strings.HasPrefix(rest, "=") ||
			startsWithAny(asciiLower(strings.TrimLeft(rest, " ")), "calling", "occurred", "while", "during", "communicating", "from", "in ",
				"generating", "fetching", "sending", "processing", "code", "running", "invoking", "when", "connecting")
	case "failed", "failure", "unable", "cannot", "couldn't", "could":
		return low != "could" || strings.HasPrefix(rest, " not")
	}
	return false
}

// start reports whether a word stands first on its line, or behind a path: reqwest::Error.
func start(line string, end int, low string) bool {
	before := line[:end-len(low)]
	return before == "" || strings.HasSuffix(before, "::") || strings.HasSuffix(before, ": ")
}

// errorWord returns where the words of an error begin behind the word for one in a script without spaces or in Russian, or -1.
func errorWordIn(line string) int {
	for _, w := range [...]string{"エラー", "错误", "錯誤", "失败", "失敗", "异常", "出错", "Ошибка", "ошибка", "오류", "에러"} {
		i := strings.Index(clip(line, 120), w)
		if i < 0 {
			continue
		}
		rest := strings.TrimLeft(line[i+len(w):], " ]】)）")
		if startsWithAny(rest, ":", "：") || rest == "" {
			return i
		}
	}
	return -1
}

func startsWithAny(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// eachWord calls f with the place of each run of characters that names are made of, until it returns false.
func eachWord(s string, f func(start, end int) bool) {
	for i := 0; i < len(s); {
		if !isWord(s[i]) {
			i++
			continue
		}
		start := i
		for i < len(s) && (isWord(s[i]) || (s[i] == '.' || s[i] == '$' || s[i] == '#') && i+1 < len(s) && isWord(s[i+1])) {
			i++
		}
		if !f(start, i) {
			return
		}
	}
}

// afterPrefixes returns what an error says behind the names and the prefixes that introduce it: of
// "openai.RateLimitError: Error code: 429 - Slow down" the last two words, and the status.
func afterPrefixes(s string) (words string, status int) {
	if name, rest, ok := strings.Cut(s, ") "); ok && isException(strings.TrimPrefix(name, "** (")) {
		s = rest // of Elixir: "** (Req.TransportError) timeout"
	}
	for range 6 {
		head, rest, ok := strings.Cut(s, ": ")
		if !ok || len(head) > 80 || strings.ContainsAny(head, "{.!?") && !isException(head) {
			break
		}
		i := 0
		introduces := false
		eachWord(head, func(at, end int) bool {
			i++
			low := asciiLower(head[at:end])
			introduces = introduces || isException(head[at:end]) || prefixed(head, low, end) || low == "code" || low == "error"
			return i < 10
		})
		if !introduces {
			break
		}
		s = rest
	}
	if status = leadingStatus(s); status != 0 {
		s = strings.TrimLeft(s[3:], " -:—–")
	}
	return unbracketed(s), status
}

// unbracketed returns s without the brackets at its end that were opened before it: of "[API Error: terminated]".
func unbracketed(s string) string {
	s = strings.TrimSpace(s)
	for _, pair := range [...]string{"[]", "()", "{}"} {
		if strings.HasSuffix(s, pair[1:]) && strings.Count(s, pair[:1]) < strings.Count(s, pair[1:]) {
			s = strings.TrimSpace(s[:len(s)-1])
		}
	}
	return s
}
