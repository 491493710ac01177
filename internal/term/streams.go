// Package term has the standard streams of the program: standard output for data, standard error for people. It removes keys from
// everything that it writes, except from Data: results must stay as the provider sent them. Text from elsewhere can't control a terminal.
package term

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/term"
)

// Streams are the standard streams of the program. Writing to Out and Err is safe for concurrent use.
type Streams struct {
	Args []string // command line, without passwords
	In   io.Reader
	Out  *Writer
	Err  *Writer
}

// New returns streams that hide the keys in environment variables.
func New(args []string, stdin io.Reader, stdout, stderr io.Writer) *Streams {
	hidden := &secrets{}
	for _, variable := range os.Environ() {
		if name, value, _ := strings.Cut(variable, "="); namesKey(name) && !isPath(value) {
			hidden.hide(value)
		}
	}
	return &Streams{
		Args: args, In: stdin,
		Out: &Writer{w: stdout, secrets: hidden, data: true, screen: IsTerminal(stdout)}, Err: &Writer{w: stderr, secrets: hidden},
	}
}

// namesKey reports whether the name of an environment variable is that of a key, such as OPENAI_API_KEY or DB_PASSWORD.
func namesKey(name string) bool {
	words := strings.Split(strings.ToUpper(name), "_")
	switch words[len(words)-1] {
	case "KEY", "APIKEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD":
		return true
	}
	return false
}

// isPath reports whether a value is the path of a file. The file may contain a key, but the path is not secret.
func isPath(value string) bool {
	return filepath.IsAbs(value) || strings.HasPrefix(value, ".") || strings.HasPrefix(value, "~")
}

// Hide keeps a secret out of all output from now on.
func (s *Streams) Hide(secret string) { s.Err.secrets.hide(secret) }

// Redact returns a text for people without keys, and without other texts that resemble keys.
func (s *Streams) Redact(text string) string { return s.Err.secrets.redact(text) }

// RedactData returns data without keys. Names and IDs that resemble keys stay.
func (s *Streams) RedactData(data string) string { return s.Err.secrets.redactData(data) }

// Errorf prints to standard error. Texts among args are escaped, because they can come from anywhere.
func (s *Streams) Errorf(format string, args ...any) {
	for i, a := range args {
		switch a := a.(type) { // keys are removed before escapes could split them
		case string:
			args[i] = Escape(s.Redact(a))
		case error:
			args[i] = Escape(s.Redact(a.Error()))
		case fmt.Stringer:
			args[i] = Escape(s.Redact(a.String()))
		}
	}
	fmt.Fprintf(s.Err, format, args...)
}

// Warn prints err as a warning. It prints nothing if err is nil.
func (s *Streams) Warn(err error) {
	if err != nil {
		s.Errorf("sluice: warning: %s\n", err)
	}
}

// Row prints a row of a summary: a name and a text.
func (s *Streams) Row(name, format string, args ...any) {
	text := Escape(s.Redact(fmt.Sprintf(format, args...)))
	io.WriteString(s.Err, s.Err.Fit(fmt.Sprintf("  %-10s %s\n", name, text)))
}

// SubRow prints a row below a row.
func (s *Streams) SubRow(name, format string, args ...any) {
	s.Row(fmt.Sprintf("  %-10s", name), format, args...)
}

// GoesTo reports whether standard output is redirected to this file.
func (s *Streams) GoesTo(name string) bool {
	file, isFile := s.Out.w.(*os.File)
	if !isFile || name == "" {
		return false
	}
	a, errA := file.Stat()
	b, errB := os.Stat(name)
	return errA == nil && errB == nil && os.SameFile(a, b)
}

// JSON prints v as one indented document to standard output.
func (s *Streams) JSON(v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "%s\n", b)
	return err
}

// JSONLine prints v as one line to standard output.
func (s *Streams) JSONLine(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = s.Out.Write(append(b, '\n'))
	return err
}

// ErrJSONLine prints v, which consists of numbers and texts, as one line to standard error.
func (s *Streams) ErrJSONLine(v any) {
	b, err := json.Marshal(v)
	if err != nil {
		return
	}
	line := string(b)
	if IsTerminal(s.Err.w) {
		line = Escape(line)
	}
	io.WriteString(s.Err, line+"\n") // its reader may have ended
}

// Data returns standard output for data that must stay as it is, keys included. On a terminal, control characters are escaped.
func (s *Streams) Data() io.Writer {
	if s.Out.screen {
		return &screen{w: s.Out.w}
	}
	return s.Out.w
}

// IsTerminal reports whether a stream is a terminal.
func IsTerminal(stream any) bool {
	f, isFile := stream.(*os.File)
	return isFile && term.IsTerminal(int(f.Fd()))
}
