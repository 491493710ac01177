package proc

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
)

// request is an item for a persistent worker.
type request struct {
	ID      string
	Attempt int       // counts from 1
	Item    []byte    // one JSON value
	Stderr  io.Writer // gets what the worker says aside until it answers; nil discards. It must not block
}

// line returns the request as the line that a worker reads.
func (r request) line() []byte {
	b := jsonscan.AppendString([]byte(`{"id":`), r.ID)
	b = strconv.AppendInt(append(b, `,"attempt":`...), int64(r.Attempt), 10)
	b = jsonscan.AppendCompact(append(b, `,"item":`...), r.Item) // which may have been written over many lines
	return append(b, "}\n"...)
}

// answer is what a persistent worker says of an item. Its Meaning has no Source, and is of the Kind OK also where it is not
// OK and names none.
type answer struct {
	OK     bool
	Result []byte // one JSON value; nil if it gave none
	agents.Meaning
}

// talk is what one worker says on its standard output, and what of it counts: the answer to the item in hand, signs of life,
// and nothing else. It takes the output in pieces of any size. The zero value, with most set, is a worker without an item.
type talk struct {
	most     int    // bytes that a line may have
	rest     []byte // of a line whose end has not come yet
	open     bool   // there is an item in hand,
	id       string // which is this
	answered bool   // an item was,
	last     string // lately this
	got      *answer
	broken   *protocolError // what it said outside the protocol: nothing after that counts
}

// hand lets the worker answer an item.
func (t *talk) hand(id string) { t.open, t.id = true, id }

// take returns the answer that came since it was last asked for; nil is none.
func (t *talk) take() *answer {
	a := t.got
	t.got = nil
	return a
}

// read takes what the worker wrote.
func (t *talk) read(b []byte) {
	for len(b) > 0 && t.broken == nil {
		end := bytes.IndexByte(b, '\n')
		piece := b
		if end >= 0 {
			piece = b[:end]
		}
		if len(t.rest)+len(piece) > t.most {
			t.breach("a line of more than "+prose.Group(t.most)+" bytes", append(t.rest, piece[:min(len(piece), quoteFrom)]...))
			return
		}
		if end < 0 {
			t.rest = append(t.rest, b...)
			return
		}
		b = b[end+1:]
		if len(t.rest) == 0 {
			t.line(piece)
			continue
		}
		t.line(append(t.rest, piece...))
		t.rest = nil // one long answer should not hold its memory until the worker ends
	}
}

// end takes the end of the output. A last line that is whole but for its line break counts; half is returned otherwise.
func (t *talk) end() (half string) {
	if t.broken != nil || len(bytes.TrimSpace(t.rest)) == 0 {
		return ""
	}
	if !jsonscan.Valid(t.rest) {
		return quote(t.rest)
	}
	t.line(t.rest)
	return ""
}

func (t *talk) line(b []byte) {
	if len(bytes.TrimSpace(b)) == 0 {
		return
	}
	m, problem := parseMessage(b)
	switch {
	case problem != "":
		t.breach(problem, b)
	case !m.answers: // a sign of life, which may come at any time
	case t.open && m.id == t.id:
		m.answer.Text = provider.Redact(m.answer.Text)
		t.open, t.answered, t.last, t.got = false, true, t.id, &m.answer
	case t.answered && m.id == t.last:
		t.breach("a second result for the same item", b)
		t.broken.Late = true
	case !t.open:
		t.breach("a result although the worker had no item", b)
	default:
		t.breach(fmt.Sprintf("a result for an item other than its current item %q", t.id), b)
	}
}

func (t *talk) breach(what string, b []byte) {
	t.broken = &protocolError{What: what, Said: quote(b)}
	t.rest = nil
}

// message is a line of a worker.
type message struct {
	id      string
	answers bool // or it only says that the worker lives
	answer  answer
}

