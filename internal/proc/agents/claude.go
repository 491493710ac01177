package agents

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

var claude = CLI{
	name: "claude", provider: "anthropic", programs: []string{"claude", "claude-code"},
	events: []reader{claudeEvent}, notices: claudeNotices, bounds: claudeBounds,
	// A session is of five hours, a week is one of all models or of one family. Their names in a rate_limit_event:
	// github.com/anthropics/claude-code/issues/41185 and github.com/manaflow-ai/subrouter/pull/24.
	windows: []Window{
		{"5-hour", 5 * time.Hour, "five_hour", "session limit"},
		{"weekly", week, "seven_day", "weekly limit"},
		{"weekly Opus", week, "seven_day_opus", "opus"},
		{"weekly Sonnet", week, "seven_day_sonnet", "sonnet"},
	},
}

// claudeNotices are what claude -p writes in place of an answer. In text mode it goes to standard output, and the exit code
// may be 0 (github.com/anthropics/claude-code/issues/79500). Each is a whole paragraph and no part of one, so that an answer that
// quotes or explains it stays an answer. provider.ClassifyText says what they mean.
var claudeNotices = slices.Concat(harness, []*regexp.Regexp{
	// "You've hit your limit · resets 4pm (America/Los_Angeles)", "You've hit your session limit · resets 1:10am (UTC)"
	regexp.MustCompile(`^You've hit your (?:\w[\w.'’-]* ){0,4}limit\.?` + resets + `$`),
	regexp.MustCompile(`^You're out of extra usage\.?` + resets + `$`),
	// "Spending cap reached resets 6pm": github.com/anthropics/claude-code/issues/14470
	regexp.MustCompile(`^Spending cap reached\.?` + resets + `$`),
	// "5-hour limit reached ∙ resets 4pm", "Opus weekly limit reached ∙ resets Nov 10, 12am"
	regexp.MustCompile(`^(?:\w[\w.-]* ){0,2}(?:5-hour|[Ss]ession|[Ww]eekly|[Uu]sage) limit reached` + resets + `$`),
	regexp.MustCompile(`^Claude AI usage limit reached\|\d+$`),
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
})

// claudeBounds are what it writes where it came to a bound that its own flags set, such as --max-budget-usd: nothing of the
// account, whatever the words.
var claudeBounds = []*regexp.Regexp{
	regexp.MustCompile(`^Error: Reached max turns \(\d+\)$`),
	regexp.MustCompile(`^Error: Exceeded USD budget \([\d.]+\)$`),
}

const resets = `(?:(?: ?[·∙•\x{fffd}-])? ?resets [^.\n]{1,60})?`

// claudeEvent reads the result of claude -p --output-format json, and the events of stream-json: a result has is_error, also
// where its subtype is "success" (github.com/anthropics/claude-code/issues/79500). Errors of tools are inside other events.
func claudeEvent(f *finding, e object) {
	typ, subtype := e.text("type"), e.text("subtype")
	words, failed := e.fault()
	switch {
	case typ == "rate_limit_event":
		f.spoke = true
		f.claudeLimits(e.object("rate_limit_info"))
	case (typ == "result" || f.alone && f.cli.name == "") && e.says("is_error"):
		f.claudeResult(e)
		if u := e.object("usage"); len(u) > 0 {
			f.used(u.sum("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens"), u.sum("cache_read_input_tokens"),
				u.sum("output_tokens"))
		}
		f.said.Cost, f.said.HasCost = e.number("total_cost_usd")
	case typ == "system" && subtype == "api_retry":
		f.spoke = true
		f.fail(fault{text: words, status: e.status()})
	case typ == "assistant" && failed:
		f.spoke = true
		f.fail(fault{text: cmp.Or(written(e.object("message")), words), certain: true, kind: claudeFaults[words]})
	case typ == "assistant", typ == "user":
		f.spoke, f.state, f.fault = true, unsaid, fault{} // what went wrong before did not end it
	case typ == "system" && subtype != "":
		f.spoke = true
	}
}

// claudeFaults are the errors that an assistant event names in place of an answer, which are about the account. A run that
// ends with one may end without a result. The others are told by its words.
var claudeFaults = map[string]sluice.Kind{
	"authentication_failed": sluice.Auth, "billing_error": sluice.QuotaExhausted, "rate_limit": sluice.RateLimit,
}

// written returns the text of an assistant's message.
func written(message object) (text string) {
	for _, block := range list(message["content"]) {
		o, _ := readObject(block)
		text += o.text("text")
	}
	return text
}

