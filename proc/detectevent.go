package proc

import (
	"bytes"
	"strconv"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// finding is what the JSON of one source says of how a command ended. Later events correct earlier ones.
type finding struct {
	cli *CLI
	now time.Time

	verdict  verdict
	text     string        // of an error
	raw      []byte        // that error as it stood, if it is an object
	status   int           // the HTTP status that it names
	spoke    bool          // there was JSON of a known form: what else is in the source is none of an error's words
	certain  bool          // an error was said to be the end, not only mentioned
	kind     sluice.Kind   // what the error is by a field beside its words
	wait     time.Duration // how long to wait if its words do not say
	rejected WindowUse     // HasUsed: a window that is used up

	usage    sluice.Usage
	hasUsage bool
	cost     float64
	hasCost  bool
	windows  []WindowUse
}

// verdict is what events say of the end.
type verdict uint8

const (
	unsaid verdict = iota
	endedWell
	endedBadly
)

// reader takes from one event, of a CLI's own form, what it says of the end.
type reader func(f *finding, e *event)

// event is the members of a JSON object that any of the CLIs states its end by. alone says that it is the whole output.
type event struct {
	alone bool

	typ, subtype, status, message, result string
	isError, saysError                    bool // saysError: is_error is there
	apiStatus                             int
	fault                                 []byte   // error: an object or a text
	faults                                []string // errors
	usage, stats, limits, inner, raw      []byte   // raw: all of it
	said                                  []byte   // message, where it is an object
	cost                                  float64
	hasCost                               bool
	response                              bool // there is an answer in it
}

// readEvent reads an object as far as it is whole: a large one may be cut. ok says that it is.
func readEvent(b []byte) (e event, ok bool) {
	e.raw = b
	s := jsonscan.New(b)
	for s.Enter('{'); s.Next('}'); {
		switch string(s.Key()) {
		case "type":
			e.typ = s.Text()
		case "subtype":
			e.subtype = s.Text()
		case "status":
			e.status = s.Text()
		case "message":
			if s.Peek() == '"' {
				e.message = s.Text()
			} else {
				e.said = s.Span()
			}
		case "result":
			e.result = s.Text()
		case "is_error":
			e.saysError = s.Peek() == 't' || s.Peek() == 'f'
			e.isError = s.Truth()
		case "api_error_status", "error_status":
			n, _ := s.Number()
			e.apiStatus = int(min(max(n, 0), 999))
		case "error":
			if c := s.Peek(); c == '{' || c == '"' {
				e.fault = s.Span()
			} else {
				s.Skip()
			}
			if len(e.fault) == len(`""`) {
				e.fault = nil // there is none
			}
		case "errors":
			e.faults = texts(s.Span())
		case "usage":
			e.usage = s.Span()
		case "stats":
			e.stats = s.Span()
		case "rate_limit_info", "rate_limits":
			e.limits = s.Span()
		case "msg", "payload":
			e.inner = s.Span()
		case "response":
			e.response = true
			s.Skip()
		case "total_cost_usd":
			e.cost, e.hasCost = decimal(s.Span())
		default:
			s.Skip()
		}
	}
	return e, s.End()
}

// texts returns the texts of an array.
func texts(b []byte) (list []string) {
	if len(b) == 0 || b[0] != '[' {
		return nil
	}
	s := jsonscan.New(b)
	for s.Enter('['); s.Next(']'); {
		if t := s.Text(); t != "" {
			list = append(list, t)
		}
	}
	return list
}

// decimal reads a number that is not below zero, and none of such a size that nobody counts so far.
func decimal(b []byte) (float64, bool) {
	n, err := strconv.ParseFloat(string(b), 64)
	if err != nil || !(n >= 0 && n < 1e15) {
		return 0, false
	}
	return n, true
}

// numbers reads the numbers of an object by their names. Others of its members are left out.
func numbers(b []byte) map[string]float64 {
	out := make(map[string]float64)
	if len(b) == 0 || b[0] != '{' {
		return out
	}
	s := jsonscan.New(b)
	for s.Enter('{'); s.Next('}'); {
		key := string(s.Key())
		if n, ok := decimal(s.Span()); ok {
			out[key] = n
		}
	}
	return out
}

// fail notes an error, in place of one that was noted before.
func (f *finding) fail(text string, raw []byte, status int, certain bool) {
	f.verdict, f.text, f.raw, f.status, f.certain = endedBadly, text, raw, status, certain
}

// used notes what a command used in all.
func (f *finding) used(input, cached, output float64) {
	const most = 1 << 53
	f.usage = sluice.Usage{Input: int(min(input, most)), CachedInput: int(min(cached, most)), Output: int(min(output, most))}
	f.hasUsage = true
}

// adopt takes from another source what this one does not say of usage, cost and windows.
func (f *finding) adopt(g *finding) {
	if !f.hasUsage {
		f.usage, f.hasUsage = g.usage, g.hasUsage
	}
	if !f.hasCost {
		f.cost, f.hasCost = g.cost, g.hasCost
	}
	for _, said := range g.windows {
		f.take(said)
	}
}

// events reads an output as JSON: one value, an array of events, or a line for each.
func (f *finding) events(out []byte) {
	text := bytes.TrimSpace(bytes.TrimPrefix(out, []byte("\ufeff")))
	if len(text) == 0 || bytes.IndexByte(text, '{') < 0 {
		return
	}
	switch text[0] {
	case '[':
		f.array(text)
		return
	case '{':
		if e, whole := readEvent(text); whole || e.typ == "result" && e.saysError {
			e.alone = true
			f.hear(&e)
			return
		}
	}
	f.lines(text)
}

// hear has the CLI's readers look at an event.
func (f *finding) hear(e *event) {
	for _, read := range f.cli.events {
		read(f, e)
	}
}

// array reads an array of events.
func (f *finding) array(text []byte) {
	if !jsonscan.Valid(text) {
		return
	}
	s := jsonscan.New(text)
	for s.Enter('['); s.Next(']'); {
		if e, ok := readEvent(s.Span()); ok && e.typ != "" {
			f.hear(&e)
		}
	}
}

// lines reads a line for each event. Most must be events: an answer may quote one.
func (f *finding) lines(text []byte) {
	events, others := 0, 0
	trial := *f
	trial.windows = nil
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if line[0] != '{' {
			others++
			continue
		}
		e, ok := readEvent(line)
		if !ok || e.typ == "" && len(e.inner) == 0 {
			others++
			continue
		}
		events++
		trial.hear(&e)
	}
	if events > others {
		*f = trial
	}
}
