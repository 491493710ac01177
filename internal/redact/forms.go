package redact

import (
	"bytes"
	"slices"
	"strings"
)

// forms are the secrets that are found though nobody named them.
type forms int

const (
	issuedForm forms = iota // what can only be a key that a provider issued
	anyForm                 // whatever looks like a secret
)

// token is how keys of one issuer begin.
type token struct {
	prefix string
	min    int // how many characters follow at least
}

// tokens are how keys begin. Sources: the key pages of OpenAI, Anthropic and OpenRouter
// (sk-), Groq (gsk_), xAI (xai-), Google (AIza), Hugging Face (hf_), Perplexity (pplx-), Fireworks (fw_), NVIDIA (nvapi-),
// Replicate (r8_), AWS (AKIA), GitHub (ghp_, github_pat_). slk- begins the keys of tenants.
var tokens = [...]token{
	{"sk-", 6}, {"sk_", 12}, {"gsk_", 8}, {"xai-", 8}, {"AIza", 16}, {"hf_", 12}, {"pplx-", 8}, {"fw_", 12}, {"nvapi-", 8},
	{"r8_", 12}, {"AKIA", 12}, {"ASIA", 12}, {"ghp_", 12}, {"github_pat_", 12}, {"eyJ", 24}, {"slk-", 16},
}

// labels are the names of secrets whose value follows after = or :, in lower case.
var labels = [...]string{
	"x-api-key", "x-goog-api-key", "api-key", "api_key", "apikey", "ocp-apim-subscription-key", "subscription-key",
	"authorization", "access_token", "auth_token", "client_secret", "openai_api_key", "anthropic_api_key", "key", "sig",
	"token", "password", "passwd", "secret",
}

var (
	cookieNames = [...]string{"set-cookie", "cookie"}
	schemes     = [...]string{"bearer", "basic"}
)

// Tokens and labels by their first letter, of any case.
var tokensOf, labelsOf = func() (t [1 << 5][]token, l [1 << 5][]string) {
	for _, token := range tokens {
		i := token.prefix[0] % 32
		t[i] = append(t[i], token)
	}
	for _, label := range labels {
		i := label[0] % 32
		l[i] = append(l[i], label)
	}
	return t, l
}()

// endsAddress are the characters that end the host of an address, and the user before it.
var endsAddress = setOf("/?#\"'<> \t\r\n\\")

// leads are the pairs of characters that a secret or its label can begin with, in lower case.
var leads = func() (t [1 << 10]uint64) {
	names := slices.Concat(labels[:], cookieNames[:], schemes[:], []string{"://"})
	for _, token := range tokens {
		names = append(names, token.prefix)
	}
	for _, name := range names {
		i := pair([]byte(name))
		t[i/64] |= 1 << (i % 64)
	}
	return t
}()

func pair(b []byte) int { return int(b[0]|0x20)<<8 | int(b[1]|0x20) }

// leadsAt reports whether a secret or its label can begin at b[i].
func leadsAt(b []byte, i int) bool {
	if i+1 == len(b) {
		return false
	}
	p := pair(b[i:])
	return leads[p/64]&(1<<(p%64)) != 0
}

// findForms returns the secrets of some form in a text, read both as it is and without its escapes.
func findForms(b []byte, f forms) []span {
	found := scanForms(b, f)
	for i, s := range found {
		for s.start > 0 && b[s.start-1] == '\\' { // else the rest of an escape would stay, such as the backslash of \n
			s.start--
		}
		found[i] = s
	}
	if !slices.ContainsFunc(b, func(c byte) bool { return !ordinary[c] && !skipped(c) || c == 0x1b }) {
		return found
	}
	return merge(found, inSource(b, scanForms(decode(b, true), f)))
}

// inSource returns where spans of the decoded text stand in the text, with what nobody sees around them.
func inSource(b []byte, found []span) []span {
	at, i := 0, 0 // of the decoded text, and of b
	to := func(decoded int, beyond bool) int {
		for i < len(b) {
			u := readUnit(b[i:], true)
			if at == decoded && (u.c != 0 || !beyond) {
				break
			}
			if i += u.n; u.c != 0 {
				at++
			}
		}
		return i
	}
	for k, s := range found {
		found[k] = span{to(s.start, false), to(s.end, true)}
	}
	return found
}

// scanForms returns the secrets of some form in a text without escapes.
func scanForms(b []byte, f forms) (found []span) {
	x := scan{b: b, f: f}
	for i := 0; i < len(b); {
		if !leadsAt(b, i) {
			i++
			continue
		}
		s := x.secretAt(i)
		if s.end == 0 {
			i++
			continue
		}
		found = appendSpan(found, s)
		i = s.end
	}
	return found
}

