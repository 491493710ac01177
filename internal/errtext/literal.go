package errtext

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// Literal reads an object or a list in JSON, and as Python and JavaScript print it: {'error': {'code': None}}, { message: 'x' }.
// It also reads one that was cut off. It returns false if s does not begin with an object or list that has a member, and says how
// much of s it has read.
func Literal(s string) (v any, ok bool, n int) {
	p := literal{s: s}
	switch v := p.value(0).(type) {
	case map[string]any:
		return v, len(v) > 0, p.i
	case []any:
		return v, len(v) > 0, p.i
	}
	return nil, false, p.i
}

// maxDepth is how deeply literals may be nested: errors are shallow.
const maxDepth = 32

type literal struct {
	s string
	i int
}

// peek returns the next character that is no space; 0 at the end.
func (p *literal) peek() byte {
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n", p.s[p.i]) >= 0 {
		p.i++
	}
	if p.i == len(p.s) {
		return 0
	}
	return p.s[p.i]
}

func (p *literal) value(depth int) any {
	if depth > maxDepth {
		p.i = len(p.s)
		return nil
	}
	switch p.peek() {
	case '{':
		m := map[string]any{}
		p.members('}', func() bool {
			key, _ := p.value(maxDepth).(string)
			if p.peek() != ':' {
				return key != "" // else it is no object after all
			}
			p.i++
			m[key] = p.value(depth + 1)
			return true
		})
		return m
	case '[', '(':
		list, end := []any{}, map[byte]byte{'[': ']', '(': ')'}[p.peek()]
		p.members(end, func() bool { list = append(list, p.value(depth+1)); return true })
		return list
	case '"', '\'':
		return p.quoted()
	}
	return p.bare()
}

// members calls read for each member up to the closing bracket or the end, until it returns false.
func (p *literal) members(end byte, read func() bool) {
	for p.i++; ; {
		switch p.peek() {
		case 0:
			return
		case end:
			p.i++
			return
		case ',':
			p.i++
			continue
		}
		at := p.i
		if !read() {
			return
		}
		if p.i == at {
			p.i++
		}
	}
}

// escapes are the characters behind a backslash that stand for others.
var escapes = map[byte]byte{'n': '\n', 't': '\t', 'r': '\r'}

// quoted reads a string in either kind of quotes.
func (p *literal) quoted() string {
	quote := p.s[p.i]
	var b strings.Builder
	for p.i++; p.i < len(p.s) && p.s[p.i] != quote; p.i++ {
		c := p.s[p.i]
		if c == '\\' && p.i+1 < len(p.s) {
			p.i++
			c = p.s[p.i]
			if r, ok := jsonscan.Hex4([]byte(p.s[p.i+1 : min(p.i+5, len(p.s))])); c == 'u' && ok {
				if p.i += 4; !utf8.ValidRune(r) {
					r = utf8.RuneError
				}
				b.WriteRune(r)
				continue
			}
			if e, ok := escapes[c]; ok {
				c = e
			}
		}
		b.WriteByte(c)
	}
	p.i = min(p.i+1, len(p.s))
	return b.String()
}

// bare reads a word without quotes: a number, a constant, or the name of a member.
func (p *literal) bare() any {
	start := p.i
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n,:={}[]\"'", p.s[p.i]) < 0 {
		p.i++
	}
	switch word := p.s[start:p.i]; word {
	case "null", "None", "undefined", "":
		return nil
	case "true", "True":
		return true
	case "false", "False":
		return false
	default:
		if (word[0] == '-' || isDigit(word[0])) && json.Valid([]byte(word)) {
			return json.Number(word)
		}
		return word
	}
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// first returns the first member that an object has.
func first(m map[string]any, names ...string) any {
	for _, n := range names {
		if v := m[n]; v != nil {
			return v
		}
	}
	return nil
}
