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

// HasField reports whether name is a top-level field of the endpoint's requests. HasField knows the fields that the provider and compatible
// servers documented on 2026-11-26. HasField also accepts camelCase names in snake_case.
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
