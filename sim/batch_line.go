package sim

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"maps"
	"net/http"
	"slices"
)

// batchLine is one request of a batch. Its body is a part of what was uploaded: an answer is made when it is fetched.
type batchLine struct {
	id   string
	body []byte
	hash hash // of the body
	fate fate
}

// fate is what becomes of a line that runs.
type fate uint8

const (
	fateAnswered  fate = iota
	fateRefused        // by what is wrong with it, as it would be live
	fateBad            // as a bad request, for no reason
	fateThrottled      // for no reason
	fateBroken         // by an error of the server's
)

// LineHash is the name under which [BatchStats] counts a line of a batch: the first 16 bytes in hex of the SHA-256 of its
// custom_id (of Gemini: its key), a line feed and its request as it stands in the line.
func LineHash(customID string, request []byte) string { return lineHash(customID, request).String() }

func lineHash(customID string, request []byte) hash {
	b := make([]byte, 0, len(customID)+1+len(request))
	return hashOf(append(append(append(b, customID...), '\n'), request...))
}

// anyVersion is a header that a line, which has none, is read with.
func anyVersion() http.Header { return http.Header{"Anthropic-Version": {"2023-06-01"}} }

// call reads a line as if it had come live.
func (s *Server) lineCall(b *batch, l *batchLine) (*call, *refusal) {
	c := &call{endpoint: b.endpoint, dialect: b.api.traits().dialect, hash: l.hash, id: l.hash.String(), version: "v1beta", verb: "generateContent"}
	c.choices, c.model = 1, b.model
	no := s.validate(c, anyVersion(), l.body)
	if no == nil && c.stream {
		no = &refusal{reason: reasonWrongType, param: "stream"} // batches have no streams
	}
	c.plan.output = c.perChoice * c.choices
	c.admitted = b.created
	return c, no
}

// weigh sums up the tokens of a batch by model, and notes the lines that are refused.
func (s *Server) weigh(b *batch) {
	b.tokens = map[string]int{}
	for i := range b.lines {
		l := &b.lines[i]
		l.hash = hashOf(l.body)
		c, no := s.lineCall(b, l)
		if no != nil {
			l.fate = fateRefused
		}
		price := c.cost(s.config.Charge)
		b.tokens[c.model] += int(price.charge[tokens])
	}
}

// drawLocked decides in which order the lines run and what becomes of them.
func (s *Server) drawLocked(b *batch) {
	b.order = make([]int32, len(b.lines))
	keys := make([]uint64, len(b.lines))
	for i := range b.lines {
		l := &b.lines[i]
		b.order[i] = int32(i)
		keys[i] = mix(s.config.Seed ^ binary.LittleEndian.Uint64(l.hash[:8]) ^ mix(uint64(i)))
		if s.config.NoStats && s.config.Batches.Fail == 0 {
			continue
		}
		a := s.accounts[l.hash]
		if l.fate == fateAnswered {
			l.fate = s.config.lineFate(l.hash, a.admitted)
		}
		a.admitted++
		s.accounts[l.hash] = a
	}
	s.store.counts.Lines += len(b.lines)
	if b.api.traits().ordered {
		return
	}
	slices.SortFunc(b.order, func(x, y int32) int { return cmp.Or(cmp.Compare(keys[x], keys[y]), cmp.Compare(x, y)) })
}

// lineAnswer is the status and the body of what a line was answered.
func (s *Server) lineAnswer(b *batch, l *batchLine) (status int, body []byte) {
	c, no := s.lineCall(b, l)
	switch l.fate {
	case fateBad:
		no = &refusal{reason: reasonBadRequest}
	case fateThrottled:
		no = &refusal{reason: reasonStray, vague: true}
	case fateBroken:
		no = &refusal{reason: reasonServerError}
	}
	if no != nil {
		return c.dialect.refusal(c, no)
	}
	return http.StatusOK, c.dialect.answer(make([]byte, 0, 768+len(filler)*c.plan.output), c)
}

// readLines calls f with each line of a file of requests that is not blank: with its number, from 1, the request of it, by the
// names that a provider has for its members, and whether it is a JSON object. other is told the other members before; it may be nil.
func readLines(data []byte, id, body string, other func(key, value []byte), f func(number int, l batchLine, ok bool)) {
	for number := 1; len(data) > 0; number++ {
		var text []byte
		if text, data = cutLine(data); len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		var l batchLine
		s := scanner{b: text}
		s.space()
		ok := s.members(func(key, value []byte) {
			switch {
			case string(key) == id:
				l.id = textOf(value)
			case string(key) == body:
				l.body = value
			case other != nil:
				other(key, value)
			}
		})
		s.space()
		f(number, l, ok && s.i == len(text))
	}
}

// isObject reports whether a line's request is one: of a line that is an object, it is if it begins as one.
func (l *batchLine) isObject() bool { return len(l.body) > 0 && l.body[0] == '{' }

func cutLine(data []byte) (text, rest []byte) {
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		return data[:i], data[i+1:]
	}
	return data, nil
}

// members walks over an object and calls f with each member and its value.
func (s *scanner) members(f func(key, value []byte)) bool {
	return s.object(func(key []byte) bool {
		start := s.i
		if !s.value(false, 0) {
			return false
		}
		f(key, s.b[start:s.i])
		return true
	})
}

// text is the string that a value is, or "".
func textOf(value []byte) string {
	text, _ := jsonString(value)
	return text
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
