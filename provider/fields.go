package provider

import (
	"strings"
	"sync"
)

var fieldSets = sync.OnceValue(func() (sets [numEndpoints]map[string]bool) {
	for e := range specs {
		sets[e] = make(map[string]bool)
		for name := range strings.FieldsSeq(specs[e].fields) {
			sets[e][name], sets[e][snake(name)] = true, true
		}
	}
	return sets
})

// HasField reports whether a name is a top-level field of the endpoint's requests, as the documents of its provider and of
// compatible servers spell it on 2026-11-26. A field by which a request chooses among models beside its own is none, unless the
// endpoint's own provider documents it. A name in camelCase may be in snake_case, as in all JSON of Protocol Buffers.
func (e Endpoint) HasField(name string) bool { return e < numEndpoints && fieldSets()[e][name] }

func snake(camel string) string {
	var b strings.Builder
	for _, c := range camel {
		if c >= 'A' && c <= 'Z' {
			b.WriteByte('_')
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}
