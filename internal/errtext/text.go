package errtext

import (
	"regexp"
	"strings"

	"github.com/sluice-llm/sluice/internal/prose"
)

// What makes the words of a line an error's.
var (
	// The name of an exception, where it is given as what happened: openai.RateLimitError, google.api_core.exceptions.NotFound.
	exception = regexp.MustCompile(`\b((?:\w+[.$#])*(?:[A-Z]\w*(?:Error|Exception|Exhausted|Disconnected|Exceeded|Unavailable|` +
		`Unauthenticated|PermissionDenied|TooManyRequests|InvalidArgument|IncompleteRead|Throttled|TimedOut|\wTimeout)|` +
		`(?:exceptions|errors?)\.\w+)|\w+\.Timeout)\b['"\x60*>]*(?:[:(\[{})]| [-{}(\[]|[.,]? *$|[.,] )`)
	errno = regexp.MustCompile(`\b(?:ECONN\w+|ENOTFOUND|EAI_AGAIN|EPIPE|EHOSTUNREACH|ENETUNREACH|ETIMEDOUT|ESOCKETTIMEDOUT|EPROTO|` +
		`ERR_(?:NETWORK|STREAM|TLS)\w*|UND_ERR_\w+|\w*SELF_SIGNED_CERT\w*|UNABLE_TO_(?:GET|VERIFY)\w+|CERT_HAS_EXPIRED)\b`)
	label = oneOf(
		`\b(?:error|fatal|exception|panic|failure)\b[\])*'"]*\s*(?:[:({=\[-]|$)`,
		`\berror (?:code|calling|occurred|when|while|during|from|fetching|generating|sending|processing)\b`,
		`\b(?:failed|unable to|cannot|could not|couldn't)\b`)
	rpcCode = regexp.MustCompile(`\[(resource_exhausted|unauthenticated|permission_denied|deadline_exceeded|invalid_argument)\]`)
	stated  = oneOf( // a status
		`(?:\bstatus(?:[ _]?code)?|\bhttp(?:/[\d.]+)?|\bcode|error|\brejected)["']?[ :=([]*["']?([45]\d\d)\b`, // behind a label
		`\b([45]\d\d)\b[ :)\]"'—–-]*(?:too many requests|resource|unavailable|service un|overloaded|bad gateway|bad request|`+
			`internal|forbidden|unauth|payment req|not found|request timeout|request entity|client error|server error|gateway time|`+
			`rate limit|invalid_|permission_|deadline_)`, // before its own phrase
		`^\W*([45]\d\d)\b[ :—–-]*(?:$|(?-i:[A-Z{"'(\[]))`) // first on its line
	many     = regexp.MustCompile(`(?i)\b[45]\d\d\b[ a-z]*\b(?:errors|responses|failures)\b`)
	codeLike = regexp.MustCompile(`^[A-Za-z][A-Za-z]*_\w+$`)
	codeWord = regexp.MustCompile(`^(?:[A-Za-z]+_\w{3,}|\w*Per(?:Day|Minute)\w*)$`)
	blocked  = regexp.MustCompile(`block_reason(?:: |=<)(?:BlockedReason\.)?(\w+)`)
)

// oneOf returns the expression that matches what one of the patterns does, in either case.
func oneOf(patterns ...string) *regexp.Regexp {
	return regexp.MustCompile("(?i)" + strings.Join(patterns, "|"))
}

// stack matches lines of a stack, and marks below code.
var stack = oneOf(`^at (?:async |new |process\.|.*(?::\d+|<anonymous>|\(unknown\)|\(native.*|file://.*)[ )}]*$)`,
	`^(?:traceback \(most|file "|during handling|the above exception)|^[\^~ ]+$`)

