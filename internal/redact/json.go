package redact

import (
	"bytes"
	"encoding/json"
)

// cut returns a text without what was found in it. JSON, in one document or in lines, stays JSON.
func (r *Redactor) cut(b []byte, found []span) []byte {
	if !isJSON(b) {
		return replace(b, found)
	}
	out, whole := cutValues(b, found)
	switch {
	case whole || len(r.findKnown(out)) == 0:
		return out
	case json.Valid(b):
		return []byte(`"` + Mask + `"`) // a secret has a part of the document's own signs
	}
	return replace(b, found) // a secret spans several lines
}

// isJSON reports whether a text is a JSON document, or lines of them.
func isJSON(b []byte) bool {
	if json.Valid(b) {
		return true
	}
	for line := range bytes.SplitAfterSeq(b, []byte("\n")) {
		if len(bytes.TrimSpace(line)) > 0 && !json.Valid(line) {
			return false
		}
	}
	return true
}

// cutValues returns JSON without what was found in its texts, numbers and words. A value becomes Mask as a whole if it is not JSON
// without its secret. whole reports whether nothing that was found reaches beyond one value.
func cutValues(b []byte, found []span) (out []byte, whole bool) {
	out, whole = make([]byte, 0, len(b)), true
	for i := 0; i < len(b); {
		n := scalar(b[i:])
		if n == 0 {
			out = append(out, b[i])
			i++
			continue
		}
		inner := span{i, i + n}
		if b[i] == '"' {
			inner = span{i + 1, i + n - 1}
		}
		var of []span // what was found, where it is in this value
		for len(found) > 0 && found[0].start < inner.end {
			s := found[0]
			whole = whole && s.start >= inner.start && s.end <= inner.end
			if s.start, s.end = max(s.start, inner.start)-i, min(s.end, inner.end)-i; s.start < s.end {
				of = append(of, s)
			}
			if found[0].end > inner.end {
				break
			}
			found = found[1:]
		}
		out = append(out, cutValue(b[i:i+n], of)...)
		i += n
	}
	return out, whole && len(found) == 0
}

func cutValue(token []byte, found []span) []byte {
	if len(found) == 0 {
		return token
	}
	if token[0] == '"' {
		if got := replace(token, found); json.Valid(got) {
			return got
		}
	}
	return []byte(`"` + Mask + `"`)
}

// scalar returns the length of the text, number or word of JSON that b begins with.
func scalar(b []byte) int {
	if b[0] != '"' {
		n := 0
		for n < len(b) && !endsScalar[b[n]] {
			n++
		}
		return n
	}
	for i := 1; i < len(b); i++ {
		switch b[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(b)
}

var endsScalar = setOf("{}[],: \t\r\n\"")

// setOf returns a set of characters.
func setOf(all string) (t [256]bool) {
	for _, c := range []byte(all) {
		t[c] = true
	}
	return t
}
