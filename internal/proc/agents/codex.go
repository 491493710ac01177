package agents

import (
	"regexp"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/provider"
)

var codex = CLI{
	name: "codex", provider: "openai", programs: []string{"codex"},
	events: []reader{codexEvent}, notices: codexNotices,
	begins: "ERROR: ",                                                         // after the whole of the session, which goes to standard error
	exits:  map[int]exit{101: {kind: sluice.CommandFailed, means: "a panic"}}, // of Rust
	// https://developers.openai.com/codex/pricing: messages per five hours, and a shared weekly limit.
	windows: []Window{
		{"5-hour", 5 * time.Hour, "primary", "5-hour limit"},
		{"weekly", week, "secondary", "weekly limit"},
	},
}

// codexNotices are the errors that end a session. They go to standard error with an exit code of 1: on standard output they are those
// of a program that ran codex.
var codexNotices = slices.Concat(harness, []*regexp.Regexp{
	regexp.MustCompile(`^(?:ERROR: )?You(?:'ve hit| have reached) your usage limit\b[^.]{0,40}\.` +
		`(?: .{0,300}\b[Tt]ry again (?:later|(?:in|at|after) [\w:, ]{0,30}\d[\w:, ()/]{0,30})\.?)?$`),
	regexp.MustCompile(`^(?:ERROR: )?exceeded retry limit, last status: \d{3}(?: [A-Z][\w'-]*){0,6}(?:, request id: \S+)?(?:, url: \S+)?$`),
	regexp.MustCompile(`^(?:ERROR: )?unexpected status \d{3}(?: [A-Z][\w'-]*){0,6}: .+$`),
	regexp.MustCompile(`^(?:ERROR: )?Quota exceeded\. Check your plan and billing details\.$`),
	regexp.MustCompile(`^(?:ERROR: )?We're currently experiencing high demand, which may cause temporary errors\.$`),
})

// codexEvent reads the lines of codex exec --json (codex-rs/exec/src/exec_events.rs). An error may be followed by another
// try, so that a turn that is completed takes it back. Before version 0.44 and in its session files, events are wrapped.
func codexEvent(f *finding, e object) {
	typ := e.text("type")
	if inner, ok := e.wrapped(); ok && (typ == "" || typ == "event_msg") {
		e, typ = inner, inner.text("type")
	}
	words, _ := e.fault()
	switch typ {
	case "error", "stream_error":
		if e.text("message") == "" {
			return
		}
		// Such objects may be a command's answer, alone or in lines: a session of codex begins with other events.
		session := f.spoke || f.cli.name == "codex" && !f.alone
		f.fail(fault{text: e.text("message"), certain: typ == "error" && session})
		f.spoke = session
	case "turn.failed":
		f.spoke = true
		f.fail(fault{text: words, certain: true})
	case "turn.completed", "task_complete":
		f.spoke, f.state = true, endedWell
		if len(e.object("error")) > 0 {
			f.fail(fault{text: words, raw: f.event, certain: true})
		}
		if last := e.text("last_agent_message"); last != "" {
			f.reply.Text = last
		}
		if u := e.object("usage"); len(u) > 0 {
			f.used(u.sum("input_tokens"), u.sum("cached_input_tokens"), u.sum("output_tokens"))
		}
	case "token_count":
		f.spoke = true
		f.takeAll(e.object("rate_limits"))
	case "item.completed":
		f.spoke = true
		if item := e.object("item"); item.text("type") == "agent_message" {
			f.reply = provider.Reply{Text: item.text("text")}
		}
	case "thread.started", "turn.started", "item.started", "item.updated":
		f.spoke = true
	}
}