// noise matches other lines that are none of an error's words.
var noise = oneOf(
	`^(?:[*•-] )?[0-9a-f]*[a-f][0-9a-f]* (?:\w+(?:\(\w+\))?: |\w+error: )`, // a commit behind its hash
	`^[*•-]? ?(?:feat|fix|chore|docs|refactor|tests?|perf|ci|build|style|revert)(?:\([^)]*\))?!?: `,
	`^(?:raise|throw|return|await|async|const|let|var|import|from|def|class|except|catch|\} catch|elif|case|export) `, // code
	`^(?:func|function|public|private|assert) `,
	`^make(?:\[\d+\])?: |^(?:if ?\(|print\(|console\.|logger\.|log\.|fmt\.|expect\(|//|/\*|#|- \x60)`,
	`\(.*\{$|[(=].*;$|^[a-z_][\w.]* = ["'f]`,
	`^(?:diff --git|index|commit|merge|@@|\+) `, // a diff
	`^\|.*\|$`, // a table
	`^(?-i:FAIL|PASS|FAILED|---)\s|^\S+\.\w+:\d+:`, // a test, a search
	`^(?-i:E {2,})|^not ok \d|^\W*(?:[\w ]+:\s+)?\d+ (?:tests? )?(?:failed|failing)\b|\b\d+ (?:passed|passing)\b`,
	`http/[\d.]+"? 2\d\d|\{.*\} [\d.e+-]+$`, // a good response, a metric
	`\b\d?\d(?:\.\d+)?% (?:used|of .*(?:limit|quota|usage))`,
	`^(?:\w+\.)*(?:key|name|attribute|import|modulenotfound|syntax|index|assertion|filenotfound|reference|range|recursion)error\b`,
	`^\W*(?:title|subject|todo|fixme|summary|topic|example):`, // what somebody found out
	`^\W*(?:the|my|our|most|root|likely|possible|probable|main)\b[^:]{0,40}\b(?:cause|reason|problem|issue|explanation)\W*:`)

// Find finds in a text what speaks as an error: an exception, a label, a status beside its phrase, an error object, or a sentence
// that the table knows. ok is false if nothing does. What only talks about errors is none, such as a commit's title, a manual,
// code, or a display of usage. The text is plain, and status is the one that is known of it, else 0.
//
// Terminals break lines in the middle of words. Where the plain reading decides nothing, the text is read again with its lines
// joined.
func Find(s string, status int) (e *Error, ok bool) {
	r := reader{e: &Error{inText: true}}
	r.read(s)
	if r.found && r.e.decided(status) || r.skipped && !r.found {
		return r.e, r.found // lines that are no error's words must not become some by being joined
	}
	if joined := broken.ReplaceAllStringFunc(s, join); joined != s {
		if j := (reader{e: &Error{inText: true}}); j.read(joined) && j.e.decided(status) {
			return j.e, true
		}
	}
	return r.e, r.found
}

// decided reports whether a row of the table holds by more than the status.
func (e *Error) decided(status int) bool {
	if e.Status != 0 {
		status = e.Status
	}
	d, ok := e.Decide(status)
	return ok && (d.Message != "" || d.Mark.Field != "")
}

var broken = regexp.MustCompile(`[ \t\n]+`)

// join returns the space within a broken text; a single one is no break.
func join(space string) string {
	if space == " " {
		return space
	}
	return ""
}

const (
	maxLines   = 600         // lines of a text that are read
	maxTaken   = 300         // sentences of a text that are taken
	maxLooked  = 4 * MaxRead // so that a text of nothing but brackets is not read from each of them
	maxWords   = 1000        // bytes of an error that goes on over several lines
	decoration = "\u2500-\u27bf\U0001f300-\U0001faff⎿⎾⎡⎢⎣•‣⏺⏵⏸⏱⏳⎯ℹ↳\u200b\u200d\ufe0f\ufeff"
)

var (
	decorated = regexp.MustCompile(`[\x00-\x08\x0b\x0c\x0e-\x1f\x7f` + decoration + `]`)
	// bullet matches a decoration that begins a line, and does not indent it.
	bullet  = regexp.MustCompile(`(?m)^(?:[` + decoration + `]+|[ \t]*[\x{2600}-\x{27bf}\x{1f300}-\x{1faff}]+\x{fe0f}?) ?`)
	newLine = strings.NewReplacer("\r\n", "\n", "\r", "\n", "<class '", "")
)

// Control sequences of terminals.
var (
	// erases replaces a sequence that moves the cursor to the start of its line by a carriage return, with a space behind it if the line
	// is erased, as a spinner does before its next frame.
	erases = strings.NewReplacer("\x1b[2K", "\r ", "\r\x1b[K", "\r ", "\r\x1b[0K", "\r ", "\r\x1b[J", "\r ", "\r\x1b[0J", "\r ",
		"\x1b[1G\x1b[0K", "\r ", "\x1b[G\x1b[K", "\r ", "\x1b[1G", "\r", "\x1b[G", "\r")
	forward = regexp.MustCompile(`\x1b\[\d*C`)                              // moves to the right: a space
	moves   = regexp.MustCompile(`\x1b\[(?:\d*[ABEF]|\d*;?\d*[Hf]|[23]?J)`) // moves to another line, or clears the screen
	// controls are the other sequences: colours, titles, links.
	controls = regexp.MustCompile(`\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[PX^_][^\x1b]*\x1b\\|[ -/][0-~]|[0-~])`)
)

