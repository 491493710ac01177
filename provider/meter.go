package provider

import (
	"bytes"
	"cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/sse"
)

// meter reads a stream's events as they pass: what the call has used, whether it came to its end, whether it broke off
// with an error. It decodes nothing else.
type meter struct {
	parser sse.Parser
	array  *elements // instead of the parser, of a stream that is an array
	sum    summary   // of the endpoint
	seen   counter   // text of the answer so far
	done   bool      // the event that ends a message came
	opened uint64    // choices that began, one bit each,
	closed uint64    // and that said why they ended
	fault  []byte    // the data of an event that says the answer failed
	events int
	bad    error           // the stream is not one
	also   func(sse.Event) // wants the events too, up to the last; may be nil

	texts, textAt, textEnd int    // the texts in the event's deltas, and where the last of them stands
	before, after          []byte // what stood around the text of the last event, if that added nothing but one; else empty
}

func newMeter(e Endpoint) *meter { return &meter{sum: summary{endpoint: e}} }

func (m *meter) spec() *spec { return m.sum.endpoint.spec() }

// feed takes the next bytes of the stream.
func (m *meter) feed(b []byte) {
	if m.spec().stream != "" && m.array == nil && m.events == 0 && m.parser.Between() {
		b = bytes.TrimLeft(b, " \r\n\t") // the first other byte tells what it is
		if len(b) > 0 && (b[0] == '[' || b[0] == '{') {
			m.array = &elements{}
		}
	}
	if m.array != nil {
		m.note(m.array.Feed(b, m.event))
		m.done = m.done || m.array.closed
		return
	}
	for len(b) > 0 {
		n := m.skim(b)
		if n == 0 {
			if n = bytes.Index(b, eventEnd) + len(eventEnd); n < len(eventEnd) {
				n = len(b)
			}
			m.note(m.parser.Feed(b[:n], m.event))
		}
		b = b[n:]
	}
}

// note keeps why the stream is none.
func (m *meter) note(err error) {
	if err != nil {
		m.bad = err
	}
}

// end says that the stream is over.
func (m *meter) end() {
	m.note(m.parser.End(m.event))
}

// complete reports whether the message came to its end. Servers that leave the last event out are believed when they
// said why the answer ended, every choice of it.
func (m *meter) complete() bool {
	said := !m.spec().status && m.sum.finish != "" && m.opened == m.closed
	return m.fault == nil && (m.done || said)
}

// usage returns what the call used. Of an answer that broke off it is the input and the text seen; so it is of one whose reader left
// when it had said why it ended, and not yet what it used.
func (m *meter) usage(estimate sluice.Cost, left bool) (u sluice.Usage, ok bool) {
	u = m.sum.usage
	if m.complete() && (m.done || m.sum.hasUsage || !left) {
		return u, m.sum.hasUsage
	}
	if u.Input == 0 {
		u.Input = estimate.Input
	}
	if m.seen.bytes > 0 {
		u.Output = max(u.Output, m.seen.tokens())
	}
	u.Estimated = u != (sluice.Usage{})
	return u, m.sum.hasUsage || m.events > 0
}

var doneMark = []byte("[DONE]")

// event looks at one event.
func (m *meter) event(ev sse.Event) {
	m.events++
	if bytes.Equal(ev.Data, doneMark) {
		m.done = true
		return
	}
	if m.fault != nil || m.done {
		return
	}
	if m.also != nil {
		m.also(ev)
	}
	if string(ev.Name) == "error" {
		m.fault = bytes.Clone(ev.Data)
		return
	}
	sum, seen, opened, closed := m.sum, m.seen, m.opened, m.closed
	m.seen.Scanner, m.texts = jsonscan.New(ev.Data), 0
	failed, ended := m.members()
	m.before, m.after = m.before[:0], m.after[:0]
	if !m.seen.Bad() && m.texts == 1 && m.sum == sum && m.closed == closed && m.seen.media == seen.media && m.seen.ids == seen.ids {
		if len(ev.Name) > 0 {
			m.before = append(append(append(m.before, "event: "...), ev.Name...), '\n')
		}
		m.before = append(append(m.before, "data: "...), ev.Data[:m.textAt]...)
		m.after = append(append(m.after, ev.Data[m.textEnd:]...), eventEnd...)
	}
	switch {
	case m.seen.Bad():
		// Not JSON: half an event at the end of a stream that was cut, or a server's own notes. It proves nothing.
		m.sum, m.seen, m.opened, m.closed = sum, seen, opened, closed
	case failed:
		m.fault = bytes.Clone(ev.Data)
	case ended:
		m.done = true
	}
}

