package telemetry

import "strings"

// Open is how many calls are watched.
func (o *OTel) Open() int {
	o.tracer.mu.Lock()
	defer o.tracer.mu.Unlock()
	return len(o.tracer.calls)
}

// String returns an expression that means the same.
func (q Query) String() string {
	var b strings.Builder
	for i, t := range q.terms {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(t.field.name + t.op + quoted(t.word))
	}
	return b.String()
}

// quoted writes a value so that parseWord reads it.
func quoted(word string) string {
	if word != "" && !strings.ContainsAny(word, space) && word[0] != '"' && word[0] != '\'' {
		return word
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(word) + `"`
}
