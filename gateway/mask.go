package gateway

import (
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/redact"
)

// mask removes the secrets that a request was sent with from its answer: there are servers that say, mostly in their refusals, what
// they were asked with. What passes keeps its length. The zero value changes nothing.
type mask struct {
	redactor *redact.Redactor
	folded   *redact.Redactor // of the secrets in lower case: names of headers have lost their case
	redact.Stream
}

func newMask(secrets ...string) mask {
	secrets = slices.DeleteFunc(slices.Clone(secrets), isPlaceholder)
	r := redact.New(secrets...)
	return mask{redactor: r, folded: redact.New(strings.Fields(strings.ToLower(strings.Join(secrets, " ")))...), Stream: r.Stream()}
}

// isPlaceholder reports whether a key is a word or a number such as "none", "ollama" or "0000", which servers without keys are
// configured with, and which answers may hold.
func isPlaceholder(key string) bool {
	const shortestKey = 8
	notLetter := func(r rune) bool { return (r|0x20) < 'a' || (r|0x20) > 'z' }
	notDigit := func(r rune) bool { return r < '0' || r > '9' }
	return len(key) < shortestKey && (strings.IndexFunc(key, notLetter) < 0 || strings.IndexFunc(key, notDigit) < 0)
}

// header removes the values that hold a secret.
func (m *mask) header(h http.Header) {
	if m.redactor == nil {
		return
	}
	for name, values := range h {
		if slices.ContainsFunc(values, m.redactor.Has) || m.folded.Has(strings.ToLower(name)) {
			delete(h, name)
		}
	}
}
