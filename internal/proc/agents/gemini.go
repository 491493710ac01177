package agents

import (
	"regexp"
	"slices"

	"github.com/sluice-llm/sluice"
)

var gemini = CLI{
	name: "gemini", provider: "gemini", programs: []string{"gemini", "gemini-cli"},
	events: []reader{geminiEvent}, notices: geminiNotices,
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
	windows: []Window{{"daily", day, "", ""}},
}

// geminiNotices are what its sessions show in place of an answer.
var geminiNotices = slices.Concat(harness, []*regexp.Regexp{regexp.MustCompile(`^\[API Error: .+\]$`)})

// geminiEvent reads what gemini --output-format json and stream-json write (packages/core/src/output/types.ts): one object
// with the answer or an error in it, or events whose result has a status. Its error events do not end a session.
func geminiEvent(f *finding, e object) {
	typ, stats := e.text("type"), e.object("stats")
	words, failed := e.fault()
	switch {
	case typ == "result" && e.text("status") != "":
		f.spoke, f.state = true, endedWell
		if e.text("status") == "error" {
			f.fail(fault{text: words, raw: f.event, certain: true})
		}
		if len(stats) > 0 {
			f.used(stats.sum("input_tokens"), stats.sum("cached"), stats.sum("output_tokens"))
		}
	case f.alone && failed && !e.says("is_error"):
		f.spoke = true
		own := f.cli.name == "gemini" && e.object("error").text("message") != "" // else it may be an answer
		f.fail(fault{text: words, raw: f.event, certain: own})
		f.geminiStats(stats)
	case f.alone && e["response"] != nil && len(stats) > 0:
		f.spoke, f.state = true, endedWell
		f.reply.Text = e.text("response")
		f.geminiStats(stats)
	case typ == "message" && e.text("role") == "assistant":
		f.spoke = true
		f.reply.Text += e.text("content") // the parts of one answer
	case typ == "init", typ == "message", typ == "tool_use", typ == "tool_result":
		f.spoke = true
	}
}

// geminiStats sums the tokens of all models: stats.models.NAME.tokens.
func (f *finding) geminiStats(stats object) {
	var input, cached, output float64
	models := stats.object("models")
	for name := range models {
		if n := models.object(name).object("tokens"); len(n) > 0 {
			input += n.sum("prompt")
			cached += n.sum("cached")
			output += n.sum("candidates", "thoughts")
			f.used(input, cached, output)
		}
	}
}
