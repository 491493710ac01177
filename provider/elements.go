package provider

import (
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/sse"
)

// elements cuts a stream that is one JSON array into its elements, wherever the reads happen to split it, as sse.Parser cuts
// events: Gemini streams an array to whoever does not ask for events. A lone object counts as one element; what is no
// object is passed over. The zero value works. It holds at most one element in memory.
type elements struct {
	b       []byte // an element whose end has not come yet
	open    int    // brackets of the element that are open
	array   bool   // the array has begun,
	closed  bool   // and ended
	text    bool   // within a string,
	escaped bool   // and behind a backslash
	err     error
}

// Feed takes the next bytes of the stream and calls emit for every element that they complete. It fails with
// errEventTooLong, and from then on always.
func (p *elements) Feed(b []byte, emit func(sse.Event)) error {
	start := 0 // of the element, or of what of it is in b
	for i := 0; i < len(b) && p.err == nil && !p.closed; i++ {
		if p.text && !p.escaped {
			if i += jsonscan.Plain(b[i:]); i == len(b) {
				break
			}
		}
		switch c := b[i]; {
		case p.escaped:
			p.escaped = false
		case p.text:
			p.escaped, p.text = c == '\\', c != '"'
		case c == '"':
			p.text = p.open > 0
		case c == '[' && p.open == 0 && !p.array:
			p.array = true
		case c == '{' || c == '[':
			if p.open == 0 {
				start = i
			}
			p.open++
		case (c == '}' || c == ']') && p.open > 0:
			if p.open--; p.open == 0 {
				p.emit(b[start:i+1], emit)
				p.closed = !p.array
			}
		case c == ']':
			p.closed = true
		}
	}
	if p.open > 0 {
		p.keep(b[start:])
	}
	return p.err
}

// emit hands an element out whose last bytes are these.
func (p *elements) emit(last []byte, emit func(sse.Event)) {
	if len(p.b) > 0 {
		p.keep(last)
		last = p.b
	}
	if p.err == nil {
		emit(sse.Event{Data: last})
	}
	p.b = p.b[:0]
}

func (p *elements) keep(b []byte) {
	if len(p.b)+len(b) > sse.MaxEvent {
		p.b, p.err = nil, sse.ErrTooLong
		return
	}
	p.b = append(p.b, b...)
}
