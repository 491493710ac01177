package jsonscan

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Valid reports whether b is one JSON value in UTF-8.
func Valid(b []byte) bool {
	s := New(b)
	s.Skip()
	return s.End() && utf8.Valid(b)
}

// Repair returns JSON that every reader can read: with U+FFFD in the place of bytes that are not UTF-8, and of escapes that are half of a
// surrogate pair. It is b itself if it has none of these.
func Repair(b []byte) []byte {
	if !utf8.Valid(b) {
		b = bytes.ToValidUTF8(b, []byte("\ufffd"))
	}
	for at, copied := halfPair(b, 0), false; at >= 0; at = halfPair(b, at) {
		if !copied {
			b, copied = bytes.Clone(b), true
		}
		copy(b[at:], `\ufffd`)
	}
	return b
}

// halfPair returns the offset of the first escape of JSON from an offset on that is half of a surrogate pair; -1 if there is none.
func halfPair(b []byte, from int) int {
	if from == 0 && !bytes.Contains(b, []byte(`\ud`)) && !bytes.Contains(b, []byte(`\uD`)) {
		return -1 // nearly always
	}
	for at := from; ; {
		n := bytes.IndexByte(b[at:], '\\')
		if n < 0 || at+n+2 > len(b) {
			return -1
		}
		at += n + 2
		r, ok := rune(0), b[at-1] == 'u'
		if ok {
			r, ok = Hex4(b[at:])
		}
		if !ok {
			continue
		}
		if at += 4; !utf16.IsSurrogate(r) {
			continue
		}
		low := rune(-1)
		if bytes.HasPrefix(b[at:], []byte(`\u`)) {
			low, _ = Hex4(b[at+2:])
		}
		if utf16.DecodeRune(r, low) == utf8.RuneError {
			return at - 6
		}
		at += 6
	}
}

// Members returns the members of an object as they stand in the text, as far as it is whole, and of several of one name the last.
// whole says that b is one object and no more.
func Members(b []byte) (members map[string][]byte, whole bool) {
	members = make(map[string][]byte)
	s := New(b)
	for s.Enter('{'); s.Next('}'); {
		key := string(Name(s.Key()))
		if v := s.Span(); v != nil {
			members[key] = v
		}
	}
	return members, s.End()
}

// AppendMember appends a member to an object whose end is missing.
func AppendMember(dst []byte, name string, value []byte) []byte {
	return append(append(AppendString(comma(dst), name), ':'), value...)
}

// AppendMembers appends the members of an object to one whose end is missing. edit returns what is appended as the value of each, nil
// to leave it out. whole says that the text is one object and no more.
func AppendMembers(dst, object []byte, edit func(name, value []byte) []byte) (b []byte, whole bool) {
	s := New(object)
	for s.Enter('{'); s.Next('}'); {
		key := s.Key()
		value := s.Span()
		if s.bad {
			break
		}
		if value = edit(Name(key), value); value != nil {
			dst = append(append(append(comma(dst), '"'), key...), '"', ':')
			dst = append(dst, value...)
		}
	}
	return dst, s.End()
}

// comma appends a comma to an object that has members.
func comma(dst []byte) []byte {
	if dst[len(dst)-1] == '{' {
		return dst
	}
	return append(dst, ',')
}

// Unquote returns the meaning of a JSON string that a Scanner has read, quotes included. It may share b's memory.
func Unquote(b []byte) []byte {
	inner := b[1 : len(b)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	if text, ok := unescape(inner); ok {
		return text
	}
	var text string
	if json.Unmarshal(b, &text) != nil {
		return inner // cannot be: it was read
	}
	return []byte(text)
}

// unescape returns the meaning of what stands between the quotes of a string in UTF-8, with one allocation.
func unescape(inner []byte) ([]byte, bool) {
	if !utf8.Valid(inner) {
		return nil, false
	}
	text := make([]byte, 0, len(inner))
	for {
		n := Plain(inner)
		text = append(text, inner[:n]...)
		if inner = inner[n:]; len(inner) == 0 {
			return text, true
		}
		if len(inner) < 2 || inner[0] != '\\' {
			return nil, false
		}
		c := inner[1]
		if c != 'u' {
			i := strings.IndexByte(escapes, c)
			if i < 0 {
				return nil, false
			}
			text, inner = append(text, meanings[i]), inner[2:]
			continue
		}
		r, ok := Hex4(inner[2:])
		if !ok {
			return nil, false
		}
		inner = inner[6:]
		if utf16.IsSurrogate(r) {
			low := rune(-1)
			if bytes.HasPrefix(inner, []byte(`\u`)) {
				low, _ = Hex4(inner[2:])
			}
			if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
				inner = inner[6:]
			}
		}
		text = utf8.AppendRune(text, r)
	}
}

// The letters of escapes, and what they mean.
const (
	escapes  = `"\/bfnrt`
	meanings = "\"\\/\b\f\n\r\t"
)

// Name returns the meaning of a name that Key returned. It may share its memory.
func Name(key []byte) []byte {
	if bytes.IndexByte(key, '\\') < 0 {
		return key
	}
	return Unquote(append(append([]byte{'"'}, key...), '"'))
}

// AppendCompact appends b, which is well formed, without the spaces between its tokens.
func AppendCompact(dst, b []byte) []byte {
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
		i += Plain(b[i:])
		if b[i] == '"' {
			return i + 1
		}
	}
}

// AppendString appends s as a JSON string. Bytes that are not UTF-8 become replacement characters.
func AppendString[T string | []byte](dst []byte, s T) []byte {
	dst = append(dst, '"')
	start := len(dst)
	dst = append(dst, s...)
	rest := dst[start:]
	if utf8.Valid(rest) && Plain(rest) == len(rest) {
		return append(dst, '"')
	}
	if !utf8.Valid(rest) {
		rest = bytes.ToValidUTF8(bytes.Clone(rest), []byte("\ufffd"))
		dst = append(dst[:start], rest...)
	}
	return append(escapeInPlace(dst, start), '"')
}

// escapeInPlace writes what stands from start on as the inside of a string.
func escapeInPlace(dst []byte, start int) []byte {
	more := 0
	for rest := dst[start:]; ; {
		n := Plain(rest)
		if n == len(rest) {
			break
		}
		more += len(escapeOf(rest[n])) - 1
		rest = rest[n+1:]
	}
	if more == 0 {
		return dst
	}
	// What is written comes before what is still to be read: the text is moved up by what its escapes take.
	size := len(dst) - start
	dst = slices.Grow(dst, more)[:len(dst)+more]
	rest := dst[start+more:]
	copy(rest, dst[start:start+size])
	for to := start; ; {
		n := Plain(rest)
		to += copy(dst[to:], rest[:n])
		if n == len(rest) {
			return dst
		}
		to += copy(dst[to:], escapeOf(rest[n]))
		rest = rest[n+1:]
	}
}

// escapeOf is how a byte is written that cannot stand in a string.
func escapeOf(c byte) string {
	switch c {
	case '"':
		return `\"`
	case '\\':
		return `\\`
	case '\n':
		return `\n`
	case '\r':
		return `\r`
	case '\t':
		return `\t`
	}
	return controls[6*int(c) : 6*int(c)+6]
}

// controls are the long escapes of the control characters.
const controls = `\u0000\u0001\u0002\u0003\u0004\u0005\u0006\u0007\u0008\u0009\u000a\u000b\u000c\u000d\u000e\u000f\u0010\u0011\u0012\u0013\u0014\u0015\u0016\u0017\u0018\u0019\u001a\u001b\u001c\u001d\u001e\u001f`
