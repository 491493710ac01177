package proc

import (
	"cmp"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// claudeEvent reads the result of claude -p --output-format json, and the events of stream-json: a result has is_error, also
// where its subtype is "success" (github.com/anthropics/claude-code/issues/79500). Errors of tools are inside other events.
func claudeEvent(f *finding, e *event) {
	switch {
	case e.typ == "rate_limit_event":
		f.spoke = true
		f.claudeLimits(e.limits)
	case e.typ == "result" && e.saysError, e.alone && e.saysError && f.cli.name == "":
		f.result(e)
		if len(e.usage) > 0 {
			n := numbers(e.usage)
			cached := n["cache_read_input_tokens"]
			f.used(n["input_tokens"]+n["cache_creation_input_tokens"]+cached, cached, n["output_tokens"])
		}
		f.cost, f.hasCost = e.cost, e.hasCost
	case e.typ == "system" && e.subtype == "api_retry":
		f.spoke = true
		f.fail(faultWords(e.fault), nil, e.apiStatus, false)
	case e.typ == "assistant" && len(e.fault) > 0:
		f.spoke = true
		f.fail(cmp.Or(said(e.said), faultWords(e.fault)), nil, 0, true)
		f.kind = claudeFaults[faultWords(e.fault)]
	case e.typ == "assistant", e.typ == "user":
		f.spoke = true
		f.verdict, f.kind = unsaid, sluice.OK // what went wrong before did not end it
	case e.typ == "system" && e.subtype != "":
		f.spoke = true
	}
}

// claudeFaults are the errors that an assistant event names in place of an answer, which are about the account. A run that
// ends with one may end without a result. The others are told by its words.
var claudeFaults = map[string]sluice.Kind{
	"authentication_failed": sluice.Auth, "billing_error": sluice.QuotaExhausted, "rate_limit": sluice.RateLimit,
}

// said returns the text of an assistant's message.
func said(message []byte) (text string) {
	if len(message) == 0 || message[0] != '{' {
		return ""
	}
	s := jsonscan.New(message)
	for s.Enter('{'); s.Next('}'); {
		if string(s.Key()) != "content" || s.Peek() != '[' {
			s.Skip()
			continue
		}
		for s.Enter('['); s.Next(']'); {
			block := s.Span()
			if len(block) == 0 || block[0] != '{' {
				continue
			}
			b := jsonscan.New(block)
			for b.Enter('{'); b.Next('}'); {
				if string(b.Key()) == "text" {
					text += b.Text()
				} else {
					b.Skip()
				}
			}
		}
	}
	return text
}

// result takes what an object with is_error says: whether there was an error, and which. A run that came to no result has a
// subtype such as error_max_turns, by some versions without being called an error (anthropics/claude-code-action/pull/366).
func (f *finding) result(e *event) {
	f.spoke = true
	f.verdict, f.kind = endedWell, sluice.OK
	if e.isError || strings.HasPrefix(e.subtype, "error_") {
		text := cmp.Or(e.result, strings.Join(e.faults, "\n"), faultWords(e.fault), e.message, e.subtype)
		f.fail(text, nil, e.apiStatus, true)
		if strings.HasPrefix(e.subtype, "error_max_") { // a limit that the command was given, whatever its words are like
			f.kind = sluice.CommandFailed
		}
	}
}

// claudeLimits reads the rate_limit_info of a rate_limit_event: status is allowed, allowed_warning or rejected, of which the
// last alone is a refusal; resetsAt is in seconds, by some accounts in milliseconds; utilization is a share and often left
// out; later versions have unifiedWindows with both windows' (github.com/handarbeit/fabrik/issues/1815).
func (f *finding) claudeLimits(b []byte) {
	if len(b) == 0 || b[0] != '{' {
		return
	}
	var status, kind string
	var unified []byte
	n := numbers(b)
	s := jsonscan.New(b)
	for s.Enter('{'); s.Next('}'); {
		switch string(s.Key()) {
		case "status":
			status = s.Text()
		case "rateLimitType":
			kind = s.Text()
		case "unifiedWindows":
			unified = s.Span()
		default:
			s.Skip()
		}
	}
	if !s.End() {
		return
	}
	use := f.windowUse(kind, n, "utilization", 1, "resetsAt")
	switch {
	case status == "rejected":
		use.Used, use.HasUsed = 1, true
		f.rejected = use
	case use.Name == f.rejected.Name:
		f.rejected = WindowUse{} // it is open again
	}
	f.take(use)
	f.each(unified, func(id string, n map[string]float64) { f.take(f.windowUse(id, n, "utilization", 1, "resetsAt")) })
}

// each calls a function with each object among an object's members.
func (f *finding) each(b []byte, do func(id string, n map[string]float64)) {
	if len(b) == 0 || b[0] != '{' {
		return
	}
	s := jsonscan.New(b)
	for s.Enter('{'); s.Next('}'); {
		id := string(s.Key())
		if n := numbers(s.Span()); len(n) > 0 {
			do(id, n)
		}
	}
}

// windowUse reads how much of a window is used, out of whole, and when it resets.
func (f *finding) windowUse(id string, n map[string]float64, used string, whole float64, resets string) WindowUse {
	use := WindowUse{Name: f.cli.windowOf(id, time.Duration(n["window_minutes"])*time.Minute)}
	if share, ok := n[used]; ok {
		use.Used, use.HasUsed = min(share/whole, 1), true
	}
	if at, ok := n[resets]; ok {
		use.Resets = instant(at, f.now)
	} else if in, ok := n["resets_in_seconds"]; ok && in < farthest.Seconds() {
		use.Resets = f.now.Add(time.Duration(in * float64(time.Second))).UTC()
	}
	return use
}

// take notes what was said of a window, in place of what was said before.
func (f *finding) take(use WindowUse) {
	if use.Name == "" || !use.HasUsed && use.Resets.IsZero() {
		return
	}
	for i := range f.windows {
		if old := &f.windows[i]; old.Name == use.Name {
			if !use.HasUsed && old.Resets.Equal(use.Resets) {
				use.Used, use.HasUsed = old.Used, old.HasUsed
			}
			*old = use
			return
		}
	}
	f.windows = append(f.windows, use)
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
	if d := t.Sub(now); d > farthest || d < -farthest {
		return time.Time{}
	}
	return t
}

// codexEvent reads the lines of codex exec --json (codex-rs/exec/src/exec_events.rs). An error may be followed by another
// try, so that a turn that is completed takes it back. Before version 0.44 and in its session files, events are wrapped.
func codexEvent(f *finding, e *event) {
	if len(e.inner) > 0 && e.inner[0] == '{' && (e.typ == "" || e.typ == "event_msg") {
		if inner, ok := readEvent(e.inner); ok {
			inner.inner = nil
			codexEvent(f, &inner)
		}
		return
	}
	switch e.typ {
	case "error", "stream_error":
		if e.message == "" {
			return
		}
		// Such objects may be a command's answer, alone or in lines: a session of codex begins with other events.
		session := f.spoke || f.cli.name == "codex" && !e.alone
		f.fail(e.message, nil, 0, e.typ == "error" && session)
		f.spoke = session
	case "turn.failed":
		f.spoke = true
		f.fail(faultWords(e.fault), nil, 0, true)
	case "turn.completed", "task_complete":
		f.spoke = true
		f.verdict = endedWell
		if len(e.fault) > 0 && e.fault[0] == '{' {
			f.fail(faultWords(e.fault), e.raw, 0, true)
		}
		if len(e.usage) > 0 {
			n := numbers(e.usage)
			f.used(n["input_tokens"], n["cached_input_tokens"], n["output_tokens"])
		}
	case "token_count":
		f.spoke = true
		f.each(e.limits, func(id string, n map[string]float64) { f.take(f.windowUse(id, n, "used_percent", 100, "resets_at")) })
	case "thread.started", "turn.started", "item.started", "item.updated", "item.completed":
		f.spoke = true
	}
}

// geminiEvent reads what gemini --output-format json and stream-json write (packages/core/src/output/types.ts): one object
// with the answer or an error in it, or events whose result has a status. Its error events do not end a session.
func geminiEvent(f *finding, e *event) {
	switch {
	case e.typ == "result" && e.status != "":
		f.spoke = true
		f.verdict = endedWell
		if e.status == "error" {
			f.fail(faultWords(e.fault), e.raw, 0, true)
		}
		if len(e.stats) > 0 {
			n := numbers(e.stats)
			f.used(n["input_tokens"], n["cached"], n["output_tokens"])
		}
	case e.alone && len(e.fault) > 0 && !e.saysError:
		f.spoke = true
		f.fail(faultWords(e.fault), e.raw, 0, false)
		f.geminiStats(e.stats)
	case e.alone && e.response && len(e.stats) > 0:
		f.spoke = true
		f.verdict = endedWell
		f.geminiStats(e.stats)
	case e.typ == "init", e.typ == "message", e.typ == "tool_use", e.typ == "tool_result":
		f.spoke = true
	}
}

// geminiStats sums the tokens of all models: stats.models.NAME.tokens.
func (f *finding) geminiStats(b []byte) {
	var input, cached, output float64
	found := false
	eachMember(b, "models", func(models []byte) {
		eachMember(models, "", func(model []byte) {
			eachMember(model, "tokens", func(tokens []byte) {
				n := numbers(tokens)
				input += n["prompt"]
				cached += n["cached"]
				output += n["candidates"] + n["thoughts"]
				found = true
			})
		})
	})
	if found {
		f.used(input, cached, output)
	}
}

// eachMember calls a function with the objects that are members of an object and have that name; "" is any.
func eachMember(b []byte, name string, do func([]byte)) {
	if len(b) == 0 || b[0] != '{' {
		return
	}
	s := jsonscan.New(b)
	for s.Enter('{'); s.Next('}'); {
		key := string(s.Key())
		if v := s.Span(); len(v) > 0 && v[0] == '{' && (name == "" || key == name) {
			do(v)
		}
	}
}

// faultWords returns what an error says that is an object with a message, or a text.
func faultWords(fault []byte) string {
	switch {
	case len(fault) == 0:
		return ""
	case fault[0] == '"':
		return string(jsonscan.Unquote(fault))
	}
	e, _ := readEvent(fault)
	return e.message
}
