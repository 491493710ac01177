package provider

import (
	"strings"
)

// struck stands where a key stood.
const struck = "***"

// leastKey is the length below which a text is no key: striking it out would strike out ordinary words.
const leastKey = 4

// Redact returns s without keys: those of the forms that providers give out (sk-..., AIza..., gsk_...), whatever
// follows "Bearer " or is called a key or password in a header, an address or JSON, and exactly the given ones, which may
// have any form. A key is found also where it is escaped, as JSON, addresses and HTML do it, and a given one in base64.
// Given keys of fewer than four characters are not looked for: they would strike out ordinary text.
func Redact(s string, keys ...string) string {
	s = redact(s, keys)
	// What nobody sees is taken out only where a key comes to light by that.
	if bare := withoutUnseen(s); len(bare) < len(s) {
		if clean := redact(bare, keys); clean != bare {
			return clean
		}
	}
	return s
}

func redact(s string, keys []string) string {
	for _, k := range keys {
		k = strings.TrimSpace(k)
		if len(k) < leastKey || k == struck {
			continue
		}
		if holds([]byte(s), []byte(k)) {
			s = string(strikeKey([]byte(s), []byte(k)))
		}
	}
	if !suspicious(s) {
		return s
	}
	var b strings.Builder
	done := 0
	for i := 0; i < len(s); {
		n, keep := secretAt(s, i)
		if n == 0 {
			i++
			continue
		}
		b.WriteString(s[done : i+keep])
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
// NVIDIA (nvapi-), Replicate (r8_), AWS (AKIA), GitHub (ghp_, github_pat_).
var tokens = [...]struct {
	prefix string
	least  int
}{
	{"sk-", 6}, {"sk_", 12}, {"gsk_", 8}, {"xai-", 8}, {"AIza", 16}, {"hf_", 12}, {"pplx-", 8}, {"fw_", 12}, {"nvapi-", 8},
	{"r8_", 12}, {"AKIA", 12}, {"ASIA", 12}, {"ghp_", 12}, {"github_pat_", 12}, {"eyJ", 24},
}

// labels are what a key is called where its value follows after = or :, in lower case.
var labels = [...]string{
	"x-api-key", "x-goog-api-key", "api-key", "api_key", "apikey", "ocp-apim-subscription-key", "subscription-key",
	"authorization", "access_token", "auth_token", "client_secret", "openai_api_key", "anthropic_api_key", "key", "sig",
	"token", "password", "passwd", "secret",
}

// secretAt reports whether a secret begins at s[i]: how long it is with its label, and how much of that is label.
func secretAt(s string, i int) (n, keep int) {
	if s[i] == ':' {
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
			if m := run(s[end:]); m >= t.least {
				return end + m - i, 0
			}
		}
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
		for k < len(s) && strings.IndexByte(`"' \[`, s[k]) >= 0 {
			k++
		}
		if k == len(s) || s[k] != ':' && s[k] != '=' {
			continue
		}
		for k++; k < len(s) && strings.IndexByte(`"' \[`, s[k]) >= 0; k++ {
		}
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

// bearer returns the length of "Bearer " or "Basic " at the beginning of s.
func bearer(s string) int {
	for _, scheme := range [...]string{"bearer", "basic"} {
		if len(s) > len(scheme) && scheme[0] == s[0]|0x20 && strings.EqualFold(s[:len(scheme)], scheme) {
			k := len(scheme)
			for k < len(s) && (s[k] == ' ' || s[k] == '\t') {
				k++
			}
			// "basic " begins sentences, too; a key has digits or is long.
			if k > len(scheme) && (scheme == "bearer" || run(s[k:]) >= 16) && run(s[k:]) >= 6 {
				return k
			}
		}
	}
	return 0
}

// labelled reports whether a label and its value begin at s[i].
func labelled(s string, i int) (n, keep int) {
	for _, label := range labels {
		if label[0] != s[i]|0x20 || len(s)-i <= len(label) || !strings.EqualFold(s[i:i+len(label)], label) {
			continue
		}
		j := i + len(label)
		quoted := j < len(s) && (s[j] == '"' || s[j] == '\'')
		if quoted {
			j++
		}
		for j < len(s) && s[j] == ' ' {
			j++
		}
		if j >= len(s) || s[j] != ':' && s[j] != '=' {
			continue
		}
		equals := s[j] == '='
		for j++; j < len(s) && (s[j] == ' ' || s[j] == '"' || s[j] == '\'' || s[j] == '\\' || s[j] == '['); j++ {
		}
		k := bearer(s[j:])
		if len(label) <= len("token") && !equals && !opaque(s[j:j+run(s[j:])]) {
			continue // "key: value" is a sentence's, "?key=" is an address's
		}
		m := run(s[j+k:])
		if m < 4 || !equals && m < 6 {
			continue
		}
		return j + k + m - i, j + k - i
	}
	return 0, 0
}

// opaque reports whether a value is no word or name: it has a long stretch of letters and digits mixed.
func opaque(value string) bool {
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
		if letters > 0 && digits > 0 && letters+digits >= 12 {
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