// parseMessage reads a line. The problem is why it is none of the protocol. What the protocol does not know of is passed over,
// so that later versions of it may add to it.
func parseMessage(b []byte) (m message, problem string) {
	if !utf8.Valid(b) {
		return m, "a line that is not UTF-8"
	}
	o, whole := jsonscan.Members(b)
	if !whole {
		return m, "a line that is not a JSON object"
	}
	p := fields{}
	ok, id, failure := p.take(o, "ok", truths, "true or false"), p.take(o, "id", `"`, "a string"), p.take(o, "error", "{", "an object")
	lives := string(p.take(o, "heartbeat", truths, "true or false")) == "true"
	lives = string(p.take(o, "ready", truths, "true or false")) == "true" || lives
	m.id, m.answers, m.answer.OK = plain(id), ok != nil, string(ok) == "true"
	m.answer.Result = bytes.Clone(o["result"])
	p.usage(&m.answer, p.take(o, "usage", "{", "an object"))
	p.failure(&m.answer, failure)
	switch {
	case p.problem != "":
		return m, p.problem
	case !m.answers && !lives:
		return m, `a line without "ok"`
	case m.answers && id == nil:
		return m, `a result without "id"`
	case m.answer.OK && failure != nil:
		return m, `a result with both "ok": true and "error"`
	}
	return m, ""
}

// truths are how true and false begin.
const truths = "tf"

// fields reads members and keeps the first problem with one. Null is as good as absent.
type fields struct{ problem string }

func (p *fields) wrong(problem string) {
	if p.problem == "" {
		p.problem = problem
	}
}

// take returns a member; nil if it is absent. Its first byte is one of begins, or it is not what is wanted.
func (p *fields) take(o map[string][]byte, name, begins, want string) []byte {
	v := o[name]
	switch {
	case v == nil, string(v) == "null":
		return nil
	case strings.IndexByte(begins, v[0]) < 0:
		p.wrong(fmt.Sprintf("a line whose %q is not %s", name, want))
		return nil
	}
	return v
}

// number reads one that is not negative. ok says that it is there.
func (p *fields) number(o map[string][]byte, name string) (n float64, ok bool) {
	const want = "a number of at least 0"
	v := p.take(o, name, "-0123456789", want)
	if v == nil {
		return 0, false
	}
	n, err := strconv.ParseFloat(string(v), 64)
	if err != nil || n < 0 {
		p.wrong(fmt.Sprintf("a line whose %q is not %s", name, want))
		return 0, false
	}
	return n, true
}

func (p *fields) usage(a *answer, usage []byte) {
	o, _ := jsonscan.Members(usage)
	for name, count := range map[string]*int{
		"input_tokens": &a.Usage.Input, "cached_input_tokens": &a.Usage.CachedInput, "output_tokens": &a.Usage.Output,
	} {
		n, ok := p.number(o, name)
		*count, a.HasUsage = int(min(n, mostTokens)), a.HasUsage || ok
	}
	a.Cost, a.HasCost = p.number(o, "cost_usd")
}

func (p *fields) failure(a *answer, failure []byte) {
	o, _ := jsonscan.Members(failure)
	a.Text = plain(p.take(o, "message", `"`, "a string"))
	if kind := p.take(o, "kind", `"`, "a string"); kind != nil && (a.Kind.UnmarshalText([]byte(plain(kind))) != nil || a.Kind == sluice.OK) {
		p.wrong(`an error whose "kind" is unknown`)
	}
	seconds, _ := p.number(o, "retry_after_s")
	a.Wait = time.Duration(min(seconds, longestWait.Seconds()) * float64(time.Second))
	if reset := p.take(o, "reset_at", `"`, "a string"); reset != nil {
		at, err := time.Parse(time.RFC3339, plain(reset))
		if err != nil {
			p.wrong(`an error whose "reset_at" is not a time such as 2006-01-02T15:04:05Z`)
		}
		a.Until = at
	}
}

const (
	mostTokens  = math.MaxInt32
	longestWait = 366 * 24 * time.Hour

	quoteFrom = 1 << 10 // bytes of a line that are looked at to quote it, so that a key in it is seen whole
	quoteTo   = 160     // and shown
)

// quote returns the beginning of what a worker said, fit to be shown.
func quote(b []byte) string {
	text := strings.ToValidUTF8(string(b[:min(len(b), quoteFrom)]), "\uFFFD")
	return prose.Clip(provider.Redact(text), quoteTo)
}
