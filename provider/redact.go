package provider

import (
	"net/url"
	"strings"
)

// struck stands where a key stood.
const struck = "***"

// leastKey is the length below which a text is no key: striking it out would strike out ordinary words.
const leastKey = 4

// Redact returns s without keys: those of the forms that providers give out (sk-..., AIza..., gsk_...), whatever
// follows "Bearer " or is called a key in a header, an address or JSON, and exactly the given ones, which may have any
// form. Given keys of fewer than four characters are not looked for: they would strike out ordinary text.
func Redact(s string, keys ...string) string {
	for _, k := range keys {
		k = strings.TrimSpace(k)
		if len(k) < leastKey || k == struck {
			continue
		}
		s = strings.ReplaceAll(s, k, struck)
		if esc := url.QueryEscape(k); esc != k {
			s = strings.ReplaceAll(s, esc, struck)
		}
	}
	if !suspicious(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		n, keep := secretAt(s, i)
		if n == 0 {
			b.WriteByte(s[i])
			i++
			continue
		}
		b.WriteString(s[i : i+keep])
		b.WriteString(struck)
		i += n
	}
	return b.String()
}

// suspicious reports whether s can hold a key at all: nearly no text does.
func suspicious(s string) bool {
	for _, mark := range [...]string{"-", "_", "=", ":", "earer", "AIza", "AKIA", "EARER"} {
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
	"token",
}

// secretAt reports whether a secret begins at s[i]: how long it is with its label, and how much of that is label.
func secretAt(s string, i int) (n, keep int) {
	if i > 0 && isWord(s[i-1]) {
		return 0, 0
	}
	for _, t := range tokens {
		if strings.HasPrefix(s[i:], t.prefix) {
			end := i + run(s[i:])
			if end-i >= len(t.prefix)+t.least {
				return end - i, 0
			}
		}
	}
	if k := bearer(s[i:]); k > 0 {
		if m := run(s[i+k:]); m > 0 {
			return k + m, k
		}
	}
	return labelled(s, i)
}

// bearer returns the length of "Bearer " or "Basic " at the beginning of s.
func bearer(s string) int {
	for _, scheme := range [...]string{"bearer", "basic"} {
		if len(s) > len(scheme) && strings.EqualFold(s[:len(scheme)], scheme) {
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
		if len(s)-i <= len(label) || !strings.EqualFold(s[i:i+len(label)], label) {
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
		if len(label) <= len("token") && !equals {
			continue // "key: value" is a sentence's, "?key=" is an address's
		}
		k := bearer(s[j:])
		m := run(s[j+k:])
		if m < 4 || !equals && m < 6 {
			continue
		}
		return j + k + m - i, j + k - i
	}
	return 0, 0
}

// run returns how many characters at the beginning of s a key may have.
func run(s string) int {
	i := 0
	for i < len(s) && (isWord(s[i]) || strings.IndexByte("-*.~+/%", s[i]) >= 0 || s[i] == '=' && i > 0) {
		i++
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
