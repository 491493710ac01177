package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/term"
)

// streams are the program's ends. Writing to err is safe for concurrent use.
type streams struct {
	in  io.Reader
	out io.Writer
	err *safeWriter
}

func newStreams(stdin io.Reader, stdout, stderr io.Writer) *streams {
	return &streams{in: stdin, out: stdout, err: &safeWriter{w: stderr}}
}

// errorf prints to standard error. Text among args is escaped: it may come from anywhere.
func (s *streams) errorf(format string, args ...any) {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = escape(a)
		case error:
			args[i] = escape(a.Error())
		case fmt.Stringer:
			args[i] = escape(a.String())
		}
	}
	fmt.Fprintf(s.err, format, args...)
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

// terminal returns the size of the terminal that standard error is, or false if it is none.
func (s *streams) terminal() (width, height int, ok bool) {
	f, isFile := s.err.w.(*os.File)
	if !isFile || !term.IsTerminal(int(f.Fd())) || os.Getenv("TERM") == "dumb" {
		return 0, 0, false
	}
	width, height, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width, height = 80, 24
	}
	return width, height, true
}

// safeWriter passes text on with secrets blotted out. It is safe for concurrent use.
type safeWriter struct {
	mu      sync.Mutex
	w       io.Writer
	secrets []string
}

// hide makes the writer blot out secret from now on.
func (w *safeWriter) hide(secret string) {
	if len(secret) < 8 { // blotting out a short word would make everything unreadable and hide little
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.secrets = append(w.secrets, secret)
}

func (w *safeWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := string(b)
	for _, secret := range w.secrets {
		text = strings.ReplaceAll(text, secret, "[redacted]")
	}
	if _, err := io.WriteString(w.w, text); err != nil {
		return 0, err
	}
	return len(b), nil
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