// Unescape removes control sequences. Movements of the cursor become spaces and new lines, and a carriage return follows words that
// are overwritten.
func Unescape(s string) string {
	if s = strings.ReplaceAll(s, "\u009b", "\x1b["); strings.IndexByte(s, 0x1b) < 0 {
		return s
	}
	return controls.ReplaceAllString(moves.ReplaceAllString(forward.ReplaceAllString(erases.Replace(s), " "), "\n"), "")
}

// Plain returns a text as it was before a terminal showed it, with straight quotation marks: without colours, the lines of boxes
// and the bullets of lists. Of a long text it has the beginning and the end, since a log's error stands in one of them.
func Plain(s string) string {
	if len(s) > MaxRead {
		s = s[:MaxRead/2] + "\n" + s[len(s)-MaxRead/2:]
	}
	if strings.Count(s, "\n") > maxLines {
		lines := strings.SplitAfter(s, "\n")
		s = strings.Join(lines[:maxLines/2], "") + strings.Join(lines[len(lines)-maxLines/2:], "")
	}
	s = decorated.ReplaceAllString(bullet.ReplaceAllString(newLine.Replace(Unescape(s)), ""), " ")
	return strings.TrimSpace(straightened.Replace(s))
}

// straightened is straight without backquotes, which mark code.
var straightened = strings.NewReplacer(quotationMarks...)

// reader finds in a text what speaks as an error.
type reader struct {
	e       *Error
	found   bool // an error was found
	skipped bool // lines were passed over that are none of an error's words
	looked  int  // bytes that were looked through for objects
	taken   int  // sentences that were taken
}

// read takes what is an error in a whole text.
func (r *reader) read(s string) bool {
	if s == "" {
		return false
	}
	if d := proto(s); d > 0 {
		r.e.ResetsIn = d
	}
	if Tagged(s) || strings.Contains(strings.ToLower(s[:min(len(s), 2000)]), "<html") {
		if r.e.page(s); r.e.Page {
			r.found = r.e.Status != 0
			return r.found
		}
	}
	if s[0] == '"' && strings.Contains(s, `\"`) {
		r.e.text(s, 0) // an object quoted as a text
		if r.found = len(r.e.Marks) > 0; r.found {
			return true
		}
	}
	r.lines(braced(s))
	return r.found
}

// lines reads a text line by line. An error goes on over the lines that follow it until a blank one, or until something else
// begins.
func (r *reader) lines(s string) {
	var open strings.Builder // an error that was begun
	lead := ""               // what stands before it on its line
	diff := strings.Contains(s, "\n@@ ") || strings.Contains(s, "diff --git ")
	tool := false // a tool of an agent printed it
	flush := func() {
		r.take(open.String())
		if _, own := Wait(lead); open.Len() > 0 && own > 0 {
			r.e.message(lead) // what a client says of its own next try
		}
		open.Reset()
	}
	for i := 0; i < len(s); {
		whole, _, _ := strings.Cut(s[i:], "\n")
		end := i + len(whole)
		line, next := strings.TrimSpace(whole), end+1
		switch at := sign(line); {
		case line == "":
			flush()
			tool = false
		case toolCall.MatchString(line):
			flush()
			tool, r.skipped = true, true
		case tool && !ownNotice.MatchString(line):
		case Noise(line) || diff && strings.IndexByte("+-@ ", line[0]) >= 0:
			flush()
			r.skipped = true
		default:
			if n := r.object(s, i, end); n > 0 {
				flush()
				next = n
			} else if at >= 0 {
				flush()
				lead = line[:at]
				r.e.prefix(lead)
				open.WriteString(line[at:])
			} else if open.Len() > 0 && open.Len() < maxWords {
				open.WriteString(" " + line)
			} else if r.found && comesBack.MatchString(line) {
				r.e.message(line)
			}
		}
		i = next
	}
	flush()
}