// claudeResult takes what an object with is_error says: whether there was an error, and which. A run that came to no result has a
// subtype such as error_max_turns, by some versions without being called an error (anthropics/claude-code-action/pull/366). One
// that ends by blocking_limit has none either: its context is full, or it could not be compacted because a window is used up.
func (f *finding) claudeResult(e object) {
	f.spoke, f.state, f.fault = true, endedWell, fault{}
	f.reply = provider.Reply{Text: e.text("result"), Finish: e.text("stop_reason")}
	if len(e.object("structured_output")) > 0 {
		f.reply.Text = string(e["structured_output"])
	}
	subtype, blocked := e.text("subtype"), e.text("terminal_reason") == "blocking_limit"
	if !e.is("is_error") && !strings.HasPrefix(subtype, "error_") && !blocked {
		return
	}
	var errors []string
	for _, one := range list(e["errors"]) {
		errors = append(errors, textOf(one))
	}
	words, _ := e.fault()
	x := fault{text: cmp.Or(e.text("result"), strings.Join(errors, "\n"), words, e.text("message"), subtype), status: e.status(), certain: true}
	switch {
	case strings.HasPrefix(subtype, "error_max_"): // a limit that the command was given, whatever its words are like
		x.kind = sluice.CommandFailed
	case !blocked:
	case f.rejected.HasUsed:
		x.kind = sluice.UsageWindow
	case f.classify(x.status, x.text).Kind == sluice.OK:
		x.kind = sluice.ContextLength
	}
	f.fail(x)
}

// claudeLimits reads the rate_limit_info of a rate_limit_event: status is allowed, allowed_warning or rejected, of which the
// last alone is a rejection; resetsAt is in seconds, by some accounts in milliseconds; utilization is a share and often left
// out; later versions have unifiedWindows with both windows' (github.com/handarbeit/fabrik/issues/1815).
func (f *finding) claudeLimits(info object) {
	use := f.windowUse(info.text("rateLimitType"), info)
	switch {
	case info.text("status") == "rejected":
		use.Used, use.HasUsed = 1, true
		f.rejected = use
	case use.Name == f.rejected.Name:
		f.rejected = WindowUse{} // it is open again
	}
	f.take(use)
	f.takeAll(info.object("unifiedWindows"))
}

// takeAll notes what each member of an object says of the window of its name.
func (f *finding) takeAll(windows object) {
	for _, id := range slices.Sorted(maps.Keys(windows)) {
		f.take(f.windowUse(id, windows.object(id)))
	}
}

// windowUse reads how much of a window is used, and when it resets, by the names that claude and codex have for that.
func (f *finding) windowUse(id string, o object) WindowUse {
	minutes, _ := o.number("window_minutes")
	use := WindowUse{Name: f.cli.windowOf(id, time.Duration(minutes)*time.Minute)}
	use.Used, use.HasUsed = o.number("utilization")
	if percent, ok := o.number("used_percent"); ok {
		use.Used, use.HasUsed = percent/100, true
	}
	use.Used = min(use.Used, 1)
	in, relative := o.number("resets_in_seconds")
	if at := o.sum("resetsAt", "resets_at"); at > 0 {
		use.Resets = instant(at, f.now)
	} else if relative && in < farthest.Seconds() {
		use.Resets = f.now.Add(time.Duration(in * float64(time.Second))).UTC()
	}
	return use
}

// take notes what was said of a window, in place of what was said before.
func (f *finding) take(use WindowUse) {
	if use.Name == "" || !use.HasUsed && use.Resets.IsZero() {
		return
	}
	i := slices.IndexFunc(f.said.Windows, func(w WindowUse) bool { return w.Name == use.Name })
	if i < 0 {
		f.said.Windows = append(f.said.Windows, use)
		return
	}
	if old := f.said.Windows[i]; !use.HasUsed && old.Resets.Equal(use.Resets) {
		use.Used, use.HasUsed = old.Used, old.HasUsed
	}
	f.said.Windows[i] = use
}

// farthest is how far from now an instant may lie to be meant.
const farthest = 400 * day

// instant reads seconds or milliseconds since 1970; zero if that is no time near now.
func instant(n float64, now time.Time) time.Time {
	if n > 1e11 {
		n /= 1000
	}
	if n <= 0 || n > 1e11 {
		return time.Time{}
	}
	t := time.UnixMilli(int64(n * 1000)).UTC()
	if t.Sub(now).Abs() > farthest {
		return time.Time{}
	}
	return t
}
