package gateway

import (
	"bytes"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/sse"
)

// eventFilter passes the events of a stream on as they came, each once it is whole: so the gateway can break a stream off
// between two of them. The zero value passes all of them.
type eventFilter struct {
	dropUsage bool // the event that states the usage and nothing else is left out

	cut    sse.Cutter
	buf    []byte
	passed int  // bytes of buf that were passed on; the start of an event follows
	long   bool // the event is passed on in parts: it is too long to be held, or to be only the usage
}

// mostHeld is how much of an event is held back at most.
const mostHeld = 64 << 10

// feed takes the next bytes of the stream, and returns what of them, and of those held, is to be passed on. That holds until it is
// called again.
func (f *eventFilter) feed(b []byte) []byte {
	f.buf = append(f.buf[:0], f.buf[f.passed:]...)
	f.passed = 0
	for len(b) > 0 {
		n, whole := f.cut.Next(b)
		f.buf = append(f.buf, b[:n]...)
		b = b[n:]
		event := f.buf[f.passed:]
		long := f.long || len(event) > mostHeld
		if !whole && !long {
			break
		}
		if whole && !long && f.dropUsage && onlyUsage(event) {
			f.buf = f.buf[:f.passed]
		}
		f.passed, f.long = len(f.buf), !whole
	}
	return f.buf[:f.passed]
}

// end returns what is held when the stream is over.
func (f *eventFilter) end() []byte {
	if event := f.buf[f.passed:]; !f.dropUsage || !onlyUsage(event) {
		return event
	}
	return nil
}

// between reports whether what was passed on are whole events.
func (f *eventFilter) between() bool { return !f.long }

// onlyUsage reports whether an event is the chunk of a chat that states the usage and has no part of the answer
// (https://platform.openai.com/docs/api-reference/chat-streaming).
func onlyUsage(event []byte) bool {
	if !statesUsage(event) {
		return false
	}
	e, _ := sse.Parse(event)
	var usage, empty, other bool
	s := jsonscan.New(e.Data)
	for s.Enter('{'); s.Next('}'); {
		name := jsonscan.Name(s.Key())
		value := s.Span()
		switch string(name) {
		case "usage":
			usage = len(value) > 0 && value[0] == '{'
		case "choices":
			empty = len(value) > 1 && value[0] == '[' && len(bytes.TrimSpace(value[1:len(value)-1])) == 0
		case "error":
			other = other || string(value) != "null"
		}
	}
	return s.End() && usage && empty && !other
}

// statesUsage tells quickly of most events that they do not: only in the one that does are the choices an empty list. Where a line
// ends within a list, it may be.
func statesUsage(events []byte) bool {
	for {
		at := bytes.IndexByte(events, '[')
		if at < 0 {
			return false
		}
		events = bytes.TrimLeft(events[at+1:], " \t")
		if len(events) > 0 && (events[0] == ']' || events[0] == '\n' || events[0] == '\r') {
			return true
		}
	}
}