var (
	// toolCall is the head under which an agent shows what a tool did: "Bash(npm ci)".
	toolCall = regexp.MustCompile(`^(?:Explored|Updated Plan|[A-Z][a-z]+(?:[A-Z][a-z]+)?\([^)]*(?:\)|…))$`)
	// ownNotice is a line that an agent writes below such a head for itself.
	ownNotice = regexp.MustCompile(`^(?:API Error|[\w -]{0,20}limit reached\b)`)
	// ranInto is an error that was printed behind a line of code without a new line: "raise self.error(openai.RateLimitError: You
	// exceeded ...".
	ranInto = regexp.MustCompile(`^(?:raise|return|await|throw) [^"']*?\w+(?:Error|Exception): [A-Z]`)
	// comesBack is a line that does nothing but say when something is tried again or reset.
	comesBack = regexp.MustCompile(`(?i)^\W*(?:will )?(?:retry|(?:please )?(?:try again|wait)|usage (?:will )?reset|` +
		`(?:your )?(?:limit|quota)s? (?:will )?reset|your limit|resets?|next reset|available again).*\d`)
)

// markdown matches lines of a document.
var markdown = regexp.MustCompile("\\*\\*[^*\\s][^*]*\\*\\*|\\w.*`[^`]+`|^#{1,6} ")

// labelled matches lines that are an error from their first word.
var labelled = regexp.MustCompile(`(?i)^\W*(?:[\w.]+ ){0,2}(?:[\w.]*error|[\w.]*exception|failed)\b`)

// Stack reports whether a line is one of a stack.
func Stack(line string) bool { return stack.MatchString(line) }

// Noise reports whether a line is none of an error's words, such as code, a stack or a test's report.
func Noise(line string) bool {
	return Stack(line) || noise.MatchString(line) && !ranInto.MatchString(line)
}

// maxLead is how many words may stand before the sign of an error that opens a line: "Attempt 10 failed", "last status: 429".
const maxLead = 6

var (
	// listed matches a line that stands in a list or in quotation marks.
	listed = regexp.MustCompile("^(?:[-*>] |\\d+[.)] |[\"'`])")
	// member matches a member of an object on a line of its own.
	member = regexp.MustCompile(`^"\w+" ?:`)
)

// Opens reports whether a line begins as an error, as a program's own error does and a report about errors does not. A line with an
// object may hold an error.
func Opens(line string) bool {
	if strings.HasPrefix(line, "{") || strings.HasPrefix(line, "[{") {
		return true
	}
	if Noise(line) || listed.MatchString(line) && !member.MatchString(line) {
		return false
	}
	at := sign(line)
	return at >= 0 && len(split(line[:at])) <= maxLead
}

// sign returns where on a line an error begins to speak, or -1.
func sign(line string) int {
	line = prose.Clip(line, 4*maxWords)
	if markdown.MatchString(line) && !labelled.MatchString(line) {
		return -1
	}
	words := split(line)
	at := len(line) + 1
	for _, re := range [...]*regexp.Regexp{exception, label, stated, errno, rpcCode} {
		m := re.FindStringIndex(line)
		if m != nil && m[0] < at && !about(line, words, m[0]) && !(re == stated && many.MatchString(line)) {
			at = m[0]
		}
	}
	if i := sentence(line, words); i >= 0 && i < at {
		at = i
	}
	if at > len(line) {
		return -1
	}
	return at
}

// about reports whether a line only speaks about the error at i.
func about(line string, words []word, i int) bool {
	n := 0
	for n < len(words) && words[n].at < i {
		n++
	}
	if strings.HasSuffix(line[:i], "`") || n == len(words) {
		return true
	}
	for j := n - 1; j >= 0 && words[j].sentence == words[n].sentence; j-- {
		if hedges[words[j].text] {
			return true
		}
	}
	return false
}

// mostBefore is how many words may stand on a line before a sentence that is an error by itself.
const mostBefore = 20

// sentence returns where a sentence begins that the table knows, and that is an error by itself; -1 if there is none. Quotations
// in the middle of a sentence and questions are spoken about.
func sentence(line string, words []word) int {
	best := -1
	for i := range table {
		for j := range table[i].says {
			s := &table[i].says[j]
			start, end, ok := s.in(words)
			if !ok || s.quiet || quoted(line, words[start].at) || strings.HasPrefix(strings.TrimLeft(line[words[end-1].end:], " "), "?") {
				continue
			}
			for start > 0 && words[start-1].clause == words[end-1].clause {
				start--
			}
			if start > mostBefore {
				continue // in the middle of prose
			}
			if best < 0 || words[start].at < best {
				best = words[start].at
			}
		}
	}
	return best
}

// quoted reports whether the place i of a line is in a quotation that is a part of a sentence.
func quoted(line string, i int) bool {
	for _, mark := range [...]string{"`", `"`} {
		before, after := line[:i], line[i:]
		if at := strings.LastIndex(before, mark); at >= 0 && strings.Count(before, mark)%2 == 1 {
			lead := strings.TrimRight(before[:at], " '")
			_, behind, _ := strings.Cut(after, mark)
			return lead != "" && strings.IndexByte(":=([{,>", lead[len(lead)-1]) < 0 || strings.HasPrefix(behind, " error")
		}
	}
	return false
}

