package proc

import (
	"bytes"
	"cmp"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// account is what a harness writes of a command in a result file or a .failed record. Field names are those of Scylla
// (agent/result.json, result.json of a tier) and of our own results.
type account struct {
	kind            sluice.Kind
	stderr, message string
	exitCode        int64
	selection       string // selection_reason
	limit           []byte // rate_limit_info
}

// limitPrefix is how a harness begins the reason of a run that a limit ended.
const limitPrefix = "RateLimitError:"

// record reads a file that says in JSON how the command ended: an object, an array of them, or a line for each. A success in
// it says nothing of the others.
func (f *finding) record(body []byte) {
	text := bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff")))
	if len(text) == 0 {
		return
	}
	if text[0] == '[' {
		if jsonscan.Valid(text) {
			s := jsonscan.New(text)
			for s.Enter('['); s.Next(']') && f.verdict != endedBadly; {
				f.entry(s.Span())
			}
		}
		return
	}
	if text[0] == '{' && jsonscan.Valid(text) {
		f.entry(text)
		return
	}
	f.lines(text)
}

// entry reads one object of a record: as an event of a CLI, then as an account of one.
func (f *finding) entry(b []byte) {
	if len(b) == 0 || b[0] != '{' {
		return
	}
	e, _ := readEvent(b)
	e.alone = true
	f.hear(&e)
	if e.saysError {
		f.result(&e)
	}
	if f.verdict == endedBadly || e.saysError {
		return
	}
	if len(e.fault) > 0 {
		f.spoke = true
		f.fail(faultWords(e.fault), e.raw, 0, false)
		return
	}
	a := readAccount(b)
	switch {
	case len(a.limit) > 0:
		f.limited(a.limit)
	case strings.HasPrefix(a.selection, limitPrefix):
		f.fail(a.selection, nil, 0, true)
		f.kind = sluice.RateLimit
	case a.exitCode != 0 && a.stderr != "":
		f.fail(a.stderr, nil, 0, true)
	case a.kind != sluice.OK:
		f.fail(cmp.Or(a.message, a.stderr, a.kind.String()), nil, 0, true)
		f.kind = a.kind
	}
}

// readAccount reads the members that a harness states an end by.
func readAccount(b []byte) (a account) {
	s := jsonscan.New(b)
	for s.Enter('{'); s.Next('}'); {
		switch string(s.Key()) {
		case "kind":
			_ = a.kind.UnmarshalText([]byte(s.Text())) // other names are not ours
		case "stderr":
			a.stderr = s.Text()
		case "message", "error_message":
			a.message = s.Text()
		case "exit_code":
			a.exitCode, _ = s.Number()
		case "selection_reason":
			a.selection = s.Text()
		case "rate_limit_info":
			if s.Peek() == '{' {
				a.limit = s.Span()
			} else {
				s.Skip()
			}
		default:
			s.Skip()
		}
	}
	return a
}

// limited reads a rate_limit_info as Scylla writes it: who met it, in which words, and after how many seconds to try again.
func (f *finding) limited(b []byte) {
	a := readAccount(b)
	n := numbers(b)
	if a.message == "" && n["retry_after_seconds"] == 0 {
		return
	}
	f.fail(a.message, nil, 0, true)
	f.kind = sluice.RateLimit
	if s := n["retry_after_seconds"]; s > 0 && s < farthest.Seconds() {
		f.wait = time.Duration(s * float64(time.Second))
	}
}
