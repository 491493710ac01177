package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/sluice-llm/sluice/provider"
)

// streams are the program's ends. Writing to out and err is safe for concurrent use.
type streams struct {
	args []string // of the command line, as they may be shown
	in   io.Reader
	out  *safeWriter
	err  *safeWriter
}

func newStreams(args []string, stdin io.Reader, stdout, stderr io.Writer) *streams {
	hidden := &secrets{}
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); namesKey(name) && !isPath(value) {
			hidden.hide(value)
		}
	}
	return &streams{
		args: shownArgs(args), in: stdin,
		out: &safeWriter{w: stdout, secrets: hidden, data: true, screens: isTerminal(stdout)}, err: &safeWriter{w: stderr, secrets: hidden},
	}
}

// namesKey reports whether an environment variable is named for a key, as OPENAI_API_KEY and DB_PASSWORD are.
func namesKey(name string) bool {
	words := strings.Split(strings.ToUpper(name), "_")
	switch words[len(words)-1] {
	case "KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD":
		return true
	}
	return false
}

// isPath reports whether a value is the path of a file, which may hold a key but is none.
func isPath(value string) bool {
	return filepath.IsAbs(value) || strings.HasPrefix(value, ".") || strings.HasPrefix(value, "~")
}

// errorf prints to standard error. Text among args is escaped: it may come from anywhere. Keys are struck out of it first,
// since escapes could part them.
func (s *streams) errorf(format string, args ...any) {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = escape(s.err.secrets.blot(a))
		case error:
			args[i] = escape(s.err.secrets.blot(a.Error()))
		case fmt.Stringer:
			args[i] = escape(s.err.secrets.blot(a.String()))
		}
	}
	fmt.Fprintf(s.err, format, args...)
}

// note prints what went wrong beside the work, if anything did.
func (s *streams) note(err error) {
	if err != nil {
		s.errorf("sluice: warning: %s\n", err)
	}
}

// row prints a line of a summary: what it is about, and what there is to say of it.
func (s *streams) row(name, format string, args ...any) {
	text := escape(s.err.secrets.blot(fmt.Sprintf(format, args...)))
	io.WriteString(s.err, s.err.fit(fmt.Sprintf("  %-10s %s\n", name, text)))
}

// runRow prints a row that covers this run only, below the row of the run.
func (s *streams) runRow(name, format string, args ...any) {
	s.row(fmt.Sprintf("  %-10s", name), format, args...)
}

// prints reports whether standard output goes to that file.
func (s *streams) prints(name string) bool {
	file, isFile := s.out.w.(*os.File)
	if !isFile || name == "" {
		return false
	}
	a, errA := file.Stat()
	b, errB := os.Stat(name)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// printJSON writes v as one indented document to standard output.
func (s *streams) printJSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.out, "%s\n", b)
	return err
}

// printJSONLine writes v as one line to standard output.
func (s *streams) printJSONLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = s.out.Write(append(b, '\n'))
	return err
}

// tellJSONLine writes v as one line to standard error. Its fields are numbers and names, so that it cannot fail.
func (s *streams) tellJSONLine(v any) {
	if b, err := json.Marshal(v); err == nil {
		s.err.Write(append(b, '\n')) // whoever read it may be gone
	}
}

// data returns where much data goes that is not ours to change: to standard output as it is, but on a terminal without what
// would steer that.
func (s *streams) data() io.Writer {
	if s.out.screens {
		return &screen{w: s.out.w}
	}
	return s.out.w
}

// terminal returns the size of the terminal that standard error is, or false if it is none.
func (s *streams) terminal() (width, height int, ok bool) { return s.err.terminal() }

func isTerminal(w io.Writer) bool {
	f, isFile := w.(*os.File)
	return isFile && term.IsTerminal(int(f.Fd()))
}

// terminal returns the size of the terminal that w writes to. It returns false for files, pipes and dumb terminals.
func (w *safeWriter) terminal() (width, height int, ok bool) {
	f, isFile := w.w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) || !steerable(f) {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width, height = 80, 24
	}
	return width, height, true
}

// fit folds the lines of a table that are longer than the terminal is wide.
func (w *safeWriter) fit(table string) string {
	width, _, ok := w.terminal()
	if !ok {
		return table
	}
	lines := strings.Split(table, "\n")
	for i := range lines {
		lines[i] = fold(lines[i], width)
	}
	return strings.Join(lines, "\n")
}

// secrets are texts that must not appear in any output. The zero value holds none. It is safe for concurrent use.
type secrets struct {
	mu    sync.Mutex
	texts []string
}

// hide makes all writers blot out that text from now on.
func (s *secrets) hide(text string) {
	if len(text) < 8 { // blotting out a short word would make everything unreadable and hide little
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.texts, text) {
		s.texts = append(s.texts, text)
	}
}

// blot returns text without the secrets, and without whatever else looks like a key: one may have been given in place of
// a name.
func (s *secrets) blot(text string) string { return provider.Redact(text, s.all()...) }

// strike returns data without the secrets, and without what can be nothing but a key.
func (s *secrets) strike(text string) string { return provider.RedactKeys(text, s.all()...) }

func (s *secrets) all() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.texts // it only grows
}

// safeWriter passes text on with secrets blotted out, and keeps a block of lines below all other text, which can be
// redrawn. It is safe for concurrent use.
type safeWriter struct {
	mu      sync.Mutex
	w       io.Writer
	secrets *secrets
	data    bool     // what is written is data: names and ids stay that only remind of keys
	screens bool     // it goes to a terminal, which data must not steer
	block   []string // shown on the terminal below the rest
}

func (w *safeWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	blot := w.secrets.blot
	if w.data {
		blot = w.secrets.strike
	}
	text := blot(string(b))
	if w.screens {
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

// redraw replaces the block. None takes it off the terminal.
func (w *safeWriter) redraw(block []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.eraseLocked()
	w.block = block
	if text += w.drawLocked(); text != "" {
		io.WriteString(w.w, text) // a terminal that is gone is nothing to stop for
	}
}

func (w *safeWriter) eraseLocked() string {
	if len(w.block) == 0 {
		return ""
	}
	rows := len(w.block)
	if width, _, ok := w.terminal(); ok { // a terminal that became narrower has wrapped long lines
		for _, line := range w.block {
			rows += max(0, utf8.RuneCountInString(line)-1) / width
		}
	}
	return strings.Repeat("\x1b[A", rows) + "\r\x1b[J"
}

// failures are the parts of messages, summaries and progress that state a failure.
var failures = regexp.MustCompile(`(?m)^sluice: error:|^  failed .*$|\b[\d,]+ failed\b`)

// colouredLocked prints failures in red on a terminal, unless NO_COLOR is set (https://no-color.org). Data has no colours.
func (w *safeWriter) colouredLocked(text string) string {
	if w.data || os.Getenv("NO_COLOR") != "" {
		return text
	}
	if _, _, ok := w.terminal(); !ok {
		return text
	}
	return failures.ReplaceAllString(text, "\x1b[31m$0\x1b[0m")
}

func (w *safeWriter) drawLocked() string {
	var b strings.Builder
	for _, line := range w.block {
		b.WriteString(w.colouredLocked(escape(w.secrets.blot(line))))
		b.WriteByte('\n')
	}
	return b.String()
}

// escape makes text harmless on a terminal: control characters, which could move the cursor or rewrite what stands
// above, and bytes that are no UTF-8 are spelled out.
func escape(text string) string {
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
