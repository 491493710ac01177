package jsonscan

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"
)

// Valid reports whether b is one JSON value in UTF-8.
func Valid(b []byte) bool {
	s := New(b)
	s.Skip()
	return s.End() && utf8.Valid(b)
}

// Unquote returns the meaning of a JSON string that a Scanner has read, quotes included. It may share b's memory.
func Unquote(b []byte) []byte {
	inner := b[1 : len(b)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return inner
	}
	if plain, ok := unescape(inner); ok {
		return plain
	}
	var text string
	if json.Unmarshal(b, &text) != nil {
		return inner // cannot be: it was read
	}
	return []byte(text)
}

// unescape returns the meaning of a string in UTF-8 whose escapes are the short ones. ok is false of any other.
func unescape(inner []byte) (text []byte, ok bool) {
	if !utf8.Valid(inner) {
		return nil, false
	}
	text = make([]byte, 0, len(inner))
	for {
		i := bytes.IndexByte(inner, '\\')
		if i < 0 || i+1 == len(inner) {
			return append(text, inner...), i < 0
		}
		c := inner[i+1]
		switch c {
		case '"', '\\', '/':
		case 'n':
			c = '\n'
		case 't':
			c = '\t'
		case 'r':
			c = '\r'
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		default:
			return nil, false
		}
		text = append(append(text, inner[:i]...), c)
		inner = inner[i+2:]
	}
}

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
	const hexDigits = "0123456789abcdef"
	dst = append(dst, '"')
	start := len(dst)
	dst = append(dst, s...)
	rest := dst[start:]
	if utf8.Valid(rest) && Plain(rest) == len(rest) {
		return append(dst, '"')
	}
	rest = bytes.ToValidUTF8(bytes.Clone(rest), []byte("\ufffd"))
	dst = dst[:start]
	for {
		n := Plain(rest)
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
