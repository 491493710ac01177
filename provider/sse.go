package provider

import (
	"bytes"
	"errors"
)

// MaxEvent is how long one event of a stream may be. The longest that providers send are whole messages with images in
// them.
const MaxEvent = 16 << 20

// ErrEventTooLong is returned for a stream with an event above MaxEvent.
var ErrEventTooLong = errors.New("server-sent event is too long")

// Event is one server-sent event. Its bytes are valid only until the parser is fed again.
type Event struct {
	Name []byte // of the field "event"; empty for most
	Data []byte
}

// Parser cuts a stream of bytes into server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html)
// wherever the reads happen to split it. The zero value works. It holds at most one event in memory. It is not safe
// for concurrent use.
type Parser struct {
	line  []byte // a line whose end has not come yet
	name  []byte
	data  []byte
	begun bool // something was fed
	lines int  // data lines in the event so far
	cr    bool // the last line ended with a CR that may belong to a CRLF
	err   error
}

// Feed takes the next bytes of the stream and calls emit for every event that they complete. It fails with
// ErrEventTooLong, and from then on always.
func (p *Parser) Feed(b []byte, emit func(Event)) error {
	if len(b) > 0 && !p.begun {
		p.begun = true
		// Only a byte order mark that comes in one piece is known as one; no provider sends any.
		b = bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))
	}
	for len(b) > 0 && p.err == nil {
		if p.cr {
			p.cr = false
			if b[0] == '\n' {
				b = b[1:]
				continue
			}
		}
		end := lineEnd(b)
		if end < 0 {
			p.keep(b)
			break
		}
		line := b[:end]
		if len(p.line) > 0 {
			p.keep(line)
			line = p.line
		}
		p.cr = b[end] == '\r'
		b = b[end+1:]
		if p.err == nil {
			p.take(line, emit)
		}
		p.line = p.line[:0]
	}
	return p.err
}

// between reports whether what was fed ended with an event.
func (p *Parser) between() bool {
	return p.begun && p.err == nil && !p.cr && len(p.line) == 0 && len(p.name) == 0 && p.lines == 0
}

// End says that the stream is over. An event that lacks only its blank line is emitted; whether it is whole, its data
// has to tell.
func (p *Parser) End(emit func(Event)) error {
	if p.err == nil && len(p.line) > 0 {
		p.take(p.line, emit)
		p.line = p.line[:0]
	}
	if p.err == nil {
		p.dispatch(emit)
	}
	return p.err
}

// lineEnd returns where the first line break of b is. Nearly all streams have no CR, which one search tells.
func lineEnd(b []byte) int {
	lf := bytes.IndexByte(b, '\n')
	line := b
	if lf >= 0 {
		line = b[:lf]
	}
	if cr := bytes.IndexByte(line, '\r'); cr >= 0 {
		return cr
	}
	return lf
}

// keep holds on to a part of a line until the rest comes.
func (p *Parser) keep(b []byte) {
	if len(p.line)+len(p.data)+len(b) > MaxEvent {
		p.err = ErrEventTooLong
		p.line, p.data, p.name = nil, nil, nil
		return
	}
	p.line = append(p.line, b...)
}

// take reads one line.
func (p *Parser) take(line []byte, emit func(Event)) {
	if len(line) == 0 {
		p.dispatch(emit)
		return
	}
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if len(p.data)+len(value) >= MaxEvent {
			p.err = ErrEventTooLong
			p.line, p.data, p.name = nil, nil, nil
			return
		}
		if p.lines > 0 {
			p.data = append(p.data, '\n')
		}
		p.data = append(p.data, value...)
		p.lines++
	case "event":
		p.name = append(p.name[:0], value...)
	}
	// A line that begins with a colon is a comment: its name is empty. id and retry are of no use here.
}

// dispatch emits the event that a blank line ends. An event without data is none.
func (p *Parser) dispatch(emit func(Event)) {
	if p.lines > 0 {
		emit(Event{Name: p.name, Data: p.data})
	}
	p.name, p.data, p.lines = p.name[:0], p.data[:0], 0
}
