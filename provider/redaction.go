package provider

import (
	"encoding/json"
	"strings"
)

// ofJSON returns a JSON document without keys, which is one again. Each value is seen to together with the name of its
// member; one that cannot be cut is struck out whole.
func (r redaction) ofJSON(s string) string {
	var b strings.Builder
	label := ""
	for i := 0; i < len(s); {
		n := scalar(s[i:])
		if n == 0 {
			if s[i] == '{' || s[i] == '}' {
				label = ""
			}
			b.WriteByte(s[i])
			i++
			continue
		}
		token := s[i : i+n]
		i += n
		if after := strings.TrimLeft(s[i:], " \t\r\n"); after != "" && after[0] == ':' {
			b.WriteString(r.token("", token))
			label = token + ":"
			continue
		}
		b.WriteString(r.token(label, token))
	}
	if r.left(b.String()) {
		return `"` + struck + `"` // a key that has a part of the document's own signs
	}
	return b.String()
}

// token returns a scalar behind its label without keys.
func (r redaction) token(label, token string) string {
	got, ok := strings.CutPrefix(r.seenAndUnseen(label+token), label)
	if !ok { // the name itself has one
		got = r.seenAndUnseen(token)
	}
	if got != token && !json.Valid([]byte(got)) {
		return `"` + struck + `"`
	}
	return got
}

// scalar returns the length of the text, number or word of JSON that s begins with.
func scalar(s string) int {
	if s[0] != '"' {
		n := strings.IndexAny(s, "{}[],: \t\r\n\"")
		if n < 0 {
			return len(s)
		}
		return n
	}
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(s)
}
