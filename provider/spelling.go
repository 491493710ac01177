package provider

import (
	"bytes"
	"encoding/base64"
	"strconv"
	"strings"
	"unicode/utf8"
)

const (
	leastEncoded = 8   // shorter keys are not looked for in base64, where they would be found by accident
	mostEncoded  = 192 // nor are longer ones: what a key makes there has its place on the stack
)

// marks are how a character begins that stands escaped: as JSON, addresses and HTML do it. In addresses + is a space.
var marks = [...]byte{'\\', '%', '&', '+'}

// forms are a key as it is, and in both kinds of base64 as it stands there at the beginning, or behind a user's name or
// another scheme: what else is encoded moves it by a character or two. All is left out that depends on what is around it.
type forms [1 + 2*3][]byte

// encodedRoom is the size of all forms in base64.
const encodedRoom = 2 * 3 * ((mostEncoded + 4) / 3 * 4)

// formsOf returns the forms of a key. Those in base64 are written into room.
func formsOf(key, room []byte) (f forms) {
	f[0] = key
	if len(key) < leastEncoded || len(key) > mostEncoded {
		return f
	}
	var moved [2 + mostEncoded]byte
	n := copy(moved[2:], key)
	for by := range 3 {
		from := moved[2-by : 2+n]
		first, end := (by*8+5)/6, len(from)*8/6
		for kind, encoding := range [...]*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
			size := encoding.EncodedLen(len(from))
			encoding.Encode(room[:size], from)
			f[1+2*by+kind] = room[first:end]
			room = room[size:]
		}
		if bytes.Equal(f[1+2*by], f[2+2*by]) {
			f[2+2*by] = nil
		}
	}
	return f
}

// holds reports whether text has a key in it, however it is spelled, or the beginning of one. It runs over every answer, nearly none of which has
// one, and so looks for escapes first and takes no memory.
func holds(text, key []byte) bool {
	if len(text) < len(key) {
		return false
	}
	var room [encodedRoom]byte
	f := formsOf(key, room[:])
	var wanted [utf8.RuneSelf]bool // the characters of all forms
	for _, form := range f {
		// The beginning is enough to look closer, and found much faster than a long text.
		if len(form) > 0 && bytes.Contains(text, form[:min(len(form), 24)]) {
			return true
		}
		for _, c := range form {
			wanted[c%utf8.RuneSelf] = true
		}
	}
	for _, mark := range marks {
		if mark == '+' && bytes.IndexByte(key, ' ') < 0 {
			continue
		}
		for i := bytes.IndexByte(text, mark); i >= 0; {
			if !dull(text[i:], &wanted) {
				if start, _ := f.around(text, i); start >= 0 {
					return true
				}
			}
			next := bytes.IndexByte(text[i+1:], mark)
			if next < 0 {
				break
			}
			i += 1 + next
		}
	}
	return false
}

// dull reports whether text begins with what is no escape of a wanted character, as far as its second one tells: most that
// JSON has are \n and \".
func dull(text []byte, wanted *[utf8.RuneSelf]bool) bool {
	if len(text) == 1 {
		return true
	}
	switch c := text[1]; text[0] {
	case '\\':
		return c != 'u' && c != 'x' && c != '\\' && (c >= utf8.RuneSelf || isWord(c) || !wanted[c])
	case '%':
		return c < '0' || c > '9'
	case '&':
		return c != '#' && !isLetter(c)
	}
	return false
}

// around returns where a key begins and ends whose first escape is at text[i]; -1 if there is none.
func (f *forms) around(text []byte, i int) (start, end int) {
	c, n := unescape(text, i)
	if n == 0 {
		return -1, 0
	}
	for kind, form := range f {
		for at := bytes.IndexByte(form, c); at >= 0; {
			if bytes.HasSuffix(text[:i], form[:at]) {
				if end := spelled(text, i, form[at:]); end > 0 {
					return i - at, beyond(text, end, kind > 0)
				}
			}
			next := bytes.IndexByte(form[at+1:], c)
			if next < 0 {
				break
			}
			at += 1 + next
		}
	}
	return -1, 0
}

// literal returns where a key begins and ends that is at text[i] without an escape; -1 if there is none.
func (f *forms) literal(text []byte, i int) (start, end int) {
	for kind, form := range f {
		if len(form) > 0 && bytes.HasPrefix(text[i:], form) {
			return i, beyond(text, i+len(form), kind > 0)
		}
	}
	return -1, 0
}

// beyond returns where base64 ends that goes on at text[end]: its last letters are of the key, too.
func beyond(text []byte, end int, encoded bool) int {
	for encoded && end < len(text) {
		c, n := unescape(text, end)
		if n == 0 || c == ' ' {
			c, n = text[end], 1
		}
		if !isWord(c) && strings.IndexByte("+/-=", c) < 0 {
			break
		}
		end += n
	}
	return end
}

// strikeKey returns text without a key that it holds.
func strikeKey(text, key []byte) []byte {
	f := formsOf(key, make([]byte, encodedRoom))
	var b []byte
	done := 0
	for i := 0; i < len(text); i++ {
		start, end := f.literal(text, i)
		if start < 0 && bytes.IndexByte(marks[:], text[i]) >= 0 {
			start, end = f.around(text, i)
		}
		if start < done {
			continue
		}
		if start > done {
			start -= torn(text[done:start])
		}
		b = append(b, text[done:start]...)
		b = append(b, struck...)
		done, i = end, end-1
	}
	return append(b, text[done:]...)
}