// scan looks for secrets in a text from its beginning to its end. It remembers what it found ahead, so that no part of the text is
// read again for each label that stands before it.
type scan struct {
	b     []byte
	f     forms
	ahead [classes]lookahead
	mixes [2]lookahead
	run   span // the end of a run of the characters of keys, and without the dots that end it
}

// lookahead is the first place, from some place on, that a search finds.
type lookahead struct {
	known      bool
	from       int
	start, end int
}

// class is a set of characters.
type class int

const (
	foreign class = iota // not in keys
	digit
	slash
	joint  // of names made of words
	escape // of keys alone
	apart  // in no key that a provider issued
	classes
)

func (k class) has(c byte) bool {
	switch k {
	case digit:
		return isDigit(c)
	case slash:
		return c == '/'
	case joint:
		return c == '-' || c == '_'
	case escape:
		return c == '*' || c == '%'
	case apart:
		return !isWord(c) && c != '-'
	}
	return !isWord(c) && strings.IndexByte("-*.~+/%=", c) < 0
}

// next returns where the first character of a class stands from i on, or the length of the text.
func (x *scan) next(k class, i int) int {
	l := &x.ahead[k]
	if !l.known || i < l.from || i > l.start {
		l.known, l.from, l.start = true, i, i
		for l.start < len(x.b) && !k.has(x.b[l.start]) {
			l.start++
		}
	}
	return l.start
}

// mixed reports whether b[i:end] has a stretch of letters and digits mixed that is so long, 8 or 12: no word or name has.
func (x *scan) mixed(i, end, min int) bool {
	l := &x.mixes[min/12]
	if !l.known || i < l.from || i > l.start {
		*l = lookahead{true, i, len(x.b), len(x.b) + 1}
		letters, digits := 0, 0
		for j := i; j < len(x.b); j++ {
			switch c := x.b[j]; {
			case isLetter(c):
				letters++
			case isDigit(c):
				digits++
			default:
				letters, digits = 0, 0
			}
			if letters > 0 && digits > 0 && letters+digits >= min {
				l.start, l.end = j+1-letters-digits, j+1
				break
			}
		}
	}
	return l.end <= end
}

// value returns the end of what may be a key and begins at i.
func (x *scan) value(i int) int {
	if i == len(x.b) || x.b[i] == '=' {
		return i
	}
	end := x.next(foreign, i)
	if end != x.run.end {
		x.run = span{end, end}
		for x.run.start > 0 && x.b[x.run.start-1] == '.' { // which ends a sentence
			x.run.start--
		}
	}
	end = max(i, x.run.start)
	if string(x.b[i:end]) == Mask {
		return i
	}
	return end
}

// secretAt returns the secret that begins at i, or behind its label there. Its end is 0 if there is none.
func (x *scan) secretAt(i int) span {
	if x.b[i] == ':' {
		if x.f == anyForm {
			return x.userinfo(i)
		}
		return span{}
	}
	if i > 0 && isWord(x.b[i-1]) {
		return span{}
	}
	for _, t := range tokensOf[x.b[i]%32] {
		if !hasPrefix(x.b[i:], t.prefix) {
			continue
		}
		start := i + len(t.prefix)
		if end := x.value(start); end-start >= t.min && x.believes(t.prefix, start, end) {
			return span{i, end}
		}
	}
	if x.f != anyForm {
		return span{}
	}
	if start := x.bearer(i); start > 0 {
		if end := x.value(start); end > start {
			return span{start, end}
		}
	}
	if s := x.cookies(i); s.end > 0 {
		return s
	}
	return x.labelled(i)
}

// believes reports whether b[i:end] behind a prefix of keys makes a key of it: names begin so too, as in sk-experiments/.
func (x *scan) believes(prefix string, i, end int) bool {
	if x.f == anyForm {
		end = min(end, x.next(slash, i))
		n := end - i
		// A name is made of words: none is as long, and few have digits.
		return x.next(escape, i) < end || x.mixed(i, end, 8) ||
			n >= 20 && (x.next(digit, i) < end || hasPrefix(x.b[i:end], "proj-")) || n >= 16 && x.next(joint, i) >= end
	}
	least := 20
	switch prefix {
	case "AKIA", "ASIA":
		least = 16
	case "slk-": // who makes one is told it
		return false
	case "eyJ": // JSON begins so in base64, and a signed token has two of them
		const enough = 512
		if !bytes.Contains(x.b[i:min(end, i+enough)], []byte(".eyJ")) {
			return false
		}
	}
	end = min(end, x.next(apart, i))
	return end-i >= least && x.mixed(i, end, 12)
}

