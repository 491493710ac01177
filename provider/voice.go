package provider

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// voiceIn finds where on a line an error begins to speak. ok is false for what only talks about errors.
func voiceIn(line string) (at int, ok bool) {
	line = clip(line, 4*maxMessage)
	cry := outcry(line)
	if firstPerson(line) {
		cry = -1
	}
	found := -1
	words := 0
	var before string // the word before, in lower case
	eachWord(line, func(i, end int) bool {
		w := line[i:end]
		low := asciiLower(w)
		switch {
		case programming(w), ofLibrary(w):
			cry = -1
			return false
		case isException(w) && names(line, i, end),
			statusWord(line, i, end, before),
			words < 10 && prefixed(line, low, end) && !firstPerson(line),
			errno(w):
			if !hedged(line[:i]) {
				found = i
			}
			return false
		}
		before, words = low, words+1
		return true
	})
	if i := errorWord(line); i >= 0 && (found < 0 || i < found) && !hedged(line[:i]) {
		found = i
	}
	if cry >= 0 && (found < 0 || cry < found) {
		found = cry
	}
	return found, found >= 0
}

// firstPerson reports whether somebody speaks of himself on a line. Providers do not.
func firstPerson(line string) bool {
	return startsWithAny(line, "I ", "I'") || strings.Contains(line, " I ") || strings.Contains(line, " I'") || strings.Contains(line, " my ")
}

// programming reports whether a word is the name of an exception that a program's own mistakes raise: it says nothing
// of a call.
func programming(w string) bool {
	switch w {
	case "KeyError", "NameError", "AttributeError", "ImportError", "ModuleNotFoundError", "SyntaxError", "IndexError", "AssertionError",
		"FileNotFoundError", "ReferenceError", "RangeError", "NotImplementedError", "RecursionError", "UnboundLocalError", "ZeroDivisionError",
		"IndentationError", "UnicodeDecodeError", "UnicodeEncodeError", "NotADirectoryError", "IsADirectoryError", "NullPointerException",
		"ClassCastException", "IllegalStateException":
		return true
	}
	return false
}

