package agents

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/sluice-llm/sluice/internal/errtext"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
)

// phrases are words of CLIs, and words of the same meaning that provider.ClassifyText knows.
var phrases = [...]struct{ own, known string }{
	{"Spending cap reached", "Usage limit reached"},
	{"rate limit: try again", "rate limit reached: try again"},
	{"Rate limit from ", "Rate limit reached, from "},
}

var (
	// nodeWarnings are what Node writes before the output of its program.
	nodeWarnings = regexp.MustCompile(`\A(?:\s*(?:\(node:\d+\) |\(Use .node --trace-)[^\n]*\n)+`)
	// retryAfter is the header of a response that a command printed.
	retryAfter = regexp.MustCompile(`(?im)^[^\w\n]*retry-after["']?\s*[:=]\s*["']?(\d{1,7})(?:\.\d+)?\s*(?:s|sec|seconds)?["']?[,;]?\s*$`)
	// command matches a line below a notice that names a command of the agent.
	command = regexp.MustCompile(`^\s*/(?:upgrade|extra-usage|usage-credits|rate-limit-options|login)\b[^.]{0,80}\.?$`)
	// advice matches a line that advises what to do about an error. It is neither an error nor further output.
	advice = regexp.MustCompile(`(?i)^\W*(?:\d[.)] )?(?:please|try|retry|retrying|wait|stop|switch|add|see|visit|check|upgrade|purchase|run|use|` +
		`get|for more|session (?:has )?ended|to|or|contact|request|your?|learn|what do you want|the api provider)\b|https?://`)
	// label matches the name or the time that a wrapper puts in front of a line.
	label = regexp.MustCompile(`^\s*(?:\[(?:[A-Za-z][\w .-]{0,30}|[\d:.,TZ +/-]{5,40})\] +|[\w.-]{1,40} +\| +|` +
		`\d{4}-\d\d-\d\d[T ][\d:.,]+(?:Z|[+-]\d\d:?\d\d)? (?:(?:TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|FATAL|CRITICAL):? +)?)`)
	// introduces matches a line that introduces the next one as a quotation.
	introduces = regexp.MustCompile(`(?i)\b(?:prints?|printed|says?|said|shows?|shown|reads?|displays?|displayed|returns?|returned|answers?|` +
		`answered|expects?|expected|means?|message|notice|example|following|follows|quote|below)\W*$|` +
		`\b(?:this|these|those|ones?|lines?|cases?|failures?|output|log|text|warning|problem|reason|below|is|are|was|with|like|as)\W*:$|^\W*\d+[.)] .*:$`)
	// sentence matches a line that is a whole sentence.
	sentence = regexp.MustCompile(`^\W*[A-Z].*[.!?]["')]*$`)
	// starts matches a line of words, ends one on which a sentence ends, and belongs one that may follow an error of which it is a part.
	starts  = regexp.MustCompile(`^(?:\d+[.)] )?\pL`)
	ends    = regexp.MustCompile(`[.!?。]["')]*$`)
	belongs = regexp.MustCompile(`(?i)^(?:["'{}\[\](]|node\.js v|note: |exit(?:ed)? (?:status|with|code)\b|[\w -]{0,30}(?:id|status|code|type|url|model) ?[:=])|` + advice.String())
	// continues matches a line of prose that continues after an error that it quotes.
	continues = regexp.MustCompile(`[.!?]["')]* (?:is|was|are|were)\b|\p{Hiragana}`)
	// retries matches a line of a program that is about to retry.
	retries = regexp.MustCompile(`(?i)\b(?:retrying|reconnecting|trying again)\b`)
)

// plain returns an output without colours and cursor codes, and without a byte order mark and the warnings of Node before it. It keeps
// carriage returns, by which lines finds overwritten words.
func plain(out []byte) []byte {
	if bytes.IndexByte(out, 0x1b) >= 0 {
		out = []byte(errtext.Unescape(string(out)))
	}
	out = bytes.TrimPrefix(out, []byte("\ufeff"))
	return out[len(nodeWarnings.Find(out)):]
}

// lines returns the last lines of a plain output without overwritten words, boxes and bullets. A line that only draws becomes empty.
// Lines in a code block and between two rules of Markdown get a mark of quotation.
func lines(out []byte) []string {
	var shown strings.Builder
	for line := range bytes.Lines(out[max(0, len(out)-errtext.MaxRead):]) {
		shown.Write(overwritten(line))
	}
	all, fenced, boxed, ruled := strings.Split(errtext.Plain(shown.String()), "\n"), false, false, -1
	for i, line := range all {
		line = strings.TrimRight(line, " \t")
		if fence := strings.HasPrefix(strings.TrimSpace(line), "```"); fence || fenced {
			line, fenced = "> "+line, fenced != fence
		}
		if row := inBox.FindStringSubmatch(line); boxed && row != nil {
			line = row[1]
		} else {
			boxed = !boxed && border.MatchString(line)
		}
		if border.MatchString(line) || strings.Trim(line, "+-=_*~#|. ") == "" {
			if strings.Contains(line, "---") && strings.Trim(line, "-|: ") == "" {
				if ruled >= 0 {
					quote(all[ruled+1 : i])
				}
				ruled = i
			}
			line = ""
		}
		all[i] = line
	}
	return all
}

