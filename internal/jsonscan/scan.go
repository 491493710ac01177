// Package jsonscan pulls values out of JSON in one pass, without building them.
package jsonscan

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deeply JSON may be nested: what encoding/json allows.
const maxDepth = 10000

// Scanner reads one JSON text. It accepts exactly what encoding/json accepts. Once it met an error it returns only zero
// values, so callers check once at the end. Make one with New; it is not safe for concurrent use.
//
//	for s.Enter('{'); s.Next('}'); {
//		switch string(s.Key()) {
//		case "model": model = s.Text()
//		default:      s.Skip()
//		}
//	}
//	s.End()
type Scanner struct {
	b     []byte
	i     int
	at    int // where the error was
	depth int
	first bool // just after an opening bracket
	bad   bool
}

// New returns a Scanner of b, which it neither copies nor changes.
func New(b []byte) Scanner { return Scanner{b: b} }

// Bad reports whether there was an error.
func (s *Scanner) Bad() bool { return s.bad }

// Offset returns how far the scanner is; after an error, where that was.
func (s *Scanner) Offset() int {
	if s.bad {
		return s.at
	}
	return s.i
}

// Since returns what was read since that offset; nil after an error.
func (s *Scanner) Since(offset int) []byte {
	if s.bad {
		return nil
	}
	return s.b[offset:s.i]
}

// Span reads any value and returns its text; nil after an error.
func (s *Scanner) Span() []byte {
	s.space()
	start := s.i
	s.Skip()
	return s.Since(start)
}

func (s *Scanner) fail() {
	if !s.bad {
		s.bad, s.at = true, s.i
	}
	s.i = len(s.b)
}

func (s *Scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\n', '\r', '\t':
			s.i++
		default:
			return
		}
	}
}

// Peek returns the first byte of the next value, 0 at the end.
func (s *Scanner) Peek() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// Enter opens an object or array.
func (s *Scanner) Enter(open byte) {
	if s.Peek() != open || s.depth >= maxDepth {
		s.fail()
		return
	}
	s.i++
	s.depth++
	s.first = true
}

// Next reports whether the object or array has another member, and closes it if not.
func (s *Scanner) Next(end byte) bool {
	if s.bad {
		return false
	}
	c := s.Peek()
	if c == end {
		s.i++
		s.depth--
		s.first = false
		return false
	}
	if s.first {
		s.first = false
		return c != 0 || s.broken()
	}
	if c != ',' {
		return s.broken()
	}
	s.i++
	return true
}

func (s *Scanner) broken() bool {
	s.fail()
	return false
}

// Key reads a member's name and its colon. The name is as it stands in the text, escapes and all.
func (s *Scanner) Key() []byte {
	raw, _ := s.Str()
	if s.Peek() != ':' {
		s.fail()
		return nil
	}
	s.i++
	return raw
}

// Members reads an object, for a range statement. It yields the name of each member, behind which the value has to be read or
// skipped. A value that is no object is skipped.
func (s *Scanner) Members(yield func(name []byte) bool) {
	if s.Peek() != '{' {
		s.Skip()
		return
	}
	for s.Enter('{'); s.Next('}'); {
		if !yield(Name(s.Key())) {
			return
		}
	}
}

// Elements reads a list, for a range statement. It yields before each element, which has to be read or skipped. A value that is no
// list is skipped.
func (s *Scanner) Elements(yield func() bool) {
	if s.Peek() != '[' {
		s.Skip()
		return
	}
	for s.Enter('['); s.Next(']'); {
		if !yield() {
			return
		}
	}
}

// Str reads a string and returns what stands between the quotes, and how many bytes it is when unescaped.
func (s *Scanner) Str() (raw []byte, size int) {
	if s.Peek() != '"' {
		s.fail()
		return nil, 0
	}
	s.i++
	start, saved := s.i, 0
	for {
		s.i += Plain(s.b[s.i:])
		if s.i >= len(s.b) {
			s.fail()
			return nil, 0
		}
		switch s.b[s.i] {
		case '"':
			raw = s.b[start:s.i]
			s.i++
			return raw, len(raw) - saved
		case '\\':
			saved += s.escape()
		default: // a control character
			s.fail()
			return nil, 0
		}
	}
}

// escape steps over one escape and returns how many bytes longer than its meaning it is.
func (s *Scanner) escape() int {
	rest := s.b[s.i:]
	if len(rest) < 2 {
		s.fail()
		return 0
	}
	switch rest[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.i += 2
		return 1
	case 'u':
		r, ok := Hex4(rest[2:])
		if !ok {
			s.fail()
			return 0
		}
		s.i += 6
		if utf16.IsSurrogate(r) {
			// Each half of a pair counts for two of the pair's four bytes.
			return 4
		}
		return 6 - utf8.RuneLen(r)
	}
	s.fail()
	return 0
}

