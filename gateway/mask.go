package gateway

import (
	"bytes"
	"net/http"
	"strings"
)

// mask takes the upstream's key out of an answer: there are servers that say, mostly in their refusals, what they were asked with.
// What passes stays as long as it was. The zero value changes nothing.
type mask struct {
	key  []byte
	rare int    // where in it a byte stands that few answers hold
	held []byte // the last bytes that came, which may be the beginning of the key
}

// leastMasked is the length below which a key is a word such as "not-needed", which answers may hold.
const leastMasked = 16

func newMask(key string) mask {
	if len(key) < leastMasked {
		return mask{}
	}
	m := mask{key: []byte(key)}
	for i, c := range m.key {
		if commonness(c) < commonness(m.key[m.rare]) {
			m.rare = i
		}
	}
	return m
}

// commonness orders the bytes of keys roughly by how often they stand in answers.
func commonness(c byte) int {
	switch {
	case c >= 'A' && c <= 'Z':
		return 1
	case c >= '0' && c <= '9':
		return 2
	case c >= 'a' && c <= 'z':
		return 4
	}
	return 3
}

// of returns what is to be passed on of what came before and of b, which it changes.
func (m *mask) of(b []byte) []byte {
	if len(m.key) == 0 {
		return b
	}
	if len(m.held) > 0 {
		b, m.held = append(m.held, b...), nil
	}
	for from := m.rare; from < len(b); from++ {
		at := bytes.IndexByte(b[from:], m.key[m.rare])
		if at < 0 {
			break
		}
		from += at
		if found := b[from-m.rare:]; bytes.HasPrefix(found, m.key) {
			for i := range m.key {
				found[i] = '*'
			}
		}
	}
	n := m.begins(b)
	m.held = append(m.held, b[len(b)-n:]...)
	return b[:len(b)-n]
}

// begins is how many of the last bytes of b are the beginning of the key.
func (m *mask) begins(b []byte) int {
	most := min(len(b), len(m.key)-1)
	last := b[len(b)-most:]
	for at := bytes.IndexByte(last, m.key[0]); at >= 0; {
		if bytes.HasPrefix(m.key, last[at:]) {
			return len(last) - at
		}
		next := bytes.IndexByte(last[at+1:], m.key[0])
		if next < 0 {
			break
		}
		at += 1 + next
	}
	return 0
}

// end returns what is held when the answer is over.
func (m *mask) end() []byte { return m.held }

// header takes those values out that hold the key.
func (m *mask) header(h http.Header) {
	if len(m.key) == 0 {
		return
	}
	for name, values := range h {
		for _, value := range values {
			if strings.Contains(value, string(m.key)) {
				delete(h, name)
			}
		}
	}
}
