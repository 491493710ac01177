package batch

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math/bits"
	"unicode/utf8"
)

// scanner reads one JSON text, strictly, in one pass and without building values. After an error, at is where it was.
type scanner struct {
	b     []byte
	at    int
	depth int
}

// maxDepth bounds nesting, as encoding/json does.
const maxDepth = 10000

func (s *scanner) space() {
	for s.at < len(s.b) {
		switch s.b[s.at] {
		case ' ', '\t', '\r', '\n':
			s.at++
		default:
			return
		}
	}
}

// peek returns the next byte after spaces, or 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.at == len(s.b) {
		return 0
	}
	return s.b[s.at]
}

func (s *scanner) take(c byte) bool {
	if s.peek() != c {
		return false
	}
	s.at++
	return true
}

// value skips a value, and says whether it was one. Its bytes begin at what peek saw.
func (s *scanner) value() bool {
	switch c := s.peek(); c {
	case '{':
		return s.object(nil)
	case '[':
		return s.array()
	case '"':
		return s.str()
	case 't':
		return s.word("true")
	case 'f':
		return s.word("false")
	case 'n':
		return s.word("null")
	default:
		return s.number()
	}
}

// object reads an object. For each member it calls visit with the key's bytes, quotes included, and visit reads the
// value; a nil visit skips all values.
func (s *scanner) object(visit func(key []byte) bool) bool {
	if !s.take('{') || !s.enter() {
		return false
	}
	defer s.leave()
	if s.take('}') {
		return true
	}
	for {
		if s.peek() != '"' {
			return false
		}
		start := s.at
		if !s.str() {
			return false
		}
		key := s.b[start:s.at]
		if !s.take(':') {
			return false
		}
		s.space()
		if visit == nil {
			if !s.value() {
				return false
			}
		} else if !visit(key) {
			return false
		}
		if s.take(',') {
			continue
		}
		return s.take('}')
	}
}

func (s *scanner) array() bool {
	if !s.take('[') || !s.enter() {
		return false
	}
	defer s.leave()
	if s.take(']') {
		return true
	}
	for {
		if !s.value() {
			return false
		}
		if s.take(',') {
			continue
		}
		return s.take(']')
	}
}

func (s *scanner) enter() bool {
	s.depth++
	return s.depth <= maxDepth
}

func (s *scanner) leave() { s.depth-- }

func (s *scanner) str() bool {
	i := s.at + 1
	for {
		i += plain(s.b[i:])
		if i == len(s.b) || s.b[i] < ' ' {
			s.at = i
			return false
		}
		if s.b[i] == '"' {
			s.at = i + 1
			return true
		}
		n := escapeLen(s.b[i:])
		if n == 0 {
			s.at = i
			return false
		}
		i += n
	}
}

// plain returns the length of b up to the first byte that means something inside of a string: a quote, a backslash, or
// a control character, which must not be there. It looks at eight bytes at a time, since most of a line is strings.
func plain(b []byte) int {
	const (
		ones  = 0x0101010101010101
		highs = 0x8080808080808080
	)
	i := 0
	for ; len(b)-i >= 8; i += 8 {
		v := binary.LittleEndian.Uint64(b[i:])
		quote, backslash := v^ones*'"', v^ones*'\\'
		// The high bit of a byte is set in each where that byte is below ' ', or zero; bytes above 0x7f are none of these.
		found := ((v - ones*' ') | (quote - ones) | (backslash - ones)) & ^v & highs
		if found != 0 {
			return i + bits.TrailingZeros64(found)/8
		}
	}
	for ; i < len(b); i++ {
		if b[i] < ' ' || b[i] == '"' || b[i] == '\\' {
			break
		}
	}
	return i
}

// escapeLen returns the length of the escape that b begins with, or 0 if it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if len(b) < 6 {
			return 0
		}
		for _, c := range b[2:6] {
			if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F') {
				return 0
			}
		}
		return 6
	}
	return 0
}

func (s *scanner) word(w string) bool {
	if len(s.b)-s.at < len(w) || string(s.b[s.at:s.at+len(w)]) != w {
		return false
	}
	s.at += len(w)
	return true
}

func (s *scanner) number() bool {
	if s.at < len(s.b) && s.b[s.at] == '-' {
		s.at++
	}
	if s.at < len(s.b) && s.b[s.at] == '0' {
		s.at++
	} else if !s.digits() {
		return false
	}
	if s.at < len(s.b) && s.b[s.at] == '.' {
		s.at++
		if !s.digits() {
			return false
		}
	}
	if s.at < len(s.b) && (s.b[s.at] == 'e' || s.b[s.at] == 'E') {
		s.at++
		if s.at < len(s.b) && (s.b[s.at] == '+' || s.b[s.at] == '-') {
			s.at++
		}
		return s.digits()
	}
	return true
}

func (s *scanner) digits() bool {
	start := s.at
	for s.at < len(s.b) && s.b[s.at] >= '0' && s.b[s.at] <= '9' {
		s.at++
	}
	return s.at > start
}

// end says whether nothing but spaces is left.
func (s *scanner) end() bool { return s.peek() == 0 && s.at == len(s.b) }

// span reads a value and returns its bytes.
func (s *scanner) span() ([]byte, bool) {
	s.space()
	start := s.at
	if !s.value() {
		return nil, false
	}
	return s.b[start:s.at], true
}

// valid says whether b is one JSON value.
func valid(b []byte) bool {
	s := scanner{b: b}
	return s.value() && s.end() && utf8.Valid(b)
}

// unquote returns the text of a JSON string that is known to be well formed. It may share b's memory.
func unquote(b []byte) []byte {
	inner := b[1 : len(b)-1]
	for _, c := range inner {
		if c == '\\' {
			var text string
			if json.Unmarshal(b, &text) != nil {
				return inner // cannot be: it was scanned
			}
			return []byte(text)
		}
	}
	return inner
}

// is says whether a key's bytes, quotes included, are that name.
func is(key []byte, name string) bool {
	if string(key[1:len(key)-1]) == name {
		return true
	}
	return len(key) > len(name)+2 && string(unquote(key)) == name
}

// appendCompact appends b, which is well formed, without the spaces between its tokens.
func appendCompact(dst, b []byte) []byte {
	for i := 0; i < len(b); {
		switch b[i] {
		case ' ', '\t', '\r', '\n':
			i++
		case '"':
			n := stringLen(b[i:])
			dst = append(dst, b[i:i+n]...)
			i += n
		default:
			start := i
			for i < len(b) && b[i] > ' ' && b[i] != '"' {
				i++
			}
			dst = append(dst, b[start:i]...)
		}
	}
	return dst
}

// stringLen returns the length of the well-formed string that b begins with.
func stringLen(b []byte) int {
	for i := 1; ; i += 2 { // over an escape; the digits of a longer one are plain
		i += plain(b[i:])
		if b[i] == '"' {
			return i + 1
		}
	}
}

// appendString appends s as a JSON string. Bytes that are not UTF-8 become replacement characters.
func appendString[T string | []byte](dst []byte, s T) []byte {
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	start := len(dst)
	dst = append(dst, s...)
	rest := dst[start:]
	if utf8.Valid(rest) && plain(rest) == len(rest) {
		return append(dst, '"')
	}
	rest = bytes.ToValidUTF8(bytes.Clone(rest), []byte("\ufffd"))
	dst = dst[:start]
	for {
		n := plain(rest)
		dst = append(dst, rest[:n]...)
		if n == len(rest) {
			return append(dst, '"')
		}
		switch c := rest[n]; c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		rest = rest[n+1:]
	}
}
