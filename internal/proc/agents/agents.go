// Package agents reads what command line programs that call providers leave when they end: coding agents above all. A program that
// speaks in a form of its own is a name in the table here, and a file with its row and the reader of its output.
package agents

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// CLI is what is known of a command line program that calls a provider: how it says that a request was rejected, and what its
// account's allowances are. A nil *CLI is any command: it may be, or call, any of those that are known. Known and
// Recognise return them; they never change, so that any number of goroutines may share one.
type CLI struct {
	name     string
	provider string   // of most of its requests, by the name in provider's registry; "": any
	programs []string // its names as a command
	events   []reader // how it speaks in JSON
	text     func(f *finding, stdout []byte)
	begins   string // the line of its standard error that says why it failed begins with this; "": any may
	exits    map[int]exit
	notices  []*regexp.Regexp // paragraphs that it writes in place of an answer, whatever its exit code
	bounds   []*regexp.Regexp // likewise, where it came to a bound that its flags set
	windows  []Window         // the shortest first, and what is of all models before what is of some
}

// exit is what an exit code means. A code that passes an HTTP status on has that alone.
type exit struct {
	kind   sluice.Kind
	status int
	means  string
}

// Window is an allowance of an account.
type Window struct {
	Name   string
	Length time.Duration
	id     string // its name in the CLI's JSON
	words  string // its name in the CLI's sentences, in lower case; "": it has none
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// clis is the table. Sources are beside each fact; what is not documented was read from the program's own source.
var clis = [...]*CLI{&claude, &codex, &gemini, &aider}

// unknown reads what any of the table may write, but no exit codes, which mean other things to other programs.
var unknown = CLI{
	events: []reader{claudeEvent, codexEvent, geminiEvent}, bounds: claude.bounds, windows: claude.windows,
	notices: slices.Concat(claudeNotices, codexNotices, geminiNotices),
}

// harness are the notices of programs that run agents (Scylla's RateLimitError). phrases has what they mean.
var harness = []*regexp.Regexp{
	// "Rate limit from agent: You've hit your limit · resets 4pm (UTC)"
	regexp.MustCompile(`^Rate limit from \w+: (?:[^.:,;]{0,60}\blimit(?: reached| exceeded)?[.;,]?(?: ?[·∙•\x{fffd}-])? ?)?(?i:(?:it |please )?(?:resets|try again|retry|wait)` +
		`(?: in| at| after| for)? (?:[a-z]{3} \d{1,2},? )?(?:at )?\d[\d:.]* ?(?:[ap]m|s|m|h|(?:sec|min|hour|day)\w*)?(?: \([\w/+-]+\))?\.?)$`),
	regexp.MustCompile(`^rate limit: try again in \d+ ?\w+\.?$`),
}

// Known returns the CLI of a name: claude, codex, gemini, aider.
func Known(name string) (*CLI, bool) {
	i := slices.Index(Names(), name)
	if i < 0 {
		return nil, false
	}
	return clis[i], true
}

// Names returns the names of all known CLIs.
func Names() []string {
	var names []string
	for _, c := range clis {
		names = append(names, c.name)
	}
	return names
}

// Recognise returns the CLI that a command's first word runs, by its file name alone; nil if it is none that is known.
func Recognise(program string) *CLI {
	base := strings.ToLower(path.Base(strings.ReplaceAll(program, `\`, "/")))
	for _, end := range []string{".exe", ".cmd", ".bat", ".ps1", ".js"} {
		base = strings.TrimSuffix(base, end)
	}
	for _, c := range clis {
		if slices.Contains(c.programs, base) {
			return c
		}
	}
	return nil
}

// Name returns the CLI's name; "" for nil.
func (c *CLI) Name() string { return c.facts().name }

// facts returns the row of the table that holds.
func (c *CLI) facts() *CLI {
	if c == nil {
		return &unknown
	}
	return c
}

// of returns the provider that most of its requests go to.
func (c *CLI) of() provider.Provider {
	p, _ := provider.Lookup(c.provider)
	return p
}

// closed returns which window a rejection's words are about, which ends at an instant: the one that they name, else, of a known
// CLI, the first that can end so late. A reset may be some minutes further off than the window is long: clocks differ.
func (c *CLI) closed(words string, until, now time.Time) string {
	words = strings.ToLower(words)
	for _, w := range slices.Backward(c.windows) { // "Opus weekly limit"
		if w.words != "" && strings.Contains(words, w.words) {
			return w.Name
		}
	}
	for _, w := range c.windows {
		if c.name != "" && !until.IsZero() && until.Sub(now) <= w.Length+w.Length/20 {
			return w.Name
		}
	}
	return ""
}

// windowOf returns the name of the window that a CLI's JSON calls so, or, where it states a length, that is about so long; "" if
// there is none.
func (c *CLI) windowOf(id string, length time.Duration) string {
	for _, w := range c.windows {
		if length > 0 && (length-w.Length).Abs() <= w.Length/10 || length == 0 && id != "" && id == w.id {
			return w.Name
		}
	}
	return ""
}
