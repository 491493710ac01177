package term

import (
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/sluice-llm/sluice/internal/redact"
)

// secrets are texts that no output contains. It is safe for concurrent use.
type secrets struct {
	mu    sync.Mutex
	texts []string
}

// minSecret is the length of the shortest secret. To hide a shorter text would make output unreadable, and hide little.
const minSecret = 8

func (s *secrets) hide(text string) {
	if len(text) < minSecret {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.texts, text) {
		s.texts = append(s.texts, text)
	}
}

func (s *secrets) redact(text string) string { return redact.New(s.all()...).Text(text) }

func (s *secrets) redactData(data string) string { return redact.New(s.all()...).Data(data) }

func (s *secrets) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.texts // it only grows
}

// Writer writes text without secrets. It can keep a block of lines below all other text. It is safe for concurrent use.
type Writer struct {
	mu      sync.Mutex
	w       io.Writer
	secrets *secrets
	data    bool     // texts that only resemble keys stay
	screen  bool     // it is a terminal, which data must not control
	block   []string // lines below all other text
}

// Write writes text.
func (w *Writer) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := string(b)
	if w.data {
		text = w.secrets.redactData(text)
	} else {
		text = w.secrets.redact(text)
	}
	if w.screen {
		text = escapeLines(text)
	}
	text = w.colouredLocked(text)
	if len(w.block) > 0 {
		text = w.eraseLocked() + text + w.drawLocked()
	}
	if _, err := io.WriteString(w.w, text); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Redraw replaces the block. Nil removes it.
func (w *Writer) Redraw(block []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.eraseLocked()
	w.block = block
	if text += w.drawLocked(); text != "" {
		io.WriteString(w.w, text) // a closed terminal is no reason to stop
	}
}

// Size returns the size of the terminal. It returns false for files, pipes and terminals that do not understand escape sequences.
func (w *Writer) Size() (width, height int, ok bool) {
	f, isFile := w.w.(*os.File)
	if !isFile || !IsTerminal(f) || !steerable(f) {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width, height = 80, 24
	}
	return width, height, true
}

// Fit folds the lines of a table that are longer than the terminal is wide.
func (w *Writer) Fit(table string) string {
	width, _, ok := w.Size()
	if !ok {
		return table
	}
	lines := strings.Split(table, "\n")
	for i := range lines {
		lines[i] = fold(lines[i], width)
	}
	return strings.Join(lines, "\n")
}

func (w *Writer) eraseLocked() string {
	if len(w.block) == 0 {
		return ""
	}
	rows := len(w.block)
	if width, _, ok := w.Size(); ok { // a narrower terminal has wrapped long lines
		for _, line := range w.block {
			rows += max(0, utf8.RuneCountInString(line)-1) / width
		}
	}
	return strings.Repeat("\x1b[A", rows) + "\r\x1b[J"
}

// failures are the parts of messages, summaries and progress that state a failure.
var failures = regexp.MustCompile(`(?m)^sluice: error:|^  failed .*$|\b[\d,]+ failed\b`)

// colouredLocked prints failures in red on a terminal, unless NO_COLOR is set (https://no-color.org). Data has no colours.
func (w *Writer) colouredLocked(text string) string {
	if w.data || os.Getenv("NO_COLOR") != "" {
		return text
	}
	if _, _, ok := w.Size(); !ok {
		return text
	}
	return failures.ReplaceAllString(text, "\x1b[31m$0\x1b[0m")
}

func (w *Writer) drawLocked() string {
	var b strings.Builder
	for _, line := range w.block {
		b.WriteString(w.colouredLocked(Escape(w.secrets.redact(line))))
		b.WriteByte('\n')
	}
	return b.String()
}
