package redact

import (
	"html"
	"strings"
	"unicode"
	"unicode/utf8"
)

// unit is a character as a text has it: by itself or escaped, with the backslashes before it.
type unit struct {
	c    byte // what it stands for; of what is not of ASCII, any byte that is not either
	n    int  // how many bytes of the text it takes
	skip bool // it may part the characters of a secret: white space or a backslash, or what nobody sees, of which c is 0
}

// maxUnit is the length of the longest unit that is waited for.
const maxUnit = 64

// ordinary bytes are units by themselves, wherever they stand.
var ordinary = func() (t [256]bool) {
	for c := range t {
		t[c] = !skipped(byte(c))
	}
	for _, c := range []byte("\\%&\x1b\xc2\xcd\xd8\xe1\xe2\xe3\xef\xf3") {
		t[c] = false
	}
	return t
}()

// skipped reports whether a character is white space or a control character.
func skipped(c byte) bool { return c <= ' ' || c == 0x7f }

// readUnit reads the unit that a text begins with. If more of the text is to come and the unit may not be whole, n is 0.
func readUnit(b []byte, whole bool) unit {
	c := b[0]
	if ordinary[c] || len(b) > 1 && (c == '%' && hexValue[b[1]] == none || c == '&' && b[1] != '#' && !isLetter(b[1])) {
		return unit{c: c, n: 1}
	}
	if c == ' ' {
		return unit{c: c, n: 1, skip: true}
	}
	u, ok := readEscape(b)
	if !ok && !whole && len(b) < maxUnit {
		return unit{}
	}
	return u
}

// decode returns a text without escapes and without what nobody sees, with or without the other characters that may part a secret.
func decode(b []byte, spaces bool) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
		u := readUnit(b[i:], true)
		if i += u.n; u.c != 0 && (spaces || !u.skip) {
			out = append(out, u.c)
		}
	}
	return out
}

// readEscape reads a unit that may be escaped; false if it may go on behind the end of b.
func readEscape(b []byte) (u unit, whole bool) {
	k := 0
	for k < len(b) && b[k] == '\\' {
		k++
	}
	if k == len(b) {
		return unit{n: k, skip: true}, false
	}
	whole = true
	if k > 0 {
		u, whole = readJSON(b[k:])
	}
	if u.n == 0 {
		plain, all := readPlain(b[k:])
		u, whole = plain, whole && all
	}
	u.n += k
	return u, whole
}

// readPlain reads a unit that does not begin with a backslash.
func readPlain(b []byte) (u unit, whole bool) {
	u, whole = unit{c: b[0], n: 1, skip: skipped(b[0])}, true
	switch b[0] {
	case '%':
		v, ok, all := hexadecimal(b[1:], 2)
		if whole = all; ok {
			u = character(rune(v), 3)
		}
	case '&':
		reference, all := readHTML(b)
		if whole = all; reference.n > 0 {
			u = reference
		}
	case 0x1b:
		u.c = 0
		u.n, whole = control(b[1:])
		u.n++
	default:
		if b[0] < utf8.RuneSelf {
			break
		}
		r, n := utf8.DecodeRune(b)
		if wide := character(r, n); wide.skip {
			u = wide
		}
		whole = utf8.FullRune(b)
	}
	return u, whole
}

// readJSON reads the escape behind a backslash.
func readJSON(b []byte) (u unit, whole bool) {
	digits := 0
	switch b[0] {
	case 'n', 't', 'r', 'b', 'f', 'v':
		return unit{c: '\n', n: 1, skip: true}, true
	case 'u':
		digits = 4
	case 'x':
		digits = 2
	default:
		return unit{}, true
	}
	v, ok, whole := hexadecimal(b[1:], digits)
	switch n := 1 + digits; {
	case !ok:
		return unit{}, whole
	case v == '&': // of HTML, as Go writes it into JSON
		rest, whole := readHTML(b[n-1:])
		if rest.n > 0 {
			rest.n += n - 1
			return rest, whole
		}
		return unit{c: '&', n: n}, whole
	case v == 0x1b:
		more, whole := control(b[n:])
		return unit{n: n + more, skip: true}, whole
	default:
		return character(rune(v), n), true
	}
}