// spelled returns where form ends that begins at text[i] and has any of its characters escaped; 0 if it is not there.
func spelled[T string | []byte](text T, i int, form T) (end int) {
	for k := 0; k < len(form); k++ {
		if i >= len(text) {
			return 0
		}
		if c, n := unescape(text, i); n > 0 && c == form[k] {
			i += n
			continue
		}
		if text[i] != form[k] {
			return 0
		}
		i++
	}
	return i
}

// unescape reads the escape at text[i]: what it stands for, and how long it is; 0 if there is none. Keys are of ASCII, and
// so nothing else is read.
func unescape[T string | []byte](text T, i int) (c byte, n int) {
	switch text[i] {
	case '\\':
		return unescapeJSON(text, i)
	case '%':
		if v, ok := hexadecimal(text, i+1, 2); ok {
			return v, 3
		}
	case '&':
		return unescapeHTML(text, i)
	case '+':
		return ' ', 1
	}
	return 0, 0
}

// unescapeJSON reads \u002f, \x2f and \/. What was written into JSON twice has more backslashes.
func unescapeJSON[T string | []byte](text T, i int) (c byte, n int) {
	const deepest = 8 // backslashes: three times over
	j := i
	for j < len(text) && text[j] == '\\' && j-i < deepest {
		j++
	}
	if j == len(text) || text[j] == '\\' {
		return 0, 0
	}
	digits := 0
	switch c := text[j]; {
	case c == 'u':
		digits = 4
	case c == 'x':
		digits = 2
	case c > ' ' && c < utf8.RuneSelf && !isWord(c):
		return c, j + 1 - i
	}
	if v, ok := hexadecimal(text, j+1, digits); ok {
		return v, j + 1 + digits - i
	}
	return 0, 0
}

// hexadecimal reads digits at text[i], which stand for a character of ASCII.
func hexadecimal[T string | []byte](text T, i, digits int) (c byte, ok bool) {
	if digits == 0 || i+digits > len(text) {
		return 0, false
	}
	v := 0
	for _, d := range []byte(text[i : i+digits]) {
		at := strings.IndexByte("0123456789abcdefABCDEF", d)
		if at < 0 {
			return 0, false
		}
		if at > 15 {
			at -= 6
		}
		v = v<<4 | at
	}
	return byte(v), v < utf8.RuneSelf
}

// entities are the characters that HTML has names for and keys may have.
var entities = [...]struct {
	name string
	c    byte
}{
	{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}, {"plus", '+'}, {"sol", '/'}, {"equals", '='},
	{"lowbar", '_'}, {"period", '.'}, {"colon", ':'}, {"hyphen", '-'},
}

// unescapeHTML reads &#43;, &#x2b; and &plus;.
func unescapeHTML[T string | []byte](text T, i int) (c byte, n int) {
	end := i + 1
	for end < len(text) && end-i < 10 && text[end] != ';' {
		end++
	}
	if end == len(text) || text[end] != ';' {
		return 0, 0
	}
	name := string(text[i+1 : end])
	if digits, ok := strings.CutPrefix(strings.ToLower(name), "#"); ok {
		base := 10
		if rest, ok := strings.CutPrefix(digits, "x"); ok {
			base, digits = 16, rest
		}
		if v, err := strconv.ParseUint(digits, base, 7); err == nil {
			return byte(v), end + 1 - i
		}
		return 0, 0
	}
	for _, e := range entities {
		if e.name == name {
			return e.c, end + 1 - i
		}
	}
	return 0, 0
}

// withoutUnseen returns s without what a reader does not see: colours and movements of a terminal, and characters of no
// width, as they are or escaped. They may stand within a key.
func withoutUnseen(s string) string {
	var b strings.Builder
	done := 0
	for i := 0; i < len(s); {
		n := unseen(s, i)
		if n == 0 {
			i++
			continue
		}
		b.WriteString(s[done:i])
		i += n
		done = i
	}
	if done == 0 {
		return s
	}
	b.WriteString(s[done:])
	return b.String()
}

// escapedUnseen is how characters that nobody sees begin where they are escaped.
var escapedUnseen = [...]string{`\u200b`, `\u200c`, `\u200d`, `\u2060`, `\ufeff`, `\u00ad`}

// unseen returns how long what nobody sees is at s[i].
func unseen(s string, i int) int {
	escape := 0
	switch s[i] {
	case 0x1b:
		escape = 1
	case '\\':
		if i+1 == len(s) || s[i+1] != 'u' && s[i+1] != 'x' {
			return 0
		}
		if c, n := unescapeJSON(s, i); n > 0 && c == 0x1b {
			escape = n
		}
		for _, e := range escapedUnseen {
			if escape == 0 && len(s)-i >= len(e) && strings.EqualFold(s[i:i+len(e)], e) {
				return len(e)
			}
		}
	case 0xc2, 0xe2, 0xef:
		switch r, n := utf8.DecodeRuneInString(s[i:]); {
		case r == 0xad, r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x2060 && r <= 0x2064, r == 0xfeff:
			return n
		}
	}
	if escape == 0 || i+escape >= len(s) || s[i+escape] != '[' {
		return escape
	}
	j := i + escape + 1
	for j < len(s) && s[j] >= '0' && s[j] <= '?' {
		j++
	}
	if j < len(s) && s[j] >= '@' && s[j] <= '~' && s[j] != '\\' {
		j++
	}
	return j - i
}
