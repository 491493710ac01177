package provider

import (
	"encoding/json"
	"strings"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// literal reads the object literals in which programs quote an error: JSON, and what Python, JavaScript, Go, Lua, Ruby,
// Elixir and Rust print ({'error': {'code': None}}, { message: 'x' }, map[code:429], { code = 429 }, {"code"=>429}). It also reads one that was cut off, as far as it goes. It returns
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
	if p.peek() == 'm' && strings.HasPrefix(p.s[p.i:], "map[") {
		p.i += len("map[")
		return p.goMap(depth)
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
	v := p.bare()
	if word, _ := v.(string); p.i < len(p.s) && (p.s[p.i] == '"' || p.s[p.i] == '\'') && strings.HasSuffix(word, "(") || word == "%" && p.peek() == '{' {
		v = p.value(depth + 1) // Some("tokens") of Rust, %{} of Elixir
		if p.i < len(p.s) && p.s[p.i] == ')' {
			p.i++
		}
	}
	return v
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
		if !p.separator() {
			if p.i == at {
				p.i++
			}
			if p.i >= len(p.s) || key == "" {
				return m // not an object after all
			}
			continue
		}
		m[key] = p.value(depth + 1)
	}
}

// separator moves over what stands between a name and its value: a colon, = in Lua, => in Ruby and Elixir.
func (p *literalParser) separator() bool {
	switch p.peek() {
	case ':':
		p.i++
		return true
	case '=':
		p.i++
		if p.i < len(p.s) && p.s[p.i] == '>' {
			p.i++
		}
		return true
	}
	return false
}

// goMap reads what Go prints of a map behind "map[": keys and values without quotes, where a value goes on to the next
// word with a colon at its end, or to the bracket.
func (p *literalParser) goMap(depth int) any {
	m := map[string]any{}
	for {
		switch c := p.peek(); c {
		case 0:
			return m
		case ']':
			p.i++
			return m
		}
		n := goKey(p.s[p.i:])
		if n == 0 {
			p.i++
			continue
		}
		key := p.s[p.i : p.i+n]
		p.i += n + 1
		if rest := p.s[p.i:]; startsWithAny(rest, "map[", "[") {
			m[key] = p.value(depth + 1)
		} else {
			m[key] = p.goValue()
		}
	}
}

// goValue reads a value that is no map.
func (p *literalParser) goValue() any {
	start := p.i
	for ; p.i < len(p.s); p.i++ {
		if c := p.s[p.i]; c == ']' || c == ' ' && goKey(p.s[p.i+1:]) > 0 {
			break
		}
	}
	switch v := p.s[start:p.i]; {
	case v == "<nil>":
		return nil
	case v == "true", v == "false":
		return v == "true"
	case v != "" && isDigit(v[0]) && json.Valid([]byte(v)):
		return json.Number(v)
	default:
		return v
	}
}

// goKey returns the length of the key that s begins with, without its colon; 0 when there is none.
func goKey(s string) int {
	i := 0
	for i < len(s) && i < 40 && (isWord(s[i]) || s[i] == '@' || s[i] == '-') {
		i++
	}
	if i == 0 || isDigit(s[0]) || i+1 >= len(s) || s[i] != ':' || s[i+1] == ' ' || s[i+1] == '/' {
		return 0
	}
	return i
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
	for p.i < len(p.s) && strings.IndexByte(" \t\r\n,:={}[]\"'", p.s[p.i]) < 0 {
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
