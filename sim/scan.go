package sim

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// request is what the imitation reads of a body. encoding/json reads a body
// twice and took most of a call's time; this reads it once.
type request struct {
	model        string
	maxTokens    int // 0: not given
	choices      int // n
	stream       bool
	includeUsage bool
	base64       bool   // embeddings
	prompts      int    // elements of messages or input; a string is one
	input        int    // tokens, estimated
	tool         string // that the answer calls; empty: none
	noTool       bool   // tools are not to be called
	wrong        string // a member of the wrong type; empty: none
}

// parse reads a body; it reports false on what is not a JSON object.
func (c *call) parse(body []byte) bool {
	s := scanner{b: body}
	s.space()
	if !s.object(func(key []byte) bool { return c.dialect.read(c, &s, key) }) {
		return false
	}
	if s.space(); s.i != len(body) {
		return false
	}
	// Every dialect's rule of thumb is four characters to a token.
	c.input = max(1, (s.chars+3)/4)
	return true
}

// mistyped notes that a member has the wrong type; the first one counts.
func (r *request) mistyped(name string) {
	if r.wrong == "" {
		r.wrong = name
	}
}

// set keeps a member that matters to OpenAI or Anthropic; it reports false if its type is wrong.
func (r *request) set(key, value []byte) (ok bool) {
	switch string(key) {
	case "model":
		r.model, ok = jsonString(value)
	case "max_tokens", "max_completion_tokens", "max_output_tokens":
		r.maxTokens, ok = jsonCount(value, r.maxTokens)
	case "n":
		r.choices, ok = jsonCount(value, 1)
	case "stream":
		r.stream, ok = jsonBool(value)
	case "stream_options":
		r.includeUsage, ok = includesUsage(value), true
	case "tools":
		r.tool, ok = offered(value), true
	case "tool_choice":
		r.noTool, ok = bytes.Contains(value, []byte(`"none"`)), true
	case "encoding_format":
		format, isString := jsonString(value)
		r.base64, ok = format == "base64", isString
	default:
		ok = true
	}
	return ok
}

// includesUsage reads {"include_usage": true}.
func includesUsage(value []byte) (yes bool) {
	s := scanner{b: value}
	s.object(func(key []byte) bool {
		start := s.i
		ok := s.value(false, 0)
		if string(key) == "include_usage" {
			yes, _ = jsonBool(value[start:s.i])
		}
		return ok
	})
	return yes
}

func jsonString(value []byte) (string, bool) {
	if value[0] != '"' {
		return "", false
	}
	if bytes.IndexByte(value, '\\') < 0 {
		return string(value[1 : len(value)-1]), true
	}
	var v string
	err := json.Unmarshal(value, &v)
	return v, err == nil
}

// jsonCount reads a number of something; null means missing.
func jsonCount(value []byte, missing int) (int, bool) {
	if string(value) == "null" {
		return missing, true
	}
	n, err := strconv.Atoi(string(value))
	return n, err == nil && n >= 1
}

func jsonBool(value []byte) (yes, ok bool) {
	switch string(value) {
	case "true":
		return true, true
	case "false", "null":
		return false, true
	}
	return false, false
}

// scanner walks over JSON and counts the characters of texts on the way. Its
// methods report false on what is not JSON.
type scanner struct {
	b     []byte
	i     int
	chars int // characters of texts so far
}

func (s *scanner) rest() []byte { return s.b[s.i:] }

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\t', '\r', '\n':
			s.i++
		default:
			return
		}
	}
}

// eat takes the byte c if it is next.
func (s *scanner) eat(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// maxDepth is that of encoding/json.
const maxDepth = 10000

// value walks over one value; text says whether its strings are text.
func (s *scanner) value(text bool, depth int) bool {
	if s.i >= len(s.b) || depth > maxDepth {
		return false
	}
	switch c := s.b[s.i]; c {
	case '"':
		n, ok := s.str()
		if text {
			s.chars += n
		}
		return ok
	case '{':
		return s.object(func(key []byte) bool { return s.value(isText(key), depth+1) })
	case '[':
		return s.array(func() bool { return s.value(text, depth+1) })
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		if text {
			s.chars += 4 // a token given as a number, in embeddings
		}
		return s.number()
	}
}

// isText says which members hold text that a model reads.
func isText(key []byte) bool {
	switch string(key) {
	case "content", "text", "system", "instructions", "output", "arguments", "thinking":
		return true
	}
	return false
}

// prompts walks over the value of messages or input and counts its elements.
func (s *scanner) prompts() (n int, ok bool) {
	if s.i >= len(s.b) || s.b[s.i] != '[' {
		isString := s.i < len(s.b) && s.b[s.i] == '"'
		ok = s.value(true, 0)
		if isString {
			n = 1
		}
		return n, ok
	}
	numbers := true
	ok = s.array(func() bool {
		n++
		numbers = numbers && s.i < len(s.b) && (s.b[s.i] == '-' || isDigit(s.b[s.i]))
		return s.value(true, 1)
	})
	if n > 0 && numbers {
		n = 1 // one prompt, as the numbers of its tokens
	}
	return n, ok
}

// object walks over an object; member is called before each value.
func (s *scanner) object(member func(key []byte) bool) bool {
	if !s.eat('{') {
		return false
	}
	s.space()
	if s.eat('}') {
		return true
	}
	for {
		start := s.i
		if _, ok := s.str(); !ok {
			return false
		}
		key := s.b[start+1 : s.i-1]
		if s.space(); !s.eat(':') {
			return false
		}
		if s.space(); !member(key) {
			return false
		}
		if s.space(); s.eat('}') {
			return true
		}
		if !s.eat(',') {
			return false
		}
		s.space()
	}
}

// array walks over an array; element is called at each value.
func (s *scanner) array(element func() bool) bool {
	if !s.eat('[') {
		return false
	}
	s.space()
	if s.eat(']') {
		return true
	}
	for {
		if !element() {
			return false
		}
		if s.space(); s.eat(']') {
			return true
		}
		if !s.eat(',') {
			return false
		}
		s.space()
	}
}

// str walks over a string and counts its characters.
func (s *scanner) str() (chars int, ok bool) {
	if !s.eat('"') {
		return 0, false
	}
	for b := s.b; s.i < len(b); s.i++ {
		switch c := b[s.i]; {
		case c == '"':
			s.i++
			return chars, true
		case c == '\\':
			if !s.escape() {
				return 0, false
			}
			chars++
		case c < ' ':
			return 0, false
		case utf8.RuneStart(c):
			chars++
		}
	}
	return 0, false
}

// escape walks to the last byte of an escape.
func (s *scanner) escape() bool {
	if s.i++; s.i >= len(s.b) {
		return false
	}
	switch s.b[s.i] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return true
	case 'u':
		for range 4 {
			if s.i++; s.i >= len(s.b) || !isHex(s.b[s.i]) {
				return false
			}
		}
		return true
	}
	return false
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func (s *scanner) literal(word string) bool {
	if !bytes.HasPrefix(s.rest(), []byte(word)) {
		return false
	}
	s.i += len(word)
	return true
}

func (s *scanner) number() bool {
	s.eat('-')
	if !s.eat('0') && !s.digits() {
		return false
	}
	if s.eat('.') && !s.digits() {
		return false
	}
	if s.eat('e') || s.eat('E') {
		if !s.eat('+') {
			s.eat('-')
		}
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	start := s.i
	for s.i < len(s.b) && isDigit(s.b[s.i]) {
		s.i++
	}
	return s.i > start
}
