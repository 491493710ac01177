package redact

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
)

// Windows are the lengths that are looked at. Each is as long as fits into 64 bits, so that it is compared exactly: 9
// characters of 7 bits, 10 of base64 and 16 of hexadecimal, which are 7½ and 8 characters of a secret.
const (
	plainWindow  = 9
	base64Window = 10
	hexWindow    = 16
	longest      = hexWindow
)

// patterns are all windows of some secrets, in every form. It is immutable.
type patterns struct {
	lengths []int    // of the windows of characters: 9, and those of shorter secrets
	encoded bool     // some are of base64 and hexadecimal
	table   []uint64 // a hash table of the windows, by open addressing. 0 is a free place
	shift   uint     // makes a place in the table of a hash
	count   int
	part    [256]bool // the characters in any pattern
}

// Windows of different kinds are told apart by what is added to them. Those of shorter secrets have room for their length.
const (
	base64Salt = 0x9ae16a3b2f90404f
	hexSalt    = 0xc949d7c7509e6557
)

func plainKey(w uint64, length int) uint64 {
	if length < plainWindow {
		w = w&(1<<(7*length)-1) | uint64(length)<<60
	}
	return w
}

func patternsOf(secrets []string) (p patterns) {
	p.shift = 64 - 4
	p.table = make([]uint64, 1<<4)
	for _, s := range secrets {
		s = strings.TrimSpace(s)
		s = s[:min(len(s), Longest)]
		if len(s) < Shortest || strings.Trim(s, "*") == "" {
			continue
		}
		p.addPlain(bare([]byte(s)))
		if words := strings.Fields(s); len(words) > 1 { // as addresses write it
			p.addPlain(bare([]byte(strings.Join(words, "+"))))
		}
		if strings.ContainsAny(s, `\%&`) { // it has what looks like an escape, which is read as one or as it is
			quoted, _ := json.Marshal(s)
			p.addPlain(decode([]byte(s), false))
			p.addPlain(withoutSpace(quoted[1 : len(quoted)-1]))
			p.addPlain(withoutSpace([]byte(s)))
		}
		if len(s) >= ShortestEncoded {
			p.addEncoded(s)
		}
	}
	return p
}

