package provider

import (
	"strings"
	"unicode/utf8"
)

// unadorned returns a text as it was before a terminal showed it: without escape sequences, and with the lines of boxes and
// the bullets of lists as spaces. Lines stay as they are.
func unadorned(s string) string {
	if strings.IndexFunc(s, decoration) < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		if n := escapeSequence(s[i:]); n > 0 {
			i += n
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\r' && strings.HasPrefix(s[i+1:], "\n"):
		case r == '\r':
			b.WriteByte('\n') // a line that was written over
		case decoration(r):
			b.WriteByte(' ')
		default:
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}

// decoration reports whether a character is what terminals put around text: control characters, the lines of boxes,
// blocks, arrows of prompts, bullets and marks.
func decoration(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < ' ' || r == 0x7f:
		return true
	case r >= 0x2500 && r <= 0x259f, r >= 0x2580 && r <= 0x25ff: // boxes, blocks, shapes
		return true
	case r >= 0x2700 && r <= 0x27bf, r >= 0x2600 && r <= 0x26ff: // dingbats, signs
		return true
	case r >= 0x1f300 && r <= 0x1faff: // pictures
		return true
	}
	return strings.ContainsRune("⎿⎾⎡⎢⎣❯•‣⏺⏵⏸⏱⎯\u200b\u200d\ufe0f\ufeff", r)
}

// escapeSequence returns the length of the escape sequence at the beginning of s: of ANSI colours and cursor movement,
// and of titles and links.
func escapeSequence(s string) int {
	if len(s) < 2 || s[0] != 0x1b {
		return 0
	}
	switch s[1] {
	case '[':
		for i := 2; i < len(s); i++ {
			if s[i] >= 0x40 && s[i] <= 0x7e {
				return i + 1
			}
		}
		return len(s)
	case ']':
		for i := 2; i < len(s); i++ {
			switch {
			case s[i] == 0x07:
				return i + 1
			case s[i] == 0x1b && i+1 < len(s) && s[i+1] == '\\':
				return i + 2
			}
		}
		return len(s)
	}
	return 2
}

// tight returns a text with its lines joined as if a terminal had broken them in the middle of words: ends of lines
// and runs of spaces are gone. It is a second reading of a text that the first one does not understand, because it
// also joins what was never broken.
func tight(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); {
		j := i
		broken := false
		for j < len(s) && (s[j] == ' ' || s[j] == '\n' || s[j] == '\t') {
			broken = broken || s[j] == '\n' || s[j] == '\t'
			j++
		}
		switch {
		case j == i:
			b.WriteByte(s[i])
			j++
		case !broken && j == i+1:
			b.WriteByte(' ')
		}
		i = j
	}
	return b.String()
}
