package find

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/provider"
)

// essay is the built-in prompt of a real call. Models answer it with 700 tokens and more, unless they are cut off.
const essay = `Write an essay of at least 600 words on the history of computing. Begin with the abacus, with Napier, Pascal, Leibniz, ` +
	`Babbage and Lovelace; go on with Hollerith's tabulators, Turing, Zuse, Colossus, ENIAC and the stored program; then the ` +
	`transistor, integrated circuits, time sharing, personal computers, the Internet and smartphones; and end with machine ` +
	`learning and large language models. Give each era a paragraph of its own, with names, years and what changed.`

// shape is one kind of probe. Each tests one dimension.
type shape struct {
	name   string
	real   bool
	prompt string
	bound  int // most output tokens
	output int // as many are expected; 0: as many as may be
}

const (
	tinyOutput = 16 // tokens; the least that every API takes as a bound
	// charsPerToken is the least that a token is worth in texts like these, for what is reserved before a call is made.
	charsPerToken = 3.0
)

// word is the prompt of calls whose answer is a word.
const word = "Answer with the one word: yes"

// filler returns a shape with about so many tokens of input.
func filler(tokens int) shape {
	// Four characters a token is what providers estimate by; the digits keep repetitions from being counted as fewer.
	var b strings.Builder
	b.WriteString(word)
	b.WriteString(". Ignore what follows: ")
	for i := 0; b.Len() < 4*tokens-nonceChars; i++ {
		b.WriteString(strconv.Itoa(i % 10))
		b.WriteString("ab ")
	}
	return shape{name: "fat", prompt: b.String(), bound: tinyOutput}
}

// reserve is how many tokens a call is expected to be billed for at most, before its answer says.
func (s *shape) reserve() (input, output int) {
	return int(math.Ceil(float64(len(s.prompt)+nonceChars)/charsPerToken)) + 8, cmp.Or(s.output, s.bound)
}

// nonceChars is the length of what stands before each prompt.
const nonceChars = 20

// nonce makes the beginning of the n-th prompt: a prompt that was seen before may be answered from a cache.
func nonce(seed, n uint64) string {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], mix(seed^mix(n)))
	return "[" + hex.EncodeToString(b[:]) + "] \n"
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// body is the request's.
func (s *shape) body(p provider.Provider, t provider.Target, nonce string) []byte {
	b := provider.AppendPrompt(nil, t.Endpoint, t.Model, jsonscan.AppendString(nil, nonce+s.prompt), nil)
	member, _ := p.Bound(t.Endpoint)
	if member == "" {
		return append(b, '}')
	}
	path := strings.Split(member, ".")
	for i, name := range path {
		if i == 0 {
			b = append(b, ',')
		} else {
			b = append(b, '{')
		}
		b = append(jsonscan.AppendString(b, name), ':')
	}
	b = strconv.AppendInt(b, int64(s.bound), 10)
	return append(b, strings.Repeat("}", len(path))...)
}