// Hex4 reads the four digits of a \u escape.
func Hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	return r, true
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// Plain returns how many bytes of b come before the first quote, backslash or control character, many at a time: most
// of a request is text, and looking at each byte would be most of the work.
func Plain(b []byte) int {
	const short, block = 64, 256
	i := 0
	for ; i+8 <= len(b); i += 8 {
		if i == short { // it is a long text: most are names and numbers
			for i+block <= len(b) && allPlain(b[i:i+block]) {
				i += block
			}
			if i+8 > len(b) {
				break
			}
		}
		v := binary.LittleEndian.Uint64(b[i:])
		quote, slash := v^(ones*'"'), v^(ones*'\\')
		hit := ((v - ones*0x20) &^ v) | ((quote - ones) &^ quote) | ((slash - ones) &^ slash)
		if hit &= highs; hit != 0 {
			// Borrows only ever mark bytes above the first true hit.
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < 0x20 {
			return i
		}
	}
	return i
}

// allPlain reports whether there is no quote, backslash or control character in b, whose length is a multiple of 16.
func allPlain(b []byte) bool {
	var controls uint64
	for i := 0; i+16 <= len(b); i += 16 {
		v, w := binary.LittleEndian.Uint64(b[i:]), binary.LittleEndian.Uint64(b[i+8:])
		controls |= (v-ones*0x20)&^v | (w-ones*0x20)&^w
	}
	return controls&highs == 0 && bytes.IndexByte(b, '"') < 0 && bytes.IndexByte(b, '\\') < 0
}

// Text reads a string and returns its meaning. Any other value is skipped and is "".
func (s *Scanner) Text() string {
	if s.Peek() != '"' {
		s.Skip()
		return ""
	}
	raw, size := s.Str()
	if s.bad {
		return ""
	}
	if size == len(raw) {
		return string(raw)
	}
	return string(Unquote(s.b[s.i-len(raw)-2 : s.i]))
}

// Number reads a number as an integer, rounded down and kept within ±2⁵³. Any other value is skipped and is not ok.
func (s *Scanner) Number() (n int64, ok bool) {
	c := s.Peek()
	if c != '-' && (c < '0' || c > '9') {
		s.Skip()
		return 0, false
	}
	start := s.i
	s.numeral()
	if s.bad {
		return 0, false
	}
	lit := s.b[start:s.i]
	if len(lit) < 16 {
		neg := lit[0] == '-'
		digits := lit
		if neg {
			digits = lit[1:]
		}
		for _, c := range digits {
			if c < '0' || c > '9' {
				return floatToInt(lit)
			}
			n = n*10 + int64(c-'0')
		}
		if neg {
			n = -n
		}
		return n, true
	}
	return floatToInt(lit)
}

func floatToInt(lit []byte) (int64, bool) {
	const most = 1 << 53
	f, err := strconv.ParseFloat(string(lit), 64)
	if err != nil && !math.IsInf(f, 0) || math.IsNaN(f) {
		return 0, false
	}
	return int64(math.Floor(max(-most, min(most, f)))), true
}

// numeral steps over a number.
func (s *Scanner) numeral() {
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if s.digits() == 0 {
		s.fail()
		return
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if s.digits() == 0 {
			s.fail()
			return
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if s.digits() == 0 {
			s.fail()
		}
	}
}

func (s *Scanner) digits() int {
	start := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i - start
}

// Truth reads true. Any other value is skipped and is false.
func (s *Scanner) Truth() bool {
	is := s.Peek() == 't'
	s.Skip()
	return is && !s.bad
}

// Skip steps over any value.
func (s *Scanner) Skip() {
	switch c := s.Peek(); c {
	case '{':
		for s.Enter('{'); s.Next('}'); {
			s.Key()
			s.Skip()
		}
	case '[':
		for s.Enter('['); s.Next(']'); {
			s.Skip()
		}
	case '"':
		s.Str()
	case 't':
		s.literal("true")
	case 'f':
		s.literal("false")
	case 'n':
		s.literal("null")
	default:
		s.numeral()
	}
}

func (s *Scanner) literal(want string) {
	if len(s.b)-s.i < len(want) || string(s.b[s.i:s.i+len(want)]) != want {
		s.fail()
		return
	}
	s.i += len(want)
}

// End fails unless nothing but space is left. It reports whether all was well.
func (s *Scanner) End() bool {
	if s.Peek() != 0 || s.i < len(s.b) {
		s.fail()
	}
	return !s.bad
}