var eventEnd = []byte("\n\n")

// skim counts the text of the event that b begins with, if that is the same as the one before but for its text, as nearly all of a
// stream are, and returns how long it is; else 0.
func (m *meter) skim(b []byte) int {
	if len(m.before) == 0 || m.done || m.fault != nil || m.also != nil || !m.parser.Between() || !bytes.HasPrefix(b, m.before) {
		return 0
	}
	s := jsonscan.New(b[len(m.before):])
	if s.Peek() != '"' {
		return 0
	}
	_, size := s.Str()
	end := len(m.before) + s.Offset()
	if s.Bad() || !bytes.HasPrefix(b[end:], m.after) {
		return 0
	}
	m.events++
	m.seen.bytes += size
	return end + len(m.after)
}

// members reads an event's data, and reports whether it says that the answer failed or came to its end.
func (m *meter) members() (failed, ended bool) {
	s := &m.seen.Scanner
	for s.Enter('{'); s.Next('}'); {
		switch name := jsonscan.Name(s.Key()); string(name) {
		case "type":
			kind := word(s)
			whole, last := known.last[kind]
			ended = ended || last && whole
			failed = failed || last && !whole || kind == "error"
		case "error":
			c := s.Peek()
			s.Skip()
			failed = failed || c == '{' || c == '"'
		default:
			read := dialectFacts[m.spec().dialect].event[string(name)]
			if read == nil {
				read = known.event[string(name)]
			}
			if read != nil {
				read(m)
			} else {
				m.sum.member(s, name)
			}
		}
	}
	s.End()
	return failed || m.sum.isError, ended
}

// readChoices counts the text of a chunk, of chat or of Gemini, and takes its finish reason.
func (m *meter) readChoices() {
	choices(&m.seen.Scanner, func(name []byte) {
		switch string(name) {
		case "delta":
			m.readDelta()
		case "content":
			m.texts += several
			m.seen.content()
		default:
			m.seen.Skip()
		}
	}, m.choice)
}

// choice takes in how far a choice is. Like ParseUsage, the stream's reason is the first choice's.
func (m *meter) choice(index int64, finish string) {
	m.opened |= 1 << (uint64(index) % 64)
	if finish == "" {
		return
	}
	m.closed |= 1 << (uint64(index) % 64)
	if index == 0 || m.sum.finish == "" {
		m.sum.finish = finish
	}
}

// readDelta counts what a delta adds to the answer: a string (responses), or an object (chat, messages).
func (m *meter) readDelta() {
	s := &m.seen.Scanner
	if s.Peek() == '"' {
		m.readText()
		return
	}
	for name := range s.Members {
		switch string(name) {
		case "stop_reason":
			m.sum.finish = cmp.Or(word(s), m.sum.finish)
		case "content", "text", "thinking", "reasoning", "reasoning_content", "refusal", "partial_json":
			m.readText()
		case "tool_calls", "function_call":
			m.texts += several
			m.seen.content()
		default:
			s.Skip()
		}
	}
}

// several is more texts than one: an event that counts in another way is like no other.
const several = 2

// readText counts a member of a delta, and notes where it stands.
func (m *meter) readText() {
	if m.texts++; m.seen.Peek() != '"' {
		m.texts += several
	}
	m.textAt = m.seen.Offset()
	m.seen.words()
	m.textEnd = m.seen.Offset()
}

// readResponse reads the message that a stream of Anthropic opens with, or the response object that events of OpenAI carry.
func (m *meter) readResponse() {
	s := &m.seen.Scanner
	if s.Peek() != '{' {
		s.Skip()
		return
	}
	sum := summary{endpoint: m.sum.endpoint, counts: m.sum.counts}
	sum.members(s)
	if s.Bad() {
		return
	}
	if sum.hasUsage {
		m.sum.usage, m.sum.counts, m.sum.hasUsage = sum.usage, sum.counts, true
	}
	if sum.status != "in_progress" && sum.status != "queued" {
		m.sum.finish = cmp.Or(sum.finish, m.sum.finish)
	}
}