// userinfo returns the user and password in an address whose scheme ends at i.
func (x *scan) userinfo(i int) span {
	const after = "://"
	if !hasPrefix(x.b[i:], after) {
		return span{}
	}
	i += len(after)
	end := 0
	for i+end < len(x.b) && !endsAddress[x.b[i+end]] {
		end++
	}
	at := bytes.LastIndexByte(x.b[i:i+end], '@')
	if at < 0 || bytes.IndexByte(x.b[i:i+at], ':') < 0 {
		return span{}
	}
	return span{i, i + at}
}

// cookies returns the rest of a line that is a header of cookies.
func (x *scan) cookies(i int) span {
	for _, name := range cookieNames {
		if !hasPrefixFold(x.b[i:], name) {
			continue
		}
		k := x.assignment(i + len(name))
		if k == 0 {
			continue
		}
		end := bytes.IndexAny(x.b[k:], "\"'\r\n\\]")
		if end < 0 {
			end = len(x.b) - k
		}
		if bytes.IndexByte(x.b[k:k+end], '=') >= 0 || end >= 16 { // less is a sentence's
			return span{k, k + end}
		}
	}
	return span{}
}

// bearer returns where a key begins behind "Bearer " or "Basic " at i; 0 if it is a word or nothing.
func (x *scan) bearer(i int) int {
	start := x.scheme(i)
	if start == 0 {
		return 0
	}
	const longestWord = 20
	end := x.value(start)
	n := end - start
	if n < 6 || n < longestWord && x.next(digit, start) >= end && x.next(escape, start) >= end {
		return 0
	}
	if x.b[i+1]|0x20 == 'a' && n < 16 { // "basic " begins sentences, too
		return 0
	}
	return start
}

// scheme returns the end of "Bearer " or "Basic " at i; 0 if there is none.
func (x *scan) scheme(i int) int {
	for _, scheme := range schemes {
		if !hasPrefixFold(x.b[i:], scheme) {
			continue
		}
		k := i + len(scheme)
		for k < len(x.b) && (x.b[k] == ' ' || x.b[k] == '\t') {
			k++
		}
		if k > i+len(scheme) {
			return k
		}
	}
	return 0
}

// assignment returns where the value begins behind a label that ends at i, with = or : between them; 0 if there is none.
func (x *scan) assignment(i int) int {
	i = x.opening(i)
	if i == len(x.b) || x.b[i] != ':' && x.b[i] != '=' {
		return 0
	}
	return x.opening(i + 1)
}

// opening returns the end of what may stand between a label and its value, besides : and =. A backslash is of it only where
// it escapes a quote: else it is the value's.
func (x *scan) opening(i int) int {
	for i < len(x.b) {
		n := i
		for n < len(x.b) && x.b[n] == '\\' {
			n++
		}
		if n == len(x.b) || x.b[n] != '"' && x.b[n] != '\'' && (n > i || x.b[n] != ' ' && x.b[n] != '[') {
			break
		}
		i = n + 1
	}
	return i
}

// labelled returns the value behind a label at i.
func (x *scan) labelled(i int) span {
	for _, label := range labelsOf[x.b[i]%32] {
		if !hasPrefixFold(x.b[i:], label) {
			continue
		}
		j := x.assignment(i + len(label))
		if j == 0 {
			continue
		}
		k := max(j, x.scheme(j))
		equals := bytes.IndexByte(x.b[i+len(label):j], '=') >= 0
		address := equals && i > 0 && strings.IndexByte("?&;", x.b[i-1]) >= 0
		if len(label) <= len("token") && !address && !x.mixed(j, x.value(j), 12) {
			continue // "key: value" is a sentence's, "key=value" a file's, "?key=" is an address's
		}
		end := x.value(k)
		if n := end - k; n >= 6 || equals && n >= 4 {
			return span{k, end}
		}
	}
	return span{}
}

func hasPrefix(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix
}

// hasPrefixFold compares with a prefix in lower case, which the text must not end with.
func hasPrefixFold(b []byte, prefix string) bool {
	if len(b) <= len(prefix) {
		return false
	}
	for i := range len(prefix) {
		c := b[i]
		if c >= 'A' && c <= 'Z' {
			c |= 0x20
		}
		if c != prefix[i] {
			return false
		}
	}
	return true
}
