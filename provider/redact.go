package provider

import (
	"encoding/json"
	"slices"
	"strings"
)

// struck stands where a key stood.
const struck = "***"

// leastKey is the length below which a text is no key: striking it out would strike out ordinary words.
const leastKey = 4

// Redact returns s without keys: those of the forms that providers give out (sk-..., AIza..., gsk_...), whatever
// follows "Bearer " or is called a key or password in a header, an address or JSON, and exactly the given ones, which may
// have any form. A key is found also where it is escaped, as JSON, addresses and HTML do it, and a given one in base64.
// Given keys of fewer than four characters are not looked for: they would strike out ordinary text. What is JSON stays
// JSON.
//
// It is for texts that others wrote, such as errors. Strike is for data.
func Redact(s string, keys ...string) string { return redaction{keys: keys}.of(s) }

// Strike returns s without the given keys, and without what can be nothing but a key that a provider gave out. Names, paths
// and ids stay, whatever they remind of. What is JSON stays JSON.
func Strike(s string, keys ...string) string { return redaction{keys: keys, certain: true}.of(s) }

// redaction is what is struck out of texts.
type redaction struct {
	keys    []string // that are given
	certain bool     // of others, only what is nothing but a key
	given   bool     // no others
}

// of returns s without keys. Where that cuts JSON apart, each of its values is seen to by itself.
func (r redaction) of(s string) string {
	got := r.seenAndUnseen(s)
	if got == s {
		return s
	}
	if json.Valid([]byte(s)) {
		if json.Valid([]byte(got)) {
			return got
		}
		return r.ofJSON(s)
	}
	if strings.IndexByte(strings.TrimRight(s, "\n"), '\n') < 0 {
		return got
	}
	var b strings.Builder
	for line := range strings.SplitAfterSeq(s, "\n") {
		if !json.Valid([]byte(line)) && strings.TrimSpace(line) != "" {
			return got // lines of JSON alone
		}
		b.WriteString(r.of(line))
	}
	if r.left(b.String()) {
		return got // a key that goes over several lines
	}
	return b.String()
}

// left reports whether a given key is still in s.
func (r redaction) left(s string) bool {
	for _, k := range r.keys {
		if k = strings.TrimSpace(k); len(k) >= leastKey && k != struck && holds([]byte(s), []byte(k)) {
			return true
		}
	}
	return false
}

func (r redaction) seenAndUnseen(s string) string {
	s = r.once(s)
	// What nobody sees is taken out only where a key comes to light by that.
	if bare := withoutUnseen(s); len(bare) < len(s) {
		if clean := r.once(bare); clean != bare {
			return clean
		}
	}
	return s
}

