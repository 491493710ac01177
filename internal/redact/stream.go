package redact

// maxHeld bounds the bytes of a stream that are held back for what follows them.
const maxHeld = 4 << 10

// Stream removes the secrets of a Redactor from a stream, which keeps its length: it writes "*" for each byte of a secret.
// It holds back the end of each piece that may be part of a secret: usually a few letters and digits, and at most 4 KiB.
// The zero value changes nothing.
type Stream struct {
	m    matcher
	held []byte // bytes that were not returned
	from int    // where in the stream they begin
	done int    // up to where in the stream units were read
}

// Stream returns a Stream at its start.
func (r *Redactor) Stream() Stream { return Stream{m: matcher{patterns: &r.patterns}} }

// Next takes the next piece, which it may change, and returns the bytes of the stream that can be passed on. They are valid until
// the next call.
func (s *Stream) Next(b []byte) []byte { return s.next(b, false) }

// End returns the rest of the stream.
func (s *Stream) End() []byte { return s.next(nil, true) }

func (s *Stream) next(b []byte, end bool) []byte {
	if s.m.patterns == nil || len(s.m.patterns.lengths) == 0 {
		return b
	}
	if len(s.held) > 0 {
		b = append(s.held, b...)
	}
	i := s.done - s.from
	for i < len(b) {
		u := readUnit(b[i:], end)
		if u.n == 0 {
			break
		}
		n, v := s.m.step(b[i:i+u.n], span{s.from + i, s.from + i + u.n}, u)
		for ; n > 0; n-- {
			s.mask(b, v.at(n))
		}
		i += u.n
	}
	pass := i
	if live := s.m.live; live > 0 && !end {
		if pass = max(0, s.m.decoded.at(live).start-s.from); i-pass > maxHeld {
			pass = i
		}
	}
	s.done = s.from + i
	s.from += pass
	s.held = append([]byte(nil), b[pass:]...)
	return b[:pass]
}

// mask overwrites a span of the stream, as far as it is in b.
func (s *Stream) mask(b []byte, at span) {
	for i := max(0, at.start-s.from); i < at.end-s.from; i++ {
		b[i] = '*'
	}
}