// readHTML reads a character reference. Its first byte stands for "&". n is 0 if there is none.
func readHTML(b []byte) (u unit, whole bool) {
	const longest = 60
	if len(b) > 1 && b[1] != '#' {
		end := 1
		for end < len(b) && end < longest && (isDigit(b[end]) || isLetter(b[end])) {
			end++
		}
		if end == len(b) {
			return unit{}, false
		}
		if r, ok := references[string(b[1:end])]; ok && b[end] == ';' {
			return character(r, end+1), true
		}
		return unit{}, true
	}
	end, base := 2, 10
	if len(b) > 2 && b[2]|0x20 == 'x' {
		end, base = 3, 16
	}
	v, first := 0, end
	for ; end < len(b) && end < longest && int(hexValue[b[end]]) < base; end++ { // the first other character ends it
		v = min(v*base+int(hexValue[b[end]]), unicode.MaxRune)
	}
	switch {
	case end <= first:
		return unit{}, end < len(b)
	case end >= len(b):
		return character(rune(v), end), false
	case b[end] == ';':
		end++
	}
	return character(rune(v), end), true
}

// references are the names that HTML has for characters of secrets, and for those that may part them.
var references = func() map[string]rune {
	names := strings.Fields(`Tab NewLine excl quot QUOT num dollar percnt amp AMP apos lpar rpar ast midast plus comma period sol
		colon semi lt LT equals gt GT quest commat lsqb lbrack bsol rsqb rbrack Hat lowbar UnderBar grave DiacriticalGrave lcub
		lbrace verbar vert VerticalLine rcub rbrace nbsp NonBreakingSpace shy ensp emsp thinsp hairsp ZeroWidthSpace zwnj zwj
		lrm rlm NoBreak hyphen dash`)
	t := make(map[string]rune, len(names))
	for _, name := range names {
		t[name], _ = utf8.DecodeRuneInString(html.UnescapeString("&" + name + ";"))
	}
	t["hyphen"], t["dash"] = '-', '-' // as who looks for "-" writes it
	return t
}()

// character is the unit of a character that takes n bytes.
func character(r rune, n int) unit {
	switch {
	case r < utf8.RuneSelf && skipped(byte(r)):
		if unicode.IsSpace(r) {
			return unit{c: byte(r), n: n, skip: true}
		}
		return unit{n: n, skip: true}
	case r < utf8.RuneSelf:
		return unit{c: byte(r), n: n, skip: r == '\\'}
	case unicode.IsSpace(r):
		return unit{c: ' ', n: n, skip: true}
	case unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point):
		return unit{n: n, skip: true}
	}
	return unit{c: byte(r) | 0x80, n: n}
}

// control returns the length of a terminal's sequence behind its escape character.
func control(b []byte) (n int, whole bool) {
	if len(b) == 0 || b[0] != '[' {
		return 0, len(b) > 0
	}
	for n = 1; n < len(b) && n < maxUnit; n++ {
		switch c := b[n]; {
		case c >= '@' && c <= '~' && c != '\\':
			return n + 1, true
		case c < '0' || c > '?':
			return n, true
		}
	}
	return n, n == maxUnit
}

// hexadecimal reads a number of so many digits.
func hexadecimal(b []byte, digits int) (v int, ok, whole bool) {
	for i := range digits {
		if i == len(b) {
			return 0, false, false
		}
		d := hexValue[b[i]]
		if d == none {
			return 0, false, true
		}
		v = v<<4 | int(d)
	}
	return v, true, true
}

// none is the value of what is not a digit.
const none = 0xff

var (
	hexValue    = values("0123456789abcdef", "0123456789ABCDEF")
	base64Value = values("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
)

// values returns what the digits of some alphabets stand for.
func values(alphabets ...string) (t [256]byte) {
	for c := range t {
		t[c] = none
	}
	for _, a := range alphabets {
		for v, c := range []byte(a) {
			t[c] = byte(v)
		}
	}
	return t
}

func isDigit(c byte) bool  { return c >= '0' && c <= '9' }
func isLetter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isWord(c byte) bool   { return isDigit(c) || isLetter(c) || c == '_' }