func (r redaction) once(s string) string {
	keys := r.keys
	if len(keys) > 1 { // one may begin another, of which the rest would stay
		keys = slices.SortedFunc(slices.Values(keys), func(a, b string) int { return len(b) - len(a) })
	}
	for _, k := range keys {
		k = strings.TrimSpace(k)
		if len(k) < leastKey || k == struck {
			continue
		}
		if holds([]byte(s), []byte(k)) {
			s = string(strikeKey([]byte(s), []byte(k)))
		}
	}
	if r.given || !suspicious(s) {
		return s
	}
	var b strings.Builder
	done := 0
	for i := 0; i < len(s); {
		n, keep := r.secretAt(s, i)
		if n == 0 {
			i++
			continue
		}
		start := i + keep
		if keep == 0 {
			start -= torn(s[done:i])
		}
		b.WriteString(s[done:start])
		b.WriteString(struck)
		i += n
		done = i
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// torn returns 1 if what follows before is the rest of an escape, such as the n of \n: its backslash goes with it.
func torn[T string | []byte](before T) int {
	n := 0
	for n < len(before) && before[len(before)-1-n] == '\\' {
		n++
	}
	return n % 2
}

// suspicious reports whether s can hold a key at all: nearly no text does.
func suspicious(s string) bool {
	for _, mark := range [...]string{"-", "_", "=", ":", "%2", "%5", `\u`, "&#", "earer", "AIza", "AKIA", "EARER"} {
		if strings.Contains(s, mark) {
			return true
		}
	}
	return false
}

// tokens are how keys begin, and how many characters make one at least. Sources: the key pages of OpenAI, Anthropic and
// OpenRouter (sk-), Groq (gsk_), xAI (xai-), Google (AIza), Hugging Face (hf_), Perplexity (pplx-), Fireworks (fw_),
// NVIDIA (nvapi-), Replicate (r8_), AWS (AKIA), GitHub (ghp_, github_pat_); slk- begins those of our gateway's clients.
var tokens = [...]struct {
	prefix string
	least  int
}{
	{"sk-", 6}, {"sk_", 12}, {"gsk_", 8}, {"xai-", 8}, {"AIza", 16}, {"hf_", 12}, {"pplx-", 8}, {"fw_", 12}, {"nvapi-", 8},
	{"r8_", 12}, {"AKIA", 12}, {"ASIA", 12}, {"ghp_", 12}, {"github_pat_", 12}, {"eyJ", 24}, {"slk-", 16},
}

// labels are what a key is called where its value follows after = or :, in lower case.
var labels = [...]string{
	"x-api-key", "x-goog-api-key", "api-key", "api_key", "apikey", "ocp-apim-subscription-key", "subscription-key",
	"authorization", "access_token", "auth_token", "client_secret", "openai_api_key", "anthropic_api_key", "key", "sig",
	"token", "password", "passwd", "secret",
}

// secretAt reports whether a secret begins at s[i]: how long it is with its label, and how much of that is label.
func (r redaction) secretAt(s string, i int) (n, keep int) {
	if s[i] == ':' && !r.certain {
		return userinfo(s[i:])
	}
	if i > 0 && isWord(s[i-1]) {
		return 0, 0
	}
	for _, t := range tokens {
		if s[i] != t.prefix[0] {
			continue // they begin with letters, which nobody escapes
		}
		if end := spelled(s, i, t.prefix); end > 0 {
			const enough = 512 // to tell what it is: a text of prefixes alone must not be read to its end at each of them
			if m := run(s[end:min(len(s), end+enough)]); m >= t.least && r.believes(t.prefix, s[end:end+m]) {
				return end + run(s[end:]) - i, 0
			}
		}
	}
	if r.certain {
		return 0, 0
	}
	if k := bearer(s[i:]); k > 0 {
		if m := run(s[i+k:]); m > 0 {
			return k + m, k
		}
	}
	if n, keep := cookies(s[i:]); n > 0 {
		return n, keep
	}
	return labelled(s, i)
}

// userinfo reports whether s goes on after the scheme of an address with a user and a password.
func userinfo(s string) (n, keep int) {
	const after = "://"
	if !strings.HasPrefix(s, after) {
		return 0, 0
	}
	end := strings.IndexAny(s[len(after):], "/?#\"'<> \t\r\n\\")
	if end < 0 {
		end = len(s) - len(after)
	}
	at := strings.LastIndexByte(s[:len(after)+end], '@')
	if at < 0 || !strings.Contains(s[len(after):at], ":") {
		return 0, 0
	}
	return at, len(after)
}

// cookies reports whether s begins with a header of cookies, all of whose line is struck out.
func cookies(s string) (n, keep int) {
	for _, name := range [...]string{"set-cookie", "cookie"} {
		if len(s) <= len(name) || name[0] != s[0]|0x20 || !strings.EqualFold(s[:len(name)], name) {
			continue
		}
		k := len(name)
		k += opening(s[k:])
		if k == len(s) || s[k] != ':' && s[k] != '=' {
			continue
		}
		k++
		k += opening(s[k:])
		end := strings.IndexAny(s[k:], "\"'\r\n\\]")
		if end < 0 {
			end = len(s) - k
		}
		if strings.Contains(s[k:k+end], "=") || end >= 16 { // less is a sentence's
			return k + end, k
		}
	}
	return 0, 0
}

// bearer returns the length of "Bearer " or "Basic " at the beginning of s where a key follows, and no word.
func bearer(s string) int {
	k := scheme(s)
	if k == 0 {
		return 0
	}
	const longestWord = 20
	value := s[k : k+run(s[k:])]
	if len(value) < 6 || len(value) < longestWord && !strings.ContainsAny(value, "0123456789*%\\") {
		return 0
	}
	if s[1]|0x20 == 'a' && len(value) < 16 { // "basic " begins sentences, too
		return 0
	}
	return k
}

// scheme returns the length of "Bearer " or "Basic " at the beginning of s.
func scheme(s string) int {
	for _, scheme := range [...]string{"bearer", "basic"} {
		if len(s) > len(scheme) && scheme[0] == s[0]|0x20 && strings.EqualFold(s[:len(scheme)], scheme) {
			k := len(scheme)
			for k < len(s) && (s[k] == ' ' || s[k] == '\t') {
				k++
			}
			if k > len(scheme) {
				return k
			}
		}
	}
	return 0
}

// opening returns the length of what may stand between a label and its value, besides : and =. A backslash is of it only
// where it escapes a quote: else it is the value's.
func opening(s string) int {
	i := 0
	for i < len(s) {
		n := i
		for n < len(s) && s[n] == '\\' {
			n++
		}
		if n == len(s) || s[n] != '"' && s[n] != '\'' && (n > i || s[n] != ' ' && s[n] != '[') {
			break
		}
		i = n + 1
	}
	return i
}

// labelled reports whether a label and its value begin at s[i].
func labelled(s string, i int) (n, keep int) {
	for _, label := range labels {
		if label[0] != s[i]|0x20 || len(s)-i <= len(label) || !strings.EqualFold(s[i:i+len(label)], label) {
			continue
		}
		j := i + len(label)
		j += opening(s[j:])
		if j >= len(s) || s[j] != ':' && s[j] != '=' {
			continue
		}
		equals := s[j] == '='
		j++
		j += opening(s[j:])
		k := scheme(s[j:])
		address := equals && i > 0 && strings.IndexByte("?&;", s[i-1]) >= 0
		if len(label) <= len("token") && !address && !opaque(s[j:j+run(s[j:])]) {
			continue // "key: value" is a sentence's, "key=value" a file's, "?key=" is an address's
		}
		m := run(s[j+k:])
		if m < 4 || !equals && m < 6 {
			continue
		}
		return j + k + m - i, j + k - i
	}
	return 0, 0
}

// believes reports whether what follows a prefix of keys makes a key of it: names begin so, too, as in sk-experiments/.
func (r redaction) believes(prefix, rest string) bool {
	if !r.certain {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			rest = rest[:i]
		}
		// A name is made of words: none is as long, and few have digits.
		return strings.ContainsAny(rest, `*%\&`) || mixed(rest, 8) || len(rest) >= 20 && (strings.ContainsAny(rest, "0123456789") ||
			strings.HasPrefix(rest, "proj-")) || len(rest) >= 16 && !strings.ContainsAny(rest, "-_")
	}
	least := 20
	switch prefix {
	case "AKIA", "ASIA":
		least = 16
	case "slk-": // who makes one is told it
		return false
	case "eyJ": // JSON begins so in base64, and a signed token has two of them
		if !strings.Contains(rest, ".eyJ") {
			return false
		}
	}
	i := 0
	for i < len(rest) {
		c, n := rest[i], 1
		if c == '\\' || c == '%' || c == '&' {
			if c, n = unescape(rest, i); n == 0 {
				break
			}
		}
		if !isWord(c) && c != '-' {
			break
		}
		i += n
	}
	return i >= least && opaque(rest[:i])
}

// opaque reports whether a value is no word or name: it has a long stretch of letters and digits mixed.
func opaque(value string) bool { return mixed(value, 12) }

// mixed reports whether a value has so long a stretch of letters and digits mixed.
func mixed(value string, least int) bool {
	letters, digits := 0, 0
	for i := range len(value) {
		switch c := value[i]; {
		case isLetter(c):
			letters++
		case c >= '0' && c <= '9':
			digits++
		default:
			letters, digits = 0, 0
		}
		if letters > 0 && digits > 0 && letters+digits >= least {
			return true
		}
	}
	return false
}

// run returns how many characters at the beginning of s a key may have, escaped ones among them.
func run(s string) int {
	i := 0
	for i < len(s) {
		c, n := s[i], 1
		if c == '\\' || c == '&' {
			if c, n = unescape(s, i); n == 0 {
				break
			}
		}
		if !isWord(c) && strings.IndexByte("-*.~+/%", c) < 0 && (c != '=' || i == 0) {
			break
		}
		i += n
	}
	// What ends a sentence is not the key's.
	for i > 0 && (s[i-1] == '.' || s[i-1] == '*' && i == 3) {
		i--
	}
	return i
}

func isWord(c byte) bool {
	return c >= '0' && c <= '9' || isLetter(c) || c == '_'
}
