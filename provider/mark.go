package provider

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice"
)

// mark is one name that an error bears.
type mark struct {
	field string
	value string // as it stands there
	name  string // its letters and digits, in lower case: what rules compare
}

// label takes a member that names the error.
func (f *fault) label(key string, v any) {
	switch v := v.(type) {
	case string:
		f.mark(key, v)
	case json.Number:
		f.mark(key, v.String())
	case map[string]any, []any:
		f.walk(v, key, 1)
	}
}

func (f *fault) mark(field, value string) {
	if len(f.marks) >= maxMarks || value == "" || len(value) > 200 {
		return
	}
	name := value
	if field == "exception" { // without its package
		name = name[strings.LastIndexAny(name, ".$")+1:]
	}
	m := mark{field, value, plainName(name)}
	if !slices.Contains(f.marks, m) {
		f.marks = append(f.marks, m)
	}
}

// plainName returns the letters and digits of a name in lower case: rate_limit_exceeded, RateLimitExceeded and
// "ThrottlingException:http://..." and "com.amazon#ThrottlingException" of AWS compare alike.
func plainName(s string) string {
	s, _, _ = strings.Cut(s, ":")
	if i := strings.LastIndexByte(s, '#'); i >= 0 {
		s = s[i+1:]
	}
	var b strings.Builder
	for _, r := range strings.ToLower(s) {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// coded returns the first mark that a provider's own codes explain.
func (f *fault) coded(codes map[string]sluice.Kind) (mark, bool) {
	if len(codes) == 0 {
		return mark{}, false
	}
	for _, m := range f.marks {
		if kind, ok := codes[m.name]; ok && kind != sluice.OK {
			return m, true
		}
	}
	return mark{}, false
}

// named returns the first mark that bears one of the names, in that field if one is given.
func (f *fault) named(names []string, field string) (mark, bool) {
	for _, m := range f.marks {
		if field != "" && m.field != field {
			continue
		}
		for _, name := range names {
			if matches(name, m.name) {
				return m, true
			}
		}
	}
	return mark{}, false
}

// quote keeps the first headers that an error quotes.
func (f *fault) quote(v any) {
	if f.header == nil {
		f.header = headersIn(v)
	}
}

// headersIn returns the headers that an object holds, each as a text or a list of texts.
func headersIn(v any) http.Header {
	m, _ := v.(map[string]any)
	if len(m) == 0 {
		return nil
	}
	h := make(http.Header, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) { // of names that differ in case alone the same one counts each time
		v := m[k]
		if list, ok := v.([]any); ok && len(list) > 0 {
			v = list[0]
		}
		switch v := v.(type) {
		case string:
			h.Set(k, v)
		case json.Number:
			h.Set(k, v.String())
		}
	}
	return h
}

// quotedHeaders returns the headers of an answer and, where it has none of that name, those that its error quotes.
func (f *fault) quotedHeaders(h http.Header) http.Header {
	if len(f.header) == 0 {
		return h
	}
	all := f.header.Clone()
	for k, v := range h {
		all[http.CanonicalHeaderKey(k)] = v
	}
	return all
}

// headerMarks adds what headers name the error.
func (f *fault) headerMarks(h http.Header) {
	for _, k := range [...]string{"X-Amzn-Errortype", "X-Error-Code", "X-Error-Type"} {
		if v := h[k]; len(v) > 0 {
			f.mark(strings.ToLower(k), v[0])
		}
	}
}
