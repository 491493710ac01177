package proc

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

// CLI is what is known of a command line program that calls a provider: how it says that a call was refused, and what its
// account's allowances are. A nil *CLI is any command: it may be, or call, any of those that are known. Known and
// Recognise return them; they never change, so that any number of goroutines may share one.
type CLI struct {
	name     string
	provider string   // of most of its calls, by the name in provider's registry
	programs []string // its names as a command
	events   []reader // how it speaks in JSON
	text     func(f *finding, stdout []byte)
	begins   string // the line of its standard error that says why it failed begins with this; "": any may
	exits    map[int]exit
	notices  []*regexp.Regexp // the whole of what it writes, in place of an answer, with an exit code of 0
	bounds   []*regexp.Regexp // likewise, with any exit code, where it came to a bound that its flags set
	windows  []window         // the shortest first, and what is of all models before what is of some
}

// exit is what an exit code means. A code that passes an HTTP status on has that alone.
type exit struct {
	kind   sluice.Kind
	status int
	means  string
}

// window is an allowance of an account.
type window struct {
	name   string
	length time.Duration
	id     string // its name in the CLI's JSON
	words  string // its name in the CLI's sentences, in lower case; "": it has none
}

const (
	day  = 24 * time.Hour
	week = 7 * day
)

// clis is the table. Sources are beside each fact; what is not documented was read from the program's own source.
var clis = [...]CLI{
	{
		name: "claude", provider: "anthropic", programs: []string{"claude", "claude-code"},
		events: []reader{claudeEvent}, notices: claudeNotices, bounds: claudeBounds,
		windows: claudeWindows,
	},
	{
		name: "codex", provider: "openai", programs: []string{"codex"},
		events: []reader{codexEvent},
		begins: "ERROR: ",                                                         // after the whole of the session, which goes to standard error
		exits:  map[int]exit{101: {kind: sluice.CommandFailed, means: "a panic"}}, // of Rust
		// https://developers.openai.com/codex/pricing: messages per five hours, and a shared weekly limit.
		windows: []window{
			{"5-hour", 5 * time.Hour, "primary", "5-hour limit"},
			{"weekly", week, "secondary", "weekly limit"},
		},
	},
	{
		name: "gemini", provider: "gemini", programs: []string{"gemini", "gemini-cli"},
		events: []reader{geminiEvent},
		// https://geminicli.com/docs/cli/headless has 42 and 53. The others are the classes of FatalError in
		// packages/core/src/utils/errors.ts. With JSON output, an API's status becomes the exit code (handleError in
		// packages/cli/src/utils/errors.ts), of which a system keeps the lowest eight bits.
		exits: map[int]exit{
			41:         {kind: sluice.Auth, means: "authentication error"},
			42:         {kind: sluice.BadRequest, means: "input error"},
			44:         {kind: sluice.CommandFailed, means: "sandbox error"},
			52:         {kind: sluice.CommandFailed, means: "configuration error"},
			53:         {kind: sluice.CommandFailed, means: "turn limit exceeded"},
			54:         {kind: sluice.CommandFailed, means: "tool execution error"},
			130:        {kind: sluice.CommandFailed, means: "cancelled"},
			400 & 0xff: {status: 400}, 401 & 0xff: {status: 401}, 403 & 0xff: {status: 403}, 404 & 0xff: {status: 404},
			429 & 0xff: {status: 429}, 500 & 0xff: {status: 500}, 503 & 0xff: {status: 503}, 504 & 0xff: {status: 504},
		},
		// https://geminicli.com/docs/quota-and-pricing: requests per user and day.
		windows: []window{{"daily", day, "", ""}},
	},
	{
		name: "aider", programs: []string{"aider"},
		text: aiderText, // it has neither JSON nor exit codes of its own, and calls any provider
	},
}

// unknown reads what any of the table may write, but no exit codes, which mean other things to other programs.
var unknown = CLI{events: []reader{claudeEvent, codexEvent, geminiEvent}, notices: claudeNotices, bounds: claudeBounds, windows: claudeWindows}

// claudeWindows are those of a subscription: a session is of five hours, a week is one of all models or of one family. Their
// names in a rate_limit_event: github.com/anthropics/claude-code/issues/41185 and github.com/manaflow-ai/subrouter/pull/24.
var claudeWindows = []window{
	{"5-hour", 5 * time.Hour, "five_hour", "session limit"},
	{"weekly", week, "seven_day", "weekly limit"},
	{"weekly Opus", week, "seven_day_opus", "opus"},
	{"weekly Sonnet", week, "seven_day_sonnet", "sonnet"},
}

// Known returns the CLI of a name: claude, codex, gemini, aider.
func Known(name string) (*CLI, bool) {
	for i := range clis {
		if clis[i].name == name {
			return &clis[i], true
		}
	}
	return nil, false
}

// Names returns the names of all known CLIs.
func Names() []string {
	var names []string
	for i := range clis {
		names = append(names, clis[i].name)
	}
	return names
}

// Recognise returns the CLI that a command's first word runs, by its file name alone; nil if it is none that is known.
func Recognise(program string) *CLI {
	base := strings.ToLower(path.Base(strings.ReplaceAll(program, `\`, "/")))
	for _, end := range []string{".exe", ".cmd", ".bat", ".ps1", ".js"} {
		base = strings.TrimSuffix(base, end)
	}
	for i := range clis {
		for _, name := range clis[i].programs {
			if name == base {
				return &clis[i]
			}
		}
	}
	return nil
}

// Name returns the CLI's name; "" for nil.
func (c *CLI) Name() string { return c.facts().name }

// Windows returns the lengths of the account's windows by their names.
func (c *CLI) Windows() map[string]time.Duration {
	lengths := make(map[string]time.Duration)
	for _, w := range c.facts().windows {
		lengths[w.name] = w.length
	}
	return lengths
}

// facts returns the row of the table that holds.
func (c *CLI) facts() *CLI {
	if c == nil {
		return &unknown
	}
	return c
}

// of returns the provider that most of its calls go to.
func (c *CLI) of() provider.Provider {
	p, _ := provider.Lookup(c.provider)
	return p
}

// closed returns which window a refusal's words are about, which ends at an instant: the one that they name, else, of a known
// CLI, the first that can end so late. A reset may be some minutes further off than the window is long: clocks differ.
func (c *CLI) closed(words string, until, now time.Time) string {
	words = strings.ToLower(words)
	for _, w := range slices.Backward(c.windows) { // "Opus weekly limit"
		if w.words != "" && strings.Contains(words, w.words) {
			return w.name
		}
	}
	for _, w := range c.windows {
		if c.name != "" && !until.IsZero() && until.Sub(now) <= w.length+w.length/20 {
			return w.name
		}
	}
	return ""
}

// windowOf returns the name of the window that a CLI's JSON calls so, or that is about so long; "" if there is none.
func (c *CLI) windowOf(id string, length time.Duration) string {
	for _, w := range c.windows {
		if length > 0 && (length-w.length).Abs() <= w.length/10 {
			return w.name
		}
	}
	for _, w := range c.windows {
		if length == 0 && id != "" && id == w.id {
			return w.name
		}
	}
	return ""
}
