package agents

import (
	"bytes"
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/errtext"
	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// limitPrefix is how a harness begins the reason of a run that a limit ended.
const limitPrefix = "RateLimitError:"

// record reads a file that says in JSON how the command ended: an object, an array of them, or a line for each. Of the events of
// a CLI, later ones correct earlier ones. Of the other objects, the first failure counts.
func (f *finding) record(body []byte) {
	text := bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	if !jsonscan.Valid(text) {
		f.lines(text, (*finding).entry)
		return
	}
	entries := list(text)
	if text[0] == '{' {
		entries = [][]byte{text}
	}
	for _, entry := range entries {
		e, _ := readObject(entry)
		f.entry(entry, e)
	}
}

// entry reads one object of a record: as an event of a CLI, then as what a harness writes of a command in a result file or a .failed
// record. Names are those of Scylla (agent/result.json, result.json of a tier) and of our own results. A kind decides. A
// rate_limit_info beside it states only the wait.
func (f *finding) entry(text []byte, e object) bool {
	if f.alone && f.state == endedBadly {
		return true
	}
	words, failed := e.fault()
	x := fault{certain: true}
	_ = x.kind.UnmarshalText([]byte(e.text("kind"))) // other names are not ours
	response := failed && e.text("type") == "error"  // of an API: no CLI has such an event
	if f.alone = false; f.heard(text, e) && f.spoke && x.kind == sluice.OK && !response {
		return true
	}
	f.alone = true
	f.hear(text, e)
	if e.says("is_error") {
		f.claudeResult(e)
		return true
	}
	if f.state == endedBadly {
		return true
	}
	info, code, stderr, reason := e.object("rate_limit_info"), string(e["exit_code"]), e.text("stderr"), e.text("selection_reason")
	message := cmp.Or(info.text("message"), info.text("error_message"), e.text("message"), e.text("error_message"))
	seconds, _ := strconv.ParseFloat(string(info["retry_after_seconds"]), 64)
	x.wait = errtext.Scaled(seconds, time.Second)
	switch {
	case failed:
		x = fault{text: words, raw: text}
	case x.kind != sluice.OK:
		x.text = cmp.Or(message, stderr, x.kind.String())
	case len(info) > 0 && message != "" || x.wait > 0:
		x.text, x.kind = message, sluice.RateLimit
	case strings.HasPrefix(reason, limitPrefix):
		x.text, x.kind = reason, sluice.RateLimit
	case stderr != "" && code != "" && code != "0" && code != "null":
		x.text = stderr
	default:
		return true
	}
	f.fail(x)
	return true
}