// ofLibrary reports whether an exception is of a library that makes no calls to a model: redis.exceptions.ConnectionError.
func ofLibrary(w string) bool {
	root, _, ok := strings.Cut(w, ".")
	return ok && ofOthers(asciiLower(root)+" ")
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

// exceptionEnds are how the names of exceptions end.
var exceptionEnds = [...]string{"Error", "Exception", "Timeout", "Exhausted", "Disconnected", "DeadlineExceeded", "Unavailable",
	"Unauthenticated", "PermissionDenied", "TooManyRequests", "InvalidArgument", "IncompleteRead", "Throttled", "Fault", "TimedOut"}

// isException reports whether a word is the name of an exception: openai.RateLimitError, ThrottlingException.
func isException(w string) bool {
	if i := strings.LastIndexAny(w, ".$#"); i >= 0 {
		if path := w[:i]; strings.HasSuffix(path, "exceptions") || strings.HasSuffix(path, "errors") || strings.HasSuffix(path, ".error") ||
			strings.Contains(path, ".errors.") || strings.Contains(path, ".exceptions.") {
			return true // google.api_core.exceptions.NotFound
		}
		w = w[i+1:]
	} else if w == "Timeout" {
		return false // also a setting's name
	}
	if len(w) < len("Timeout") || w[0] < 'A' || w[0] > 'Z' || w == "Exception" || w == "Unavailable" || strings.ToUpper(w) == w {
		return false
	}
	for _, end := range exceptionEnds {
		if strings.HasSuffix(w, end) {
			return true
		}
	}
	return false
}

// names reports whether the name of an exception is given as what happened: text or nothing follows it.
func names(line string, i, end int) bool {
	rest := strings.TrimLeft(line[end:], "'\"`*>")
	if rest == "" || strings.IndexByte(":([{])", rest[0]) >= 0 || strings.HasPrefix(rest, " -") || strings.HasPrefix(rest, " {") || strings.HasPrefix(rest, " }") ||
		strings.HasPrefix(rest, " [") || strings.HasPrefix(rest, " (") || strings.HasPrefix(rest, ", ") || strings.HasPrefix(rest, ". ") || rest == "." {
		return true
	}
	return i == 0
}

// isCode reports whether a word is one of the names that errors bear in place of words: rate_limit_error,
// RESOURCE_EXHAUSTED.
func isCode(w string) bool {
	return len(w) > 6 && strings.IndexByte(w[1:], '_') >= 0 && !strings.Contains(w, ".") && !strings.HasPrefix(w, "_")
}

// errno reports whether a word is an error of the network as Node and POSIX name it.
func errno(w string) bool {
	switch w {
	case "ECONNRESET", "ECONNREFUSED", "ECONNABORTED", "ENOTFOUND", "EAI_AGAIN", "EPIPE", "EHOSTUNREACH", "ENETUNREACH", "ENETDOWN",
		"ETIMEDOUT", "ESOCKETTIMEDOUT", "ERR_NETWORK", "EPROTO", "ERR_STREAM_PREMATURE_CLOSE", "UND_ERR_SOCKET",
		"UND_ERR_CONNECT_TIMEOUT", "UND_ERR_HEADERS_TIMEOUT", "UND_ERR_BODY_TIMEOUT", "DEPTH_ZERO_SELF_SIGNED_CERT",
		"SELF_SIGNED_CERT_IN_CHAIN", "UNABLE_TO_GET_ISSUER_CERT_LOCALLY", "UNABLE_TO_VERIFY_LEAF_SIGNATURE", "CERT_HAS_EXPIRED",
		"ERR_TLS_CERT_ALTNAME_INVALID":
		return true
	}
	return false
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
	case "code", "status", "status_code", "statuscode", "http", "1.1", "2", "2.0", "1.0", "error", "errorcode", "error_code", "apierror", "capierror":
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
func errorWord(line string) int {
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

// hedges are words after which an error is only spoken about.
var hedges = map[string]bool{
	"if": true, "when": true, "whenever": true, "unless": true, "how": true, "why": true, "should": true,
	"might": true, "may": true, "can": true, "handle": true, "handles": true, "handled": true, "handling": true, "catch": true,
	"catches": true, "catching": true, "except": true, "implement": true, "implements": true, "add": true, "adds": true,
	"added": true, "support": true, "fix": true, "fixes": true, "fixed": true, "expect": true, "expected": true, "assert": true,
	"avoid": true, "avoids": true, "prevent": true, "prevents": true, "mock": true, "simulate": true, "treat": true,
	"returns": true, "raises": true, "throws": true, "throw": true, "raise": true, "class": true, "import": true, "e.g": true,
	"like": true, "such": true, "instead": true, "detect": true, "detects": true, "parse": true, "map": true, "maps": true,
	"case": true, "isinstance": true, "instanceof": true, "new": true, "typically": true, "usually": true, "means": true,
	"issue": true, "created": true, "titled": true, "closes": true, "merged": true, "opened": true, "skipping": true, "document": true, "improve": true, "reduce": true, "test": true, "tests": true, "docs": true, "feat": true,
	"says": true, "keeps": true, "getting": true, "seeing": true, "reports": true, "reported": true, "reporting": true,
}

// hedged reports whether what stands before an error on its line only speaks about it.
func hedged(before string) bool {
	if i := strings.LastIndexAny(before, ".!;"); i >= 0 && strings.HasPrefix(before[i+1:], " ") {
		before = before[i+1:] // of the sentence before
	}
	found := false
	eachWord(before, func(i, end int) bool {
		w := asciiLower(before[i:end])
		found = hedges[w] && !((w == "may" || w == "might") && strings.HasPrefix(before[end:], " have "))
		return !found
	})
	return found || strings.HasSuffix(before, "`") || strings.HasSuffix(strings.TrimSpace(before), "?")
}

// outcry returns where on a line a sentence begins that is an error's by itself, or -1. Sentences are looked for at
// the beginning of the line, behind what introduces it ("Error:", a time, "[API Error:"), and behind a full stop.
func outcry(line string) int {
	low := straight.Replace(line)
	if len(low) != len(line) {
		line = low
	}
	low = strings.ToLower(low)
	if len(low) != len(line) {
		return -1
	}
	known := outcryIndex()
	for i, n := 0, 0; i >= 0 && n < 40; n++ {
		start := i + leading(low[i:])
		cries := exceeded(low[start:])
		if n < 8 && !cries && (i == 0 || low[i-1] != '.' && low[i-1] != ',') {
			_, cries, _ = states(low[start:])
		}
		for _, p := range known[beginning(low[start:])] {
			cries = cries || matches(p, low[start:])
		}
		if cries && !question(low[start:]) && !hedged(line[:start]) {
			return start
		}
		i = nextClause(low, start)
	}
	if strings.IndexFunc(low, func(r rune) bool { return r >= 0x2e80 }) >= 0 { // no spaces stand between these words
		for _, p := range known[""] {
			if matches(p, low) {
				return 0
			}
		}
	}
	return -1
}

// beginning returns the first bytes of a sentence: what outcries are looked up by.
func beginning(s string) string { return s[:min(3, len(s))] }

// outcryIndex returns the outcries by their beginnings; those that may begin anywhere are under "".
var outcryIndex = sync.OnceValue(func() map[string][]string {
	index := make(map[string][]string)
	for _, p := range outcries {
		key := beginning(p)
		if p[0] == '*' {
			key = ""
		}
		index[key] = append(index[key], p)
	}
	return index
})

// limits and ends are the nouns and verbs of "Weekly limit reached" and "Provider rate limit exceeded".
var (
	limits = map[string]bool{"limit": true, "limits": true, "quota": true, "allowance": true, "credits": true, "balance": true, "capacity": true,
		"ratelimit": true}
	passed = map[string]bool{"exceeded": true, "reached": true, "hit": true, "exhausted": true, "depleted": true, "expired": true, "insufficient": true}
)

// exceeded reports whether a clause in lower case begins by saying that a limit was reached: within its first words, and
// with nothing behind it that would make a name of it ("usage limit reached dialog").
func exceeded(s string) bool {
	noun, bare, found, words := false, false, false, 0
	eachWord(clip(s, 100), func(i, end int) bool {
		w := s[i:end]
		switch words++; {
		case noun && passed[w]:
			if hedged(s[:i]) || foreign(s[:i]) || strings.Contains(s[:i], "connection") || bare && words == 2 && !strings.Contains(s, "reset") && !strings.Contains(s, "try") {
				return false
			}
			rest := strings.TrimLeft(s[end:], " \"'*")
			found = rest == "" || !isLetter(rest[0]) || startsWithAny(rest, "for ", "on ", "in ", "by ", "please", "try ", "resets", "retry", "with ", "and ", "again")
			return false
		case noun && (w == "is" || w == "has" || w == "been" || w == "was" || w == "have"):
		default:
			noun, bare = limits[w], strings.HasPrefix(w, "limit")
		}
		return words < 7
	})
	return found
}

// foreign reports whether a limit is of something else than a provider's: of recursion, of a tool's steps, of a file.
func foreign(before string) bool {
	found := false
	eachWord(before, func(i, end int) bool {
		found = foreignWord(before[i:end])
		return !found
	})
	return found
}

func foreignWord(w string) bool {
	switch w {
	case "recursion", "iteration", "iterations", "turn", "turns", "depth", "nesting", "file", "files", "line", "lines", "stack", "retry", "retries",
		"disk", "step", "steps", "redirect", "redirects", "upload", "cache", "memory", "heap", "size", "column", "character", "test", "tests",
		"fail", "db", "database", "pool", "thread", "threads", "mcp", "npm", "pip", "git", "docker", "ssh", "thinking", "reasoning", "time":
		return true
	}
	return false
}

// question reports whether the sentence that s begins with is one.
func question(s string) bool {
	i := strings.IndexAny(s, ".?!\n")
	return i >= 0 && s[i] == '?'
}

// leading returns how much of s stands before its first letter.
func leading(s string) int {
	for i, r := range s {
		if unicode.IsLetter(r) || r >= '0' && r <= '9' {
			return i
		}
	}
	return len(s)
}

// nextClause returns where the clause after the one at i begins, or -1.
func nextClause(s string, i int) int {
	for ; i < len(s); i++ {
		switch s[i] {
		case ':', '|', '[', '(', ')', '!', ',':
			if s[i] == '(' && i+1 < len(s) && isDigit(s[i+1]) { // a number of what stands before
				if n := strings.IndexByte(clip(s[i:], 60), ')'); n > 0 && i+n+1 < len(s) && s[i+n+1] == ' ' {
					i += n
					continue
				}
			}
			if s[i] == ',' && i+1 < len(s) && isDigit(s[i+1]) {
				continue // thousands
			}
			return i + 1
		case '.', '-':
			if i+1 == len(s) || s[i+1] == ' ' {
				return i + 1
			}
		case '"', '\'', '*':
			// A quotation in the middle of a sentence is spoken about; after a colon it is said.
			if lead := strings.TrimRight(s[:i], " "); lead == "" || strings.IndexByte(":=([{,", lead[len(lead)-1]) >= 0 {
				return i + 1
			}
		case 0xc2: // ·
			if strings.HasPrefix(s[i:], "·") {
				return i + 2
			}
		case 0xe3: // 。
			if strings.HasPrefix(s[i:], "。") {
				return i + utf8.RuneLen('。')
			}
		}
	}
	return -1
}

// noise reports whether a line is none of the error's words: a frame of a stack, code, a line of a diff, a commit's title,
// a heading or a box of a template, an answer of status 200.
func noise(line string, diff bool) bool {
	row := len(line) > 2 && line[0] == '|' && line[len(line)-1] == '|' && strings.Count(line, "|") > 2 // of a table
	if row || diff && strings.IndexByte("+-@ ", line[0]) >= 0 || commitTitle(line) {
		return true
	}
	low := asciiLower(clip(line, 200))
	if metric(low) || assigned(low) || statuses(low) > 2 {
		return true
	}
	switch {
	case stackFrame(low), ofOthers(low), found(low), strings.Trim(low, "^~ ") == "", strings.HasPrefix(low, "+ "),
		startsWithAny(low, "traceback (most recent", "during handling of the above", "the above exception was", "diff --git", "@@ ",
			"+++ ", "--- a/", "commit ", "merge pull request", "merge branch", "[bug]", "[feature", "msgid ", "msgstr ", "- [ ]", "- [x]", "- `", "* `", "###", "//", "/*", "* @", "def ",
			"class ", "async ", "await ", "const ", "let ", "var ", "import ", "from ", "raise ", "throw ", "return ", "except ", "catch ",
			"} catch", "if (", "elif ", "case ", "export ", "print(", "console.", "logger.", "log.", "fmt.", "func ", "function ", "public ", "private ", "assert ", "expect("):
		return true
	case strings.HasSuffix(low, "{") && strings.Contains(low, "("), strings.HasSuffix(low, ";") && strings.ContainsAny(low, "(="):
		return true
	}
	for _, v := range [...]string{`http/1.1 2`, `http/2 2`, `http/1.1" 2`, `http/2.0" 2`, `http/1.0" 2`, `http/2" 2`} {
		if i := strings.Index(low, v); i >= 0 && i+len(v)+1 < len(low) && isDigit(low[i+len(v)]) && isDigit(low[i+len(v)+1]) {
			return true
		}
	}
	return false
}

// metric reports whether a line is one of Prometheus's: a name, labels in braces, a number.
func metric(low string) bool {
	open, end := strings.IndexByte(low, '{'), strings.LastIndex(low, "} ")
	return open > 0 && end > open && strings.Trim(low[:open], "abcdefghijklmnopqrstuvwxyz0123456789_") == "" && strings.Trim(low[end+2:], "0123456789.e+-") == ""
}

// assigned reports whether a line gives a variable a text: rate_limit_error = "...".
func assigned(low string) bool {
	name, value, ok := strings.Cut(low, " = ")
	return ok && name != "" && !strings.HasSuffix(low, ",") && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789_.") == "" && startsWithAny(value, `"`, "'", `f"`, "f'")
}

// statuses returns how many different statuses of errors stand on a line: three are a list of them.
func statuses(low string) int {
	var seen [200]bool
	n := 0
	eachWord(low, func(i, end int) bool {
		if s := statusOf(low[i:end]); s != 0 && !seen[s-400] {
			seen[s-400] = true
			n++
		}
		return true
	})
	return n
}

// ofOthers reports whether a line is the error of a program that has nothing to do with a model: "ssh: connect to host".
func ofOthers(low string) bool {
	i := 0
	for i < len(low) && (isWord(low[i]) || low[i] == '-') {
		i++
	}
	switch low[:i] {
	case "ssh", "scp", "rsync", "docker", "podman", "git", "npm", "yarn", "pnpm", "pip", "apt", "apt-get", "brew", "cargo", "make", "kubectl", "helm",
		"terraform", "psql", "pg_dump", "mysqldump", "tar", "cp", "mv", "rm", "dd", "ls", "cat", "mkdir", "ln", "find", "grep", "sed", "awk", "mount", "gcc", "clang",
		"ld", "cc1", "rustc", "javac", "mvn", "gradle", "ffmpeg", "systemctl", "systemd", "dpkg", "snap", "openssl", "psycopg2", "psycopg", "redis", "pymongo", "sqlalchemy", "mysql", "sudo", "bash", "sh", "zsh", "mcp", "wget", "elasticsearch", "kafka",
		"remote", "pytest", "subprocess", "sqlite3", "django", "celery":
		return true
	case "fatal":
		return startsWithAny(low, "fatal: unable to access", "fatal: not a git", "fatal: could not read", "fatal: repository", "fatal: authentication failed for")
	case "curl":
		return startsWithAny(low, "curl: (22)")
	}
	return false
}

// found reports whether a line is what a search in files prints of a comment: "src/client.ts:42:  // ...".
func found(low string) bool {
	place, rest, ok := strings.Cut(low, ":")
	if !ok || !strings.Contains(place, ".") || strings.Contains(place, " ") {
		return false
	}
	number, rest, ok := strings.Cut(rest, ":")
	return ok && number != "" && strings.Trim(number, "0123456789") == "" && startsWithAny(strings.TrimSpace(rest), "//", "#", "/*", "*", "--")
}

// stackFrame reports whether a line is a frame of a stack as Node and Java print it: "at f (file.js:1:2)".
func stackFrame(low string) bool {
	if !strings.HasPrefix(low, "at ") {
		return false
	}
	line := strings.TrimRight(low, " ){}")
	colon := strings.LastIndexByte(line, ':')
	return colon > 0 && colon+1 < len(line) && strings.Trim(line[colon+1:], "0123456789") == "" ||
		startsWithAny(low, "at async ", "at new ", "at process.") || strings.Contains(low, "<anonymous>") || strings.HasSuffix(low, "(unknown)") ||
		strings.Contains(low, "(native") || strings.Contains(low, "file://")
}

// toolCall reports whether a line is the head under which an agent shows what a tool did: "Bash(npm ci)".
func toolCall(line string) bool {
	name, rest, ok := strings.Cut(line, "(")
	if closes := strings.IndexByte(rest, ')'); closes >= 0 && strings.HasPrefix(rest[closes+1:], ":") {
		return false // of a program's object, which says what went wrong behind it
	}
	if !ok || name == "" || len(name) > 24 || !strings.HasSuffix(rest, ")") && !strings.HasSuffix(rest, "…") || isException(name) {
		return false
	}
	for i := range len(name) {
		if !isLetter(name[i]) {
			return false
		}
	}
	switch name {
	case "Error", "Exception", "error":
		return false
	}
	return name[0] >= 'A' && name[0] <= 'Z'
}

// commitTitle reports whether a line is the title of a commit: behind its hash, or in the conventional form.
func commitTitle(line string) bool {
	line = strings.TrimLeft(line, "*-• ")
	if hash, _, ok := strings.Cut(line, " "); ok && len(hash) >= 7 && len(hash) <= 40 && strings.Trim(hash, "0123456789abcdef") == "" &&
		strings.ContainsAny(hash, "abcdef") {
		return true
	}
	head, _, ok := strings.Cut(line, ":")
	if !ok || len(head) > 60 {
		return false
	}
	head = strings.TrimSuffix(asciiLower(head), "!")
	kind, _, _ := strings.Cut(head, "(")
	switch kind {
	case "feat", "fix", "chore", "docs", "refactor", "test", "tests", "perf", "ci", "build", "style", "revert", "feature", "bugfix", "hotfix", "wip":
		return true
	}
	return false
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