// object reads the error object that begins on the line s[i:end], and returns where it ends; 0 if there is none. What stands
// before it on the line speaks with it.
func (r *reader) object(s string, i, end int) int {
	for n := 0; n < 4 && r.looked <= maxLooked; n++ {
		at := strings.IndexAny(s[i:end], "{[")
		if at < 0 {
			return 0
		}
		at += i
		v, ok, size := Literal(s[at:])
		r.looked += size
		m, isObject := v.(map[string]any)
		before := strings.TrimSpace(s[strings.LastIndexByte(s[:at], '\n')+1 : at])
		switch {
		case !ok:
		case m["is_error"] == true: // the event by which an agent ends: its result is the error's text
			result, _ := m["result"].(string)
			inner := reader{e: r.e}
			inner.lines(Plain(result))
			r.found = r.found || inner.found
			return at + size
		case shaped(v):
			if words := split(before + " x"); about(before+" x", words, len(before)+1) && sign(before+" {") < 0 {
				return at + size
			}
			return r.walk(s, v, before, at+size)
		case isObject && (at == i || strings.HasSuffix(before, "data:")):
			return at + size // no error: an answer, an event, a display
		}
		i = at + 1
	}
	return 0
}

// walk takes an error object, and what stands on its line before it and behind.
func (r *reader) walk(s string, v any, before string, end int) int {
	r.names(before)
	r.e.prefix(before)
	r.e.walk(v, "", 0)
	r.e.message(bare(before))
	m, _ := v.(map[string]any)
	_, nested := m["error"].(map[string]any)
	r.found, r.e.known = true, r.e.known || nested || m["error"] == nil
	rest, _, _ := strings.Cut(s[end:], "\n")
	if told, own := Wait(rest); told+own > 0 && r.e.ResetsIn == 0 {
		r.e.message(strings.Trim(rest, " )·-,."))
	}
	return end + len(rest)
}

// take takes the words of an error.
func (r *reader) take(s string) {
	if r.taken++; s == "" || r.taken > maxTaken {
		return
	}
	r.found = true
	r.names(s)
	if at := stated.FindStringIndex(s); at != nil && !about(s, split(s), at[0]) {
		r.e.prefix(s)
	}
	r.e.message(bare(s))
	r.e.message(s)
}

// names takes the names of exceptions and codes that words of an error bear.
func (r *reader) names(s string) {
	take := func(field string, re *regexp.Regexp) {
		for _, m := range re.FindAllStringSubmatch(s, maxMarks) {
			r.e.mark(field, m[len(m)-1])
		}
	}
	take("exception", exception)
	take("blockreason", blocked)
	for _, w := range split(s) {
		if word := s[w.at:w.end]; codeWord.MatchString(word) {
			r.e.mark("code", word)
		}
	}
	take("code", errno)
	take("code", rpcCode)
}

// prefix takes the status from words like "Error code: 429 - ".
func (e *Error) prefix(s string) {
	m := stated.FindStringSubmatch(prose.Clip(strings.TrimSpace(s), 300))
	for _, n := range m[min(1, len(m)):] {
		if n != "" {
			e.Status, e.Worded = statusOf(n), true
		}
	}
}

// introduced matches the names and the labels that introduce an error: of "openai.RateLimitError: Error code: 429 - Slow down"
// all but two words.
var introduced = regexp.MustCompile(`^(?:[^{.!?]{0,60}?(?:[Ee]rror|ERROR|Exception|[Ff]ailed|[Cc]ode|[\w.]+(?:Error|` +
	`Exception)(?: \(\w+\))?)\)?: |[45]\d\d[ :—–-]+)`)

// bare returns what an error says behind the names and labels that introduce it, and without brackets at its end that were opened
// before it.
func bare(s string) string {
	for range 6 {
		m := introduced.FindString(s)
		if m == "" {
			break
		}
		s = s[len(m):]
	}
	s = strings.TrimSpace(s)
	for _, pair := range [...]string{"[]", "()", "{}"} {
		if strings.HasSuffix(s, pair[1:]) && strings.Count(s, pair[:1]) < strings.Count(s, pair[1:]) {
			s = strings.TrimSpace(s[:len(s)-1])
		}
	}
	return s
}
