// Package redact removes secrets from text and from streams of bytes, in time linear in their length.
//
// The guarantee: at most 8 consecutive characters of a known secret stay in the output, and a shorter secret does not stay whole,
// unless a backslash, "%" or "&" is in it or before it and makes an escape of its characters.
// The secret has from [Shortest] characters to [Longest] bytes. This holds whether its characters stand as they are or in a mix
// of JSON escapes (\/, \u002f, \x2f, behind any number of backslashes), percent-encoding and HTML entities, and if white space,
// backslashes, invisible characters or terminal colors part them. For secrets of at least [ShortestEncoded] characters it holds
// in hexadecimal and in base64 too, with either alphabet and behind any number of other bytes. It holds across the pieces of a
// stream. White space, control characters and backslashes of a secret do not count, and its other characters are of ASCII. Text
// that is compressed, encrypted or escaped twice is not read, except that JSON may stand in JSON and HTML in JSON.
//
// Secrets that nobody named are found by their form, such as sk-... or password=..., in Text and Data only.
package redact

import (
	"strings"
	"sync"
)

const (
	// Shortest is the length of the shortest secret that is looked for. A shorter one would remove parts of ordinary words.
	Shortest = 4

	// Longest is how many bytes of a secret are looked for. No key is longer, and what clients send must not fill the memory.
	Longest = 8 << 10

	// ShortestEncoded is the length of the shortest secret that is looked for in base64 and hexadecimal: one character more than a
	// window has, since "%" before the digits makes an escape of the first two.
	ShortestEncoded = 9

	// Mask stands in the results of Text, Data and Known in place of a secret.
	Mask = "***"
)

// Redactor removes its secrets. It is immutable and safe for concurrent use. The zero value knows no secret.
type Redactor struct {
	patterns patterns
}

// redactors are kept from one use to the next: most texts are searched for the same few keys. This is mutable and of the package,
// since callers have keys, and none of them has a place for what is made of them.
var redactors struct {
	mu   sync.Mutex
	all  map[string]*Redactor
	size int // of their tables, in windows
}

const maxWindows = 1 << 20 // 8 MiB

// New returns the Redactor of some secrets. Those of fewer than Shortest characters, apart from white space, control characters and
// backslashes, are ignored.
func New(secrets ...string) *Redactor {
	name := strings.Join(secrets, "\x00")
	redactors.mu.Lock()
	defer redactors.mu.Unlock()
	if r := redactors.all[name]; r != nil {
		return r
	}
	r := &Redactor{patterns: patternsOf(secrets)}
	if redactors.size += len(r.patterns.table); redactors.all == nil || redactors.size > maxWindows {
		redactors.all, redactors.size = make(map[string]*Redactor), len(r.patterns.table)
	}
	redactors.all[name] = r
	return r
}

// Text returns a text that others wrote, such as an error message, without the secrets and without whatever else looks like
// one. What is JSON stays JSON.
func (r *Redactor) Text(s string) string { return r.redact(s, anyForm) }

// Bytes is Text for a long text. It returns b itself if b has no secret.
func (r *Redactor) Bytes(b []byte) []byte {
	if found := r.find(b, anyForm); len(found) > 0 {
		return r.cut(b, found)
	}
	return b
}

// Data returns data without the secrets and without whatever can only be a key that a provider issued. Names, paths and ids
// stay that merely resemble a secret. What is JSON stays JSON.
func (r *Redactor) Data(s string) string { return r.redact(s, issuedForm) }

// Known returns data without the secrets, or b itself if it has none. What is JSON stays JSON.
func (r *Redactor) Known(b []byte) []byte {
	found := r.findKnown(b)
	if len(found) == 0 {
		return b
	}
	return r.cut(b, found)
}

// Has reports whether a text has one of the secrets in it.
func (r *Redactor) Has(s string) bool { return len(r.findKnown([]byte(s))) > 0 }

func (r *Redactor) redact(s string, f forms) string {
	b := []byte(s)
	if found := r.find(b, f); len(found) > 0 {
		return string(r.cut(b, found))
	}
	return s
}

func (r *Redactor) find(b []byte, f forms) []span { return merge(r.findKnown(b), findForms(b, f)) }

// span is a part of a text: of its bytes from start on, to before end. Lists of them are in order, without overlaps.
type span struct{ start, end int }

// findKnown returns the parts of a text that are secrets of the Redactor.
func (r *Redactor) findKnown(b []byte) (found []span) {
	if len(r.patterns.lengths) == 0 {
		return nil
	}
	m := matcher{patterns: &r.patterns}
	for i := 0; i < len(b); {
		u := readUnit(b[i:], true)
		at := span{i, i + u.n}
		if n, v := m.step(b[i:at.end], at, u); n > 0 {
			found = appendSpan(found, span{v.at(n).start, at.end})
		}
		i = at.end
	}
	return found
}

// appendSpan appends a span whose end is not before those of all others.
func appendSpan(all []span, s span) []span {
	for len(all) > 0 && all[len(all)-1].end >= s.start {
		s.start = min(s.start, all[len(all)-1].start)
		all = all[:len(all)-1]
	}
	return append(all, s)
}

// merge returns the union of two lists of spans.
func merge(a, b []span) []span {
	if len(a) == 0 || len(b) == 0 {
		return append(a, b...)
	}
	all := make([]span, 0, len(a)+len(b))
	for len(a) > 0 || len(b) > 0 {
		if len(b) == 0 || len(a) > 0 && a[0].end <= b[0].end {
			all, a = appendSpan(all, a[0]), a[1:]
		} else {
			all, b = appendSpan(all, b[0]), b[1:]
		}
	}
	return all
}

// replace returns a text with Mask in place of each span.
func replace(b []byte, found []span) []byte {
	out := make([]byte, 0, len(b))
	done := 0
	for _, s := range found {
		out = append(append(out, b[done:s.start]...), Mask...)
		done = s.end
	}
	return append(out, b[done:]...)
}
