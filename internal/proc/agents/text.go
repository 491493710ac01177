package agents

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
)

// phrases are words of CLIs, and words of the same meaning that provider.ClassifyText knows.
var phrases = [...]struct{ own, known string }{
	{"Spending cap reached", "Usage limit reached"},
	{"rate limit: try again", "Error: rate limit reached: try again"},
}

var (
	// escapes are what colours a text, moves a cursor, or names a window.
	escapes = regexp.MustCompile("\x1b(?:\\[[0-?]*[ -/]*[@-~]|\\][^\x07\x1b]*(?:\x07|\x1b\\\\)?|[@-Z^_])")
	// erases puts a carriage return in place of what moves the cursor to the start of its line, and a space behind it where that
	// erases the line, as a spinner does before its next frame.
	erases = strings.NewReplacer("\x1b[2K", "\r ", "\r\x1b[K", "\r ", "\r\x1b[0K", "\r ", "\r\x1b[J", "\r ", "\r\x1b[0J", "\r ",
		"\x1b[1G\x1b[0K", "\r ", "\x1b[G\x1b[K", "\r ", "\x1b[1G", "\r", "\x1b[G", "\r")
	// nodeWarnings are what Node writes before the output of its program.
	nodeWarnings = regexp.MustCompile(`\A(?:\s*(?:\(node:\d+\) |\(Use .node --trace-)[^\n]*\n)+`)
	// retryAfter is the header of a response that a command printed.
	retryAfter = regexp.MustCompile(`(?im)^[^\w\n]*retry-after["']?\s*[:=]\s*["']?(\d{1,7})(?:\.\d+)?\s*(?:s|sec|seconds)?["']?[,;]?\s*$`)
	// about begins a paragraph that talks of the one before, or stands in it.
	about = regexp.MustCompile("^(?:[\\p{Ll}(“\"'>`]|(?:This|That|It|These|Those|Which|Here)\\b)" +
		`|\b(?:means?|prints?|printed|says?|message|notice|quoted?|example)\b`)
)

// plain returns an output as its program wrote it for people: without colours, and without a byte order mark and the warnings of
// Node before it. Its carriage returns tell shown which words were overwritten.
func plain(out []byte) []byte {
	if bytes.IndexByte(out, 0x1b) >= 0 {
		out = escapes.ReplaceAll([]byte(erases.Replace(string(out))), nil)
	}
	out = bytes.TrimPrefix(out, []byte("\ufeff"))
	return out[len(nodeWarnings.Find(out)):]
}

// shown returns the last words that a terminal would show on each line of a plain output.
func shown(out []byte) (kept []byte) {
	for line := range bytes.Lines(out) {
		kept = append(kept, line[bytes.LastIndexByte(bytes.TrimRight(line, "\r\n"), '\r')+1:]...)
	}
	return kept
}

// stated returns the wait that a line of a response's header states; 0 if there is none.
func stated(text string) time.Duration {
	if m := retryAfter.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1])
		return time.Duration(n) * time.Second
	}
	return 0
}

// A notice is at most so long.
const (
	mostNotice      = 2000
	mostNoticeLines = 2
	mostAfterNotice = 6 // lines, in a paragraph of its own
)

// isOne reports whether an output is nothing but one of the notices: printed once or twice, and perhaps with a paragraph behind it
// that says what can be done.
func isOne(notices []*regexp.Regexp, out []byte) bool {
	text := strings.TrimSpace(strings.ReplaceAll(string(out[:min(len(out), mostNotice+1)]), "\r\n", "\n"))
	if text == "" || len(text) > mostNotice {
		return false
	}
	if first, second := strings.TrimSpace(text[:len(text)/2]), strings.TrimSpace(text[len(text)/2:]); first == second {
		text = first
	}
	if first, rest, ok := strings.Cut(text, "\n\n"); ok && !about.MatchString(strings.TrimSpace(rest)) && strings.Count(rest, "\n") < mostAfterNotice {
		text = first
	}
	if strings.Count(text, "\n") >= mostNoticeLines {
		return false
	}
	for _, notice := range notices {
		if notice.MatchString(text) {
			return true
		}
	}
	return false
}

// cutOff reports whether a text is the beginning of a JSON value, and not all of it.
func cutOff(text []byte) bool {
	if len(text) == 0 || text[0] != '{' && text[0] != '[' {
		return false
	}
	inner := bytes.TrimLeft(text[1:], " \t\r\n")
	if len(inner) > 0 && inner[0] != '"' && inner[0] != '{' { // words that begin with a bracket
		return false
	}
	s := jsonscan.New(text)
	s.Skip()
	return s.Bad() && len(text)-s.Offset() < len(`\u0000`) // what went wrong is that it ended
}

// reason returns the part of standard error that says why the CLI failed: all of it, unless it is known to come last.
func (c *CLI) reason(stderr []byte) string {
	if i := bytes.LastIndex(stderr, []byte("\n"+c.begins)); c.begins != "" && i >= 0 {
		return string(stderr[i+1:])
	}
	return string(stderr)
}

// crashed reports whether standard error ends in the exception that ended the program: "KeyError: 'x'". One that passes on how
// another command ended is none: "subprocess.CalledProcessError: Command 'claude' returned non-zero exit status 1."
func crashed(stderr []byte) bool {
	line := lastLine(stderr)
	name, _, _ := strings.Cut(line, ":")
	named := strings.HasSuffix(name, "Error") || strings.HasSuffix(name, "Exception")
	return named && !strings.ContainsAny(name, " \t") && !strings.Contains(line, "exit ")
}

const (
	mostRead  = 8 << 10 // of an output, so much at its end can say why the command failed
	mostLines = 40
)

// lastParagraph returns the part of a standard output that can say why a command failed: all of a short one, and the last
// paragraph of what is longer, because before it come answers, which may talk about errors.
func lastParagraph(out []byte) string {
	text := bytes.TrimSpace(out)
	if len(text) <= mostRead && bytes.Count(text, []byte{'\n'}) < mostLines {
		return string(text)
	}
	text = text[max(0, len(text)-mostRead):]
	for _, gap := range []string{"\n\n", "\n\r\n"} {
		if i := bytes.LastIndex(text, []byte(gap)); i >= 0 {
			text = text[i+len(gap):]
		}
	}
	lines := bytes.SplitAfter(text, []byte{'\n'})
	return string(bytes.Join(lines[max(0, len(lines)-mostLines):], nil))
}

// lastLine returns the last line of an output that has words on it.
func lastLine(out []byte) string {
	for text := out[max(0, len(out)-mostRead):]; len(text) > 0; {
		i := bytes.LastIndexByte(text, '\n')
		line := strings.TrimSpace(string(text[i+1:]))
		if strings.ContainsFunc(line, unicode.IsLetter) {
			return line
		}
		text = text[:max(i, 0)]
	}
	return ""
}

// LastWords returns the last line of an output that has words on it, fit to be shown.
func LastWords(out string) string { return clip(lastLine([]byte(out))) }

// mostText is how much of an error's words is kept.
const mostText = 300

// clip returns a text that is fit to be shown: in one line, not too long, without control characters and keys.
func clip(s string) string {
	if len(s) > mostRead {
		s = s[:mostRead]
	}
	s = strings.Join(strings.FieldsFunc(provider.Redact(strings.ToValidUTF8(s, "")), func(r rune) bool {
		return unicode.IsSpace(r) || unicode.IsControl(r)
	}), " ")
	return prose.Clip(s, mostText)
}
