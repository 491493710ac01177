// Package sse reads server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html).
package sse

import (
	"bytes"
	"errors"
	"net/http"
	"slices"
	"strings"
)

// MaxEvent is the size limit of one event in bytes. The longest that providers send are whole messages with images in them.
const MaxEvent = 16 << 20

// ErrTooLong is the error for a stream with an event above MaxEvent.
var ErrTooLong = errors.New("server-sent event is too long")

// Is reports whether a response with header h is a stream of events.
func Is(h http.Header) bool {
	return strings.HasPrefix(strings.ToLower(h.Get("Content-Type")), "text/event-stream")
}

// Event is one event with data.
type Event struct {
	Name []byte // of the field "event"; empty for most
	Data []byte
}

// Parse reads an event as it stands in a stream; ok is false for one without data. Name and Data are parts of raw, but for data of
// several lines.
func Parse(raw []byte) (e Event, ok bool) {
	for len(raw) > 0 {
		line := raw
		if end := lineEnd(raw); end < 0 {
			raw = nil
		} else {
			line, raw = raw[:end], raw[end+1:]
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) { // of a comment it is empty; id and retry are of no use here
		case "data":
			if ok {
				e.Data = append(append(e.Data, '\n'), value...)
			} else {
				e.Data, ok = slices.Clip(value), true
			}
		case "event":
			e.Name = value
		}
	}
	return e, ok
}

// lineEnd returns the index of the first line break, or -1. Nearly all streams have no CR, which one search tells.
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

// Cutter finds where the events of a stream end, wherever the reads split it. The zero value works.
type Cutter struct {
	text bool // the current line is not empty
	cr   bool // it ended with a CR, to which an LF may belong
}

// Next returns how many of the next bytes belong to the current event, and whether it ends with them. An event whose last byte is a
// CR ends when the next byte is known.
func (c *Cutter) Next(b []byte) (n int, whole bool) {
	for {
		if c.cr && n < len(b) {
			c.cr = false
			if b[n] == '\n' {
				n++
			}
			if !c.text {
				return n, true
			}
			c.text = false
		}
		end := lineEnd(b[n:])
		if end < 0 {
			c.text = c.text || n < len(b)
			return len(b), false
		}
		c.text = c.text || end > 0
		c.cr = b[n+end] == '\r'
		n += end + 1
		if c.cr {
			continue
		}
		if !c.text {
			return n, true
		}
		c.text = false
	}
}

// Parser cuts a stream into events. It holds at most one event in memory. The zero value works. It is not safe for concurrent use.
type Parser struct {
	cut   Cutter
	held  []byte // the current event so far
	begun bool   // an event was read
	err   error
}

// Feed takes the next bytes of the stream and calls emit for every event that they complete, whose bytes are valid only during the
// call. It fails with ErrTooLong, and from then on always.
func (p *Parser) Feed(b []byte, emit func(Event)) error {
	for len(b) > 0 && p.err == nil {
		n, whole := p.cut.Next(b)
		raw := b[:n]
		b = b[n:]
		if len(p.held)+n > MaxEvent {
			p.held, p.err = nil, ErrTooLong
			break
		}
		if len(p.held) > 0 || !whole {
			p.held = append(p.held, raw...)
			raw = p.held
		}
		if whole {
			p.emit(raw, emit)
		}
	}
	return p.err
}

func (p *Parser) emit(raw []byte, emit func(Event)) {
	if !p.begun {
		raw = bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	}
	if e, ok := Parse(raw); ok {
		emit(e)
	}
	p.held, p.begun = p.held[:0], true
}

// Between reports whether no event has begun.
func (p *Parser) Between() bool { return len(p.held) == 0 && p.err == nil }

// End says that the stream is over. An event that lacks only its blank line is emitted; whether it is whole, its data has to tell.
func (p *Parser) End(emit func(Event)) error {
	p.emit(p.held, emit)
	return p.err
}
