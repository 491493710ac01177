package proc

import (
	"bytes"
	"regexp"
)

// A notice is at most so long.
const (
	mostNotice      = 2000
	mostNoticeLines = 2
)

// claudeNotices are what claude -p writes in place of an answer. In text mode it goes to standard output, and the exit code
// may be 0 (github.com/anthropics/claude-code/issues/79500). Each is a whole text and no part of one, so that an answer that
// quotes or explains it stays an answer. provider.ClassifyText says what they mean.
var claudeNotices = []*regexp.Regexp{
	// "You've hit your limit · resets 4pm (America/Los_Angeles)", "You've hit your session limit · resets 1:10am (UTC)"
	regexp.MustCompile(`^You['’]ve hit your (?:\w[\w.'’-]* ){0,4}limit\.?` + resets + upgrade + `$`),
	regexp.MustCompile(`^You['’]re out of extra usage` + resets + upgrade + `$`),
	// "5-hour limit reached ∙ resets 4pm", "Opus weekly limit reached ∙ resets Nov 10, 12am"
	regexp.MustCompile(`^(?:\w[\w.-]* ){0,2}(?:5-hour|[Ss]ession|[Ww]eekly|[Uu]sage) limit reached` + resets + upgrade + `$`),
	regexp.MustCompile(`^Claude AI usage limit reached\|\d{10,13}$`),
	regexp.MustCompile(`^Claude (?:AI )?usage limit reached\. Your limit will reset at [^.\n]{1,60}\.?$`),
	// "API Error: 529 {...}", "Failed to authenticate. API Error: 401 {...}"
	regexp.MustCompile(`^(?:[\w /.]{1,60}· |[\w ]{1,60}\. )?API Error: [45]\d\d (?s:\{.*\})(?: · [\w /]{1,60})?$`),
	regexp.MustCompile(`^API Error: (?:Rate limit reached|Overloaded|Connection error|Request timed out|Repeated 529 Overloaded errors|` +
		`\d{3} Internal server error)\.?$`),
	regexp.MustCompile(`^API Error: Server is temporarily limiting requests \(not your +usage limit\)(?: · Rate limited)?\.?$`),
	regexp.MustCompile(`^API Error \((?:Connection error|Request timed out)\.?\)$`),
	regexp.MustCompile(`^API Error: Unable to connect to API(?: \([A-Z_]{3,40}\))?\.?$`),
	regexp.MustCompile(`^Unable to connect to API \([A-Z_]{3,40}\)$`),
	regexp.MustCompile(`^Credit balance (?:is )?too low(?: · Add funds: ?\S{0,80})?$`),
	regexp.MustCompile(`^(?:Invalid API key|Not logged in|OAuth token (?:revoked|has expired)|Login expired)` +
		` · (?:Please run /login|Fix external API key)$`),
	regexp.MustCompile(`^Prompt is too long$`),
	regexp.MustCompile(`^Execution error$`), // of the subtype error_during_execution
}

// claudeBounds are what it writes where it came to a bound that its own flags set, such as --max-budget-usd: nothing of the
// account, whatever the words.
var claudeBounds = []*regexp.Regexp{
	regexp.MustCompile(`^Error: Reached max turns \(\d+\)$`),
	regexp.MustCompile(`^Error: Exceeded USD budget \([\d.]+\)$`),
}

const (
	resets  = `(?: ?[·∙•-] ?resets [^.\n]{1,60})?`
	upgrade = `(?:\n\s*/(?:upgrade|extra-usage) [^.\n]{1,80}\.?)?`
)

// isNotice reports whether an output is nothing but one of the CLI's own notices.
func (c *CLI) isNotice(out []byte) bool { return isOne(c.notices, out) }

// isBound reports whether an output says nothing but that a bound was met which the command was given.
func (c *CLI) isBound(out []byte) bool { return isOne(c.bounds, out) }

func isOne(notices []*regexp.Regexp, out []byte) bool {
	text := bytes.TrimSpace(out)
	if len(text) == 0 || len(text) > mostNotice || bytes.Count(text, []byte{'\n'}) >= mostNoticeLines {
		return false
	}
	for _, notice := range notices {
		if notice.Match(text) {
			return true
		}
	}
	return false
}
