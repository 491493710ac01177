package provider

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// maxDepth is how deeply JSON may be nested: what encoding/json allows.
const maxDepth = 10000

// scanner pulls values out of JSON in one pass and without allocating. It accepts exactly what encoding/json accepts.
// Once it met an error it returns only zero values, so callers check bad once at the end.
//
//	for s.enter('{'); s.next('}'); {
//		switch string(s.key()) {
//		case "model": model = s.text()
//		default:      s.skip()
//		}
//	}
type scanner struct {
	b     []byte
	i     int
	depth int
	first bool // just after an opening bracket
	bad   bool
}

func (s *scanner) fail() {
	s.bad = true
	s.i = len(s.b)
}

func (s *scanner) space() {
	for s.i < len(s.b) {
		switch s.b[s.i] {
		case ' ', '\n', '\r', '\t':
			s.i++
		default:
			return
		}
	}
}

// peek returns the first byte of the next value, 0 at the end.
func (s *scanner) peek() byte {
	s.space()
	if s.i < len(s.b) {
		return s.b[s.i]
	}
	return 0
}

// enter opens an object or array.
func (s *scanner) enter(open byte) {
	if s.peek() != open || s.depth >= maxDepth {
		s.fail()
		return
	}
	s.i++
	s.depth++
	s.first = true
}

// next reports whether the object or array has another member, and closes it if not.
func (s *scanner) next(end byte) bool {
	if s.bad {
		return false
	}
	c := s.peek()
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

func (s *scanner) broken() bool {
	s.fail()
	return false
}

// key reads a member's name and its colon. The name is as it stands in the text, escapes and all.
func (s *scanner) key() []byte {
	raw, _ := s.str()
	if s.peek() != ':' {
		s.fail()
		return nil
	}
	s.i++
	return raw
}

// str reads a string and returns what stands between the quotes, and how many bytes it is when unescaped.
func (s *scanner) str() (raw []byte, size int) {
	if s.peek() != '"' {
		s.fail()
		return nil, 0
	}
	s.i++
	start, saved := s.i, 0
	for {
		s.i += plain(s.b[s.i:])
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
func (s *scanner) escape() int {
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
		r, ok := hex4(rest[2:])
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

func hex4(b []byte) (rune, bool) {
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

// plain returns how many bytes of b come before the first quote, backslash or control character, eight at a time: most
// of a request is text, and looking at each byte would be most of the work.
func plain(b []byte) int {
	i := 0
	for ; i+8 <= len(b); i += 8 {
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

// text reads a string and returns its meaning. Any other value is skipped and is "".
func (s *scanner) text() string {
	if s.peek() != '"' {
		s.skip()
		return ""
	}
	raw, size := s.str()
	if s.bad {
		return ""
	}
	if size == len(raw) {
		return string(raw)
	}
	quoted := s.b[s.i-len(raw)-2 : s.i]
	return unquote(quoted)
}

// number reads a number as an integer, rounded down and kept within ±2⁵³. Any other value is skipped and is not ok.
func (s *scanner) number() (n int64, ok bool) {
	c := s.peek()
	if c != '-' && (c < '0' || c > '9') {
		s.skip()
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
func (s *scanner) numeral() {
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

func (s *scanner) digits() int {
	start := s.i
	for s.i < len(s.b) && s.b[s.i] >= '0' && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i - start
}

// truth reads true. Any other value is skipped and is false.
func (s *scanner) truth() bool {
	is := s.peek() == 't'
	s.skip()
	return is && !s.bad
}

// skip steps over any value.
func (s *scanner) skip() {
	switch c := s.peek(); c {
	case '{':
		for s.enter('{'); s.next('}'); {
			s.key()
			s.skip()
		}
	case '[':
		for s.enter('['); s.next(']'); {
			s.skip()
		}
	case '"':
		s.str()
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

func (s *scanner) literal(want string) {
	if len(s.b)-s.i < len(want) || string(s.b[s.i:s.i+len(want)]) != want {
		s.fail()
		return
	}
	s.i += len(want)
}

// end fails unless nothing but space is left.
func (s *scanner) end() {
	if s.peek() != 0 || s.i < len(s.b) {
		s.fail()
	}
}

// unquote returns the meaning of a JSON string that a scanner has found to be well formed.
func unquote(quoted []byte) string {
	var v string
	if err := json.Unmarshal(quoted, &v); err != nil {
		return string(quoted[1 : len(quoted)-1])
	}
	return v
}
