package errtext

import (
	"encoding/json"
	"io"
	"strings"
	"sync"
	"unicode/utf8"
)

const (
	minEcho   = 3   // length of a quotation, in bytes
	maxEchoes = 100 // texts of a message that are searched in the request
)

// Echo is a request, in which the quotations of an error are searched. Nil is a request that is unknown.
type Echo struct {
	text func() string // of the body, without the escapes of JSON; it is read only if an error has a quotation
}

// NewEcho returns the echo of a request with that body; nil for nil.
func NewEcho(body func() (io.ReadCloser, error)) *Echo {
	if body == nil {
		return nil
	}
	return &Echo{sync.OnceValue(func() string {
		r, err := body()
		if err != nil {
			return ""
		}
		defer r.Close()
		sent, _ := io.ReadAll(r) // what was read before a failure is the request's, too
		var v any
		if json.Unmarshal(sent, &v) != nil {
			return string(sent)
		}
		var all strings.Builder
		texts(v, &all)
		return all.String()
	})}
}

// texts writes all texts of a value.
func texts(v any, all *strings.Builder) {
	switch v := v.(type) {
	case string:
		all.WriteString(v + "\n")
	case []any:
		for _, each := range v {
			texts(each, all)
		}
	case map[string]any:
		for name, each := range v {
			all.WriteString(name + "\n")
			texts(each, all)
		}
	}
}

// quotes are the pairs of marks around a quotation, and the words that one stands behind without a mark.
var quotes = [...][2]string{{`"`, `"`}, {"'", "'"}, {"`", "`"}, {"“", "”"}, {"‘", "’"}, {"«", "»"}, {"input_value=", ""},
	{"got ", ""}}

// without returns a message without its quotations of the request.
func (e *Echo) without(message string) string {
	if e == nil {
		return message
	}
	var kept strings.Builder
	searched := 0
	for s := message; s != ""; {
		n := e.quoted(s, &searched)
		if n == 0 {
			_, n = utf8.DecodeRuneInString(s)
			kept.WriteString(s[:n])
		}
		s = s[n:]
	}
	return kept.String()
}

// quoted returns the length of the quotation with which a text begins; 0 if it begins with none. A quotation goes as far as
// possible, since it may have quotation marks of its own, and to the end of a text that was cut.
func (e *Echo) quoted(s string, searched *int) int {
	for _, q := range quotes {
		rest, ok := strings.CutPrefix(s, q[0])
		if !ok {
			continue
		}
		if e.has(rest, searched) {
			return len(s)
		}
		last := func(s string) int { return strings.LastIndex(s, q[1]) }
		if q[1] == "" {
			last = func(s string) int { return strings.LastIndexAny(s, ",;[ ") }
		}
		for end := last(rest); end > 0 && *searched <= maxEchoes; end = last(rest[:end]) {
			if e.has(rest[:end], searched) {
				return len(q[0]) + end + len(q[1])
			}
		}
	}
	return 0
}

// has reports whether a text, perhaps cut, is of the request.
func (e *Echo) has(s string, searched *int) bool {
	s = strings.TrimSuffix(strings.TrimSuffix(strings.Trim(s, ` "'`), "..."), "…")
	if *searched++; len(s) < minEcho || *searched > maxEchoes {
		return false
	}
	text := e.text()
	return strings.Contains(text, s) || strings.ContainsRune(s, '\\') && strings.Contains(text, unescaped.Replace(s))
}

var unescaped = strings.NewReplacer(`\n`, "\n", `\t`, "\t", `\"`, `"`, `\'`, "'", `\\`, `\`)
