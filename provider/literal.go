package provider

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// literal reads the object literals in which programs quote an error: JSON, and what Python and JavaScript print
// ({'error': {'code': None}}, { message: 'x' }). It also reads one that was cut off, as far as it goes. It returns
// false when s does not begin with an object or list that has at least one member.
func literal(s string) (any, bool) {
	v, ok, _ := literalIn(s)
	return v, ok
}

// literalIn is literal, and says how much of s was read.
func literalIn(s string) (v any, ok bool, n int) {
	p := literalParser{s: s}
	switch v := p.value(0).(type) {
	case map[string]any:
		return v, len(v) > 0, p.i
	case []any:
		return v, len(v) > 0, p.i
	}
	return nil, false, p.i
}

// literalDepth is how deeply literals may be nested: errors are shallow.
const literalDepth = 32

type literalParser struct {
	s string
	i int
}

func (p *literalParser) peek() byte {
	for p.i < len(p.s) {
		switch c := p.s[p.i]; c {
		case ' ', '\t', '\n', '\r':
			p.i++
		default:
			return c
		}
	}
	return 0
}

func (p *literalParser) value(depth int) any {
	if depth > literalDepth {
		p.i = len(p.s)
		return nil
	}
	switch c := p.peek(); c {
	case '{':
		return p.object(depth)
	case '[':
		return p.list(depth)
	case '"', '\'':
		return p.quoted()
	case 0:
		return nil
	}
	return p.bare()
}

func (p *literalParser) object(depth int) any {
	m := map[string]any{}
	p.i++
	for {
		switch c := p.peek(); c {
		case 0:
			return m
		case '}':
			p.i++
			return m
		case ',':
			p.i++
			continue
		}
		at := p.i
		key := p.name()
		if p.peek() != ':' {
			if p.i == at {
				p.i++
			}
			if p.i >= len(p.s) || key == "" {
				return m // not an object after all
			}
			continue
		}
		p.i++
		m[key] = p.value(depth + 1)
	}
}

// name reads the name of a member, in quotes or bare.
func (p *literalParser) name() string {
	switch p.peek() {
	case '"', '\'':
		return p.quoted()
	}
	name, _ := p.bare().(string)
	return name
}

func (p *literalParser) list(depth int) any {
	var list []any
	p.i++
	for {
		switch c := p.peek(); c {
		case 0:
			return list
		case ']':
			p.i++
			return list
		case ',':
			p.i++
			continue
		}
		at := p.i
		list = append(list, p.value(depth+1))
		if p.i == at {
			p.i++
		}
	}
}

// quoted reads a string in either kind of quotes.
func (p *literalParser) quoted() string {
	quote := p.s[p.i]
	p.i++
	var b strings.Builder
	for p.i < len(p.s) {
		c := p.s[p.i]
		p.i++
		switch c {
		case quote:
			return b.String()
		case '\\':
			p.escaped(&b)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// escaped reads what follows a backslash.
func (p *literalParser) escaped(b *strings.Builder) {
	if p.i >= len(p.s) {
		return
	}
	c := p.s[p.i]
	p.i++
	switch c {
	case 'n':
		b.WriteByte('\n')
	case 't':
		b.WriteByte('\t')
	case 'r':
		b.WriteByte('\r')
	case 'u':
		if r, ok := jsonscan.Hex4([]byte(p.s[p.i:min(p.i+4, len(p.s))])); ok {
			p.i += 4
			if !utf8.ValidRune(r) {
				r = utf8.RuneError
			}
			b.WriteRune(r)
			return
		}
		b.WriteByte(c)
	default:
		b.WriteByte(c)
	}
}

// bare reads a word without quotes: a number, a constant, or the name of a member.
func (p *literalParser) bare() any {
	start := p.i
	for p.i < len(p.s) && !strings.ContainsRune(" \t\r\n,:{}[]\"'", rune(p.s[p.i])) {
		p.i++
	}
	word := p.s[start:p.i]
	switch word {
	case "null", "None", "undefined", "nil":
		return nil
	case "true", "True":
		return true
	case "false", "False":
		return false
	}
	if word != "" && (word[0] == '-' || word[0] >= '0' && word[0] <= '9') {
		if json.Valid([]byte(word)) {
			return json.Number(word)
		}
	}
	return word
}