var (
	// border matches the upper and the lower line of a box of ASCII, which may have a title.
	border = regexp.MustCompile(`^\s*(?:\+[-=](?:.*[-=])?\+|#{8,}|\*{8,})$`)
	inBox  = regexp.MustCompile(`^\s*[|#*] (.*?) ?[|#*]$`)
)

// quote gives lines a mark of quotation.
func quote(lines []string) {
	for i, line := range lines {
		if line != "" {
			lines[i] = "> " + line
		}
	}
}

// overwritten returns a line without the words that a terminal overwrites.
func overwritten(line []byte) []byte {
	return line[bytes.LastIndexAny(bytes.TrimRight(line, "\r\n\b"), "\r\b")+1:]
}

// stated returns the wait that a line of a response's header states; 0 if there is none.
func stated(text string) time.Duration {
	if m := retryAfter.FindStringSubmatch(text); m != nil {
		n, _ := strconv.Atoi(m[1])
		return time.Duration(n) * time.Second
	}
	return 0
}

const (
	mostNotice = 2000 // bytes of a notice
	mostBanner = 3    // lines of a wrapper right before one
	mostAdvice = 6    // lines behind one
)

// ending returns the notice that is the whole output or its last paragraph; "" if there is none. A few lines of a wrapper may stand
// right before it, and advice after it. A notice that the line before introduces is a quotation. An unknown command may print the
// output of others, so a notice counts there only if those few lines are all that stands before it.
func (c *CLI) ending(notices []*regexp.Regexp, out []byte) string {
	all := slices.DeleteFunc(lines(out), command.MatchString)
	for advised := 0; advised <= mostAdvice; advised++ {
		for len(all) > 0 && all[len(all)-1] == "" {
			all = all[:len(all)-1]
		}
		first := len(all)
		for first > 0 && all[first-1] != "" {
			first--
		}
		for i := first; i < min(len(all), first+mostBanner+1); i++ {
			if quoted(all[:i]) || c.name == "" && i > mostBanner {
				break
			}
			text := strings.Join(strings.Fields(label.ReplaceAllString(strings.Join(all[i:], " "), "")), " ")
			if advised == 0 && len(all) == 1 { // marks of Markdown decorate the whole output, and quote a part of one
				text = strings.Trim(text, "*->_ ")
			}
			if len(text) <= mostNotice && isOne(notices, text) {
				return text
			}
		}
		if first == len(all) || !advice.MatchString(all[len(all)-1]) || introduces.MatchString(all[len(all)-1]) {
			break
		}
		all = all[:len(all)-1]
	}
	return ""
}

// isOne reports whether a text is one of the notices.
func isOne(notices []*regexp.Regexp, text string) bool {
	return slices.ContainsFunc(notices, func(n *regexp.Regexp) bool { return n.MatchString(text) })
}

// quoted reports whether lines introduce what stands behind them.
func quoted(before []string) bool {
	for _, line := range slices.Backward(before) {
		if line != "" {
			return introduces.MatchString(line) || strings.HasSuffix(line, ":")
		}
	}
	return false
}

// failure returns the errors with which the output of a failed command ends; "" if it ends otherwise. A report may quote errors: they
// do not count, nor does an error that further output follows.
func failure(out []byte) string {
	all := lines(out)
	first, told, before, quote, over, margin := -1, 0, "", false, false, len(out)
	for i, whole := range all {
		line := strings.TrimSpace(whole)
		indent := len(whole) - len(strings.TrimLeft(whole, " \t"))
		opens := errtext.Opens(line) && !continues.MatchString(line)
		again := retries.MatchString(before)
		switch {
		case line == "":
			quote, over = false, true
			continue
		case opens && (quote || first < 0 && (indent > margin+1 || introduces.MatchString(before))):
			quote = true
		case opens && (first < 0 || again):
			first, told = i, 0
		case opens:
		case sentence.MatchString(line) && !advice.MatchString(line) && len(strings.Fields(line)) >= 4:
			if told++; first > 0 || told > 1 { // one may explain an error that is the whole output
				first = -1
			}
		case again || indent == 0 && !errtext.Stack(line) && (over && !belongs.MatchString(line) || errtext.Noise(line)): // code within a stack is indented
			first = -1
		}
		if first < 0 && !quote && starts.MatchString(line) && !errtext.Noise(line) {
			margin = min(margin, indent)
		}
		before, over = line, ends.MatchString(line)
	}
	if first < 0 {
		return ""
	}
	return strings.Join(all[first:], "\n")
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

// mostRead is how much of an error's words is read.
const mostRead = 8 << 10

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
