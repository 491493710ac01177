package cli

import (
	"bytes"
	"io"
	"strings"
	"unicode/utf8"
)

// screen writes text to a terminal and spells out whatever in it would steer the terminal. Lines and tabs stay.
type screen struct {
	w    io.Writer
	rest []byte // of a character that is not whole yet
}

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

// escapeLines makes a text of lines harmless on a terminal.
func escapeLines(text string) string {
	var b strings.Builder
	for {
		i := strings.IndexAny(text, "\n\t")
		if i < 0 {
			b.WriteString(escape(text))
			return b.String()
		}
		b.WriteString(escape(text[:i]))
		b.WriteByte(text[i])
		text = text[i+1:]
	}
}
