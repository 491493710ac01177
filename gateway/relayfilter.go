package gateway

import (
	"bytes"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

// eventFilter passes the events of a stream on as they came, each once it is whole: so the gateway can break a stream off
// between two of them. The zero value passes all of them.
type eventFilter struct {
	dropUsage bool // the event that states the usage and nothing else is left out

	held, spare []byte // the beginning of an event, and a buffer to take turns with
	begun       bool   // the event
	inLine      bool   // the line has begun
	cr          bool   // the last line ended in CR: an LF that follows belongs to it,
	gone        bool   // and its event was left out
	long        bool   // the event is passed on in parts: it is too long to be held, or to be only the usage
}

// mostHeld is how much of an event is held back at most.
const mostHeld = 64 << 10

// feed takes the next bytes of the stream, and returns what of what was held, and then of them, is to be passed on. That holds
// until it is called again. It changes b.
func (f *eventFilter) feed(b []byte) (first, rest []byte) {
	last := bytes.LastIndex(b, blank) + len(blank) // behind the last event
	if f.cr || f.long || last < len(blank) || len(b)-last > mostHeld || !f.begun && b[0] == '\n' ||
		bytes.IndexByte(b, '\r') >= 0 || f.dropUsage && statesUsage(b) {
		return nil, f.byLine(b)
	}
	from := 0
	if f.begun {
		if from = bytes.Index(b, blank) + len(blank); b[0] == '\n' && !f.inLine {
			from = 1
		}
		f.held = append(f.held, b[:from]...)
		if !f.dropUsage || !onlyUsage(f.held) {
			first = f.held
		}
		f.held, f.spare = f.spare, f.held
	}
	f.held = append(f.held[:0], b[last:]...)
	f.begun = len(f.held) > 0
	f.inLine = f.begun && b[len(b)-1] != '\n'
	return first, b[from:last]
}

// blank is the end of a line and an empty one, which ends an event. There are streams that break lines otherwise.
var blank = []byte("\n\n")

// byLine is feed, line by line.
func (f *eventFilter) byLine(b []byte) []byte {
	view, i := b, 0
	if len(f.held) > 0 {
		i = len(f.held)
		f.held = append(f.held, b...)
		view = f.held
	}
	passed, start := 0, 0 // all up to start is judged; what of it is passed on was moved to the front
	pass := func(part []byte) {
		if passed != start || len(part) == 0 {
			copy(view[passed:], part)
		}
		passed += len(part)
	}
	for i < len(view) {
		if f.cr && view[i] == '\n' {
			f.cr = false
			i++
			if !f.begun {
				if !f.gone {
					pass(view[start:i])
				}
				start = i
			}
			continue
		}
		end := lineEnd(view[i:])
		f.begun, f.cr = true, false
		f.inLine = f.inLine || end != 0
		if end < 0 {
			break
		}
		blank := !f.inLine
		f.cr, f.inLine = view[i+end] == '\r', false
		i += end + 1
		if !blank {
			continue
		}
		f.gone = f.dropUsage && !f.long && onlyUsage(view[start:i])
		if !f.gone {
			pass(view[start:i])
		}
		f.begun, f.long, start = false, false, i
	}
	if rest := view[start:]; f.long || len(rest) > mostHeld {
		pass(rest)
		f.long, start = f.begun, len(view)
	}
	if start == 0 && len(view) > len(b) {
		return nil // all of it is held already
	}
	f.spare = append(f.spare[:0], view[start:]...)
	f.held, f.spare = f.spare, f.held
	return view[:passed]
}

// end returns what is held when the stream is over.
func (f *eventFilter) end() []byte {
	if f.dropUsage && onlyUsage(f.held) {
		return nil
	}
	return f.held
}

// between reports whether what was passed on are whole events.
func (f *eventFilter) between() bool { return !f.long }

// lineEnd returns where the first line break of b is, -1 for none.
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	if lf >= 0 {
		b = b[:lf]
	}
	if cr := bytes.IndexByte(b, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// onlyUsage reports whether an event is the chunk of a chat that states the usage and has no part of the answer
// (https://platform.openai.com/docs/api-reference/chat-streaming).
func onlyUsage(event []byte) bool {
	if !statesUsage(event) {
		return false
	}
	var data []byte
	events := 0
	note := func(e provider.Event) {
		data = bytes.Clone(e.Data)
		events++
	}
	var p provider.Parser
	if p.Feed(event, note) != nil || p.End(note) != nil || events != 1 {
		return false
	}
	var usage, empty, other bool
	s := jsonscan.New(data)
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