// bare returns a secret without the characters that a matcher skips.
func bare(s []byte) []byte { return bytes.ReplaceAll(withoutSpace(s), []byte(`\`), nil) }

func withoutSpace(s []byte) []byte {
	return slices.DeleteFunc(slices.Clone(s), skipped)
}

func (p *patterns) addPlain(s []byte) {
	n := min(len(s), plainWindow)
	if n < Shortest {
		return
	}
	if !slices.Contains(p.lengths, n) {
		p.lengths = append(p.lengths, n)
	}
	w := uint64(0)
	for i, c := range s {
		p.part[c] = true
		if w = pushPlain(w, c); i >= n-1 {
			p.add(plainKey(w, n))
		}
	}
}

func (p *patterns) addEncoded(s string) {
	p.encoded = true
	w := uint64(0)
	for i, c := range []byte(hex.EncodeToString([]byte(s))) {
		if w = w<<4 | uint64(hexValue[c]); i >= hexWindow-1 {
			p.add(w ^ hexSalt)
		}
	}
	for shift := range 3 { // by as many bytes before it
		all := base64.StdEncoding.EncodeToString([]byte("\x00\x00"[:shift] + s))
		first, end := (shift*8+5)/6, (shift+len(s))*8/6 // the rest depends on the bytes around it
		for i, c := range []byte(all[first:end]) {
			if w = w<<6 | uint64(base64Value[c]); i >= base64Window-1 {
				p.add(w&(1<<60-1) ^ base64Salt)
			}
		}
	}
	for c := range p.part {
		p.part[c] = p.part[c] || base64Value[c] != none
	}
}

func (p *patterns) add(w uint64) {
	if w == 0 || p.has(w) {
		return
	}
	if p.count++; 4*p.count > len(p.table) {
		old := p.table
		p.table, p.shift = make([]uint64, 2*len(old)), p.shift-1
		for _, w := range old {
			if w != 0 {
				p.table[p.place(w)] = w
			}
		}
	}
	p.table[p.place(w)] = w
}

// place returns where a window stands in the table, or would.
func (p *patterns) place(w uint64) uint64 {
	const golden = 0x9e3779b97f4a7c15
	i := w * golden >> p.shift
	for p.table[i] != 0 && p.table[i] != w {
		i = (i + 1) & uint64(len(p.table)-1)
	}
	return i
}

func (p *patterns) has(w uint64) bool { return p.table[p.place(w)] == w && w != 0 }

func pushPlain(w uint64, c byte) uint64 {
	if c &= 0x7f; c == 0 { // which stands for no character
		c = 1
	}
	return w<<7&(1<<63-1) | uint64(c)
}

// view is a text as one way of reading it has it: its last characters, and where they stand.
type view struct {
	w     uint64
	count int
	spans [longest]span
}

func (v *view) push(c byte, at span) {
	v.w = pushPlain(v.w, c)
	v.spans[v.count%longest] = at
	v.count++
}

// at returns where the nth character from the end stands, of at most the last 16; the last is the first.
func (v *view) at(n int) span { return v.spans[(v.count-n)%longest] }

// matcher looks for patterns in a text that it is given unit by unit.
type matcher struct {
	patterns *patterns

	decoded, raw view

	base64, hex           uint64
	base64Count, hexCount int // of the characters in a row that these are of
	tail                  int // characters of base64 that are still of the last match, if they follow
	live                  int // decoded characters in a row that may be of a pattern which goes on, at most 15
}

// maxTail is how much may follow in base64 what depends on a secret alone: a character that it shares, a line's end and "=".
const maxTail = 4

// step takes a unit, its text and where that stands. If a secret ends with it, step returns the number of the last characters of
// a view that are of it.
// Their positions count as at does.
func (m *matcher) step(text []byte, at span, u unit) (n int, in *view) {
	for _, c := range text {
		if skipped(c) {
			continue
		}
		m.raw.push(c, at)
		if len(text) > 1 || m.raw.w != pushPlain(m.decoded.w, c) { // else it is what is decoded
			if k := m.plain(m.raw.w); k > 0 {
				n, in = k, &m.raw
			}
		}
	}
	if u.skip {
		m.tail = 0
		return n, in
	}
	m.decoded.push(u.c, at)
	if k := m.plain(m.decoded.w); k > n {
		n, in = k, &m.decoded
	}
	if m.patterns.encoded {
		if k := m.encoded(u.c); k > n {
			n, in = k, &m.decoded
		}
	}
	m.live = min(m.live+1, longest-1)
	if !m.patterns.part[u.c] {
		m.live = 0
	}
	return n, in
}

// plain returns the length of the pattern that the last characters are, or 0.
func (m *matcher) plain(w uint64) (n int) {
	for _, length := range m.patterns.lengths {
		if length > n && m.patterns.has(plainKey(w, length)) {
			n = length
		}
	}
	return n
}

// encoded takes a character, and returns how many of the last are of a secret in base64 or hexadecimal.
func (m *matcher) encoded(c byte) (n int) {
	v := base64Value[c]
	if m.tail > 0 && (v != none || c == '=') {
		m.tail--
		n = 1
	} else {
		m.tail = 0
	}
	m.base64, m.base64Count = m.base64<<6&(1<<60-1)|uint64(v&0x3f), m.base64Count+1
	switch {
	case v == none:
		m.base64Count = 0
	case m.base64Count >= base64Window && m.patterns.has(m.base64^base64Salt):
		m.tail, n = maxTail, base64Window
	}
	v = hexValue[c]
	m.hex, m.hexCount = m.hex<<4|uint64(v&0xf), m.hexCount+1
	switch {
	case v == none:
		m.hexCount = 0
	case m.hexCount >= hexWindow && m.patterns.has(m.hex^hexSalt):
		n = hexWindow
	}
	return n
}
