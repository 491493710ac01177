package term

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bar draws the share of done in total.
func Bar(done, total, width int) string {
	if total <= 0 {
		return ""
	}
	share := float64(min(done, total)) / float64(total)
	full := int(share * float64(width))
	return fmt.Sprintf("[%s%s] %3d %%", strings.Repeat("#", full), strings.Repeat(".", width-full), int(share*100))
}

// Clip shortens a text to width characters: after a field, if it has several that are separated by " · ".
func Clip(text string, width int) string {
	runes := []rune(text)
	if width < 1 || len(runes) <= width {
		return text
	}
	if i := strings.LastIndex(string(runes[:width]), " · "); i > 0 {
		return text[:i]
	}
	return string(runes[:width-1]) + "…"
}

// betweenCells separates the cells of a table.
var betweenCells = regexp.MustCompile(` {2,}`)

// fold breaks a line of a table at width characters, in the last cell that starts in the left half.
func fold(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	at := 0
	for _, gap := range betweenCells.FindAllStringIndex(line, -1) {
		if gap[1] <= width/2 {
			at = gap[1]
		}
	}
	return line[:at] + strings.ReplaceAll(Wrap(line[at:], width-at), "\n", "\n"+strings.Repeat(" ", at))
}

// Wrap breaks the paragraphs of a text at width characters. Lines that start with a space are not joined.
func Wrap(text string, width int) string {
	text = regexp.MustCompile(`(\S)\n(\S)`).ReplaceAllString(text, "$1 $2")
	broken := regexp.MustCompile(fmt.Sprintf(`(.{1,%d})( |\n|$)`, width)).ReplaceAllString(text, "$1\n")
	return strings.TrimRight(broken, "\n")
}

// Quote quotes a word for a shell.
func Quote(word string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:=@%+,", r)
	}
	if word != "" && strings.IndexFunc(word, func(r rune) bool { return !plain(r) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Escape escapes control characters, which could change earlier output on a terminal, and bytes that are not UTF-8.
func Escape(text string) string {
	harmless := func(r rune) bool { return r != unicode.ReplacementChar && unicode.IsPrint(r) }
	if strings.IndexFunc(text, func(r rune) bool { return !harmless(r) }) < 0 {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == unicode.ReplacementChar && !strings.HasPrefix(text[i:], string(unicode.ReplacementChar)):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case !unicode.IsPrint(r) && r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// escapeLines escapes a text, but keeps its lines and tabs.
func escapeLines(text string) string {
	var b strings.Builder
	for {
		i := strings.IndexAny(text, "\n\t")
		if i < 0 {
			b.WriteString(Escape(text))
			return b.String()
		}
		b.WriteString(Escape(text[:i]))
		b.WriteByte(text[i])
		text = text[i+1:]
	}
}

// screen writes a stream of escaped text to a terminal.
type screen struct {
	w    io.Writer
	rest []byte // an incomplete character
}

// Write writes text.
func (s *screen) Write(b []byte) (int, error) {
	text := append(bytes.Clone(s.rest), b...)
	whole := len(text)
	for n := 1; n < utf8.UTFMax && n <= len(text); n++ {
		if start := len(text) - n; utf8.RuneStart(text[start]) {
			if !utf8.FullRune(text[start:]) {
				whole = start
			}
			break
		}
	}
	s.rest = bytes.Clone(text[whole:])
	if _, err := io.WriteString(s.w, escapeLines(string(text[:whole]))); err != nil {
		return 0, err
	}
	return len(b), nil
}
