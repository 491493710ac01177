package recording

import (
	"fmt"
	"strings"
)

// Screen is what stands on a terminal. It knows what our commands send: text, line ends, and the sequences by which a block is
// redrawn. It is not safe for concurrent use.
type Screen struct {
	width, height int
	lines         [][]rune // at least one, at most height
	row, col      int
}

// NewScreen makes an empty screen of so many characters.
func NewScreen(width, height int) *Screen {
	return &Screen{width: width, height: height, lines: make([][]rune, 1)}
}

// Lines are the lines of the screen from above, without what is empty below.
func (s *Screen) Lines() []string {
	all := make([]string, len(s.lines))
	last := 0
	for i, l := range s.lines {
		if all[i] = strings.TrimRight(string(l), " "); all[i] != "" {
			last = i + 1
		}
	}
	return all[:last]
}

// Write shows text. A sequence that the screen does not know is an error.
func (s *Screen) Write(text string) error {
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			n, err := s.steer(rest)
			if err != nil {
				return err
			}
			text = rest[n:]
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		switch {
		case r == '\n':
			s.down()
		case r == '\r':
			s.col = 0
		case r < ' ':
			return fmt.Errorf("control character %#x", r)
		default:
			s.put(r)
		}
	}
	return nil
}

// steer obeys the sequence that text begins with, behind its introducer, and returns its length.
func (s *Screen) steer(text string) (int, error) {
	end := strings.IndexFunc(text, func(r rune) bool { return r >= '@' && r <= '~' })
	if end < 0 {
		return 0, fmt.Errorf("a sequence without an end: %q", text)
	}
	switch sequence := text[:end+1]; sequence {
	case "A":
		s.row = max(0, s.row-1)
	case "J":
		s.lines = s.lines[:s.row+1]
		s.lines[s.row] = s.lines[s.row][:min(s.col, len(s.lines[s.row]))]
	default:
		return 0, fmt.Errorf("unknown sequence %q", sequence)
	}
	return end + 1, nil
}

func (s *Screen) put(r rune) {
	if s.col == s.width {
		s.col = 0
		s.down()
	}
	line := s.lines[s.row]
	for len(line) <= s.col {
		line = append(line, ' ')
	}
	line[s.col] = r
	s.lines[s.row] = line
	s.col++
}

// down goes to the next line, and scrolls at the lower end.
func (s *Screen) down() {
	if s.row++; s.row == len(s.lines) {
		s.lines = append(s.lines, nil)
	}
	if len(s.lines) > s.height {
		s.lines = s.lines[1:]
		s.row--
	}
}
