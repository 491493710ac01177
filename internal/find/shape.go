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

// essay is the default prompt of a real call. Models respond with 700 tokens and more, unless they are cut off.
const essay = `Write an essay of at least 600 words on the history of computing. Begin with the abacus, with Napier, Pascal, Leibniz, ` +
	`Babbage and Lovelace; continue with Hollerith's tabulators, Turing, Zuse, Colossus, ENIAC and the stored program; then the ` +
	`transistor, integrated circuits, time sharing, personal computers, the Internet and smartphones; and end with machine ` +
	`learning and large language models. Give each era a paragraph of its own, with names, years and what changed.`

// kind is the purpose of a request. Each tests one dimension.
type kind int

const (
	realCall     kind = iota // as large as the caller's
	tinyCall                 // a word in, a word out
	declaredCall             // declares more tokens than it uses
	fatCall                  // much input
	kinds
)

// shape is the form of a request.
type shape struct {
	kind   kind
	prompt string
	bound  int // maximum output in tokens
	output int // expected output in tokens; 0: as much as the maximum
}

// newReal returns the shape of real requests.
func newReal(cfg *Config) shape {
	return shape{kind: realCall, prompt: cfg.Prompt, bound: cfg.MinOutputTokens}
}

// tiny is the smallest request.
var tiny = shape{kind: tinyCall, prompt: word, bound: tinyOutput}

const (
	tinyOutput = 16 // tokens; the minimum that every API takes as a bound
	// charsPerToken is the minimum of characters per token in such texts, for estimates.
	charsPerToken = 3.0
)

// word is a prompt whose response is a word.
const word = "Answer with the one word: yes"

// filler returns a shape with about this number of input tokens.
func filler(tokens int) shape {
	// Four characters a token is what providers estimate by; the digits keep repetitions from being counted as fewer.
	var b strings.Builder
	b.WriteString(word)
	b.WriteString(". Ignore what follows: ")
	for i := 0; b.Len() < 4*tokens-nonceChars; i++ {
		b.WriteString(strconv.Itoa(i % 10))
		b.WriteString("ab ")
	}
	return shape{kind: fatCall, prompt: b.String(), bound: tinyOutput}
}

// reserve returns the maximum number of tokens that a request is expected to be billed for, before its response states them.
func (s *shape) reserve() (input, output int) {
	return int(math.Ceil(float64(len(s.prompt)+nonceChars)/charsPerToken)) + 8, cmp.Or(s.output, s.bound)
}

// nonceChars is the length of the nonce before each prompt.
const nonceChars = 20

// nonce returns the beginning of the n-th prompt: the response to an earlier prompt may come from a cache.
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

// body returns the body of a request.
func (s *shape) body(p provider.Provider, t provider.Target, nonce string) []byte {
	b := provider.AppendPrompt(nil, t.Endpoint, t.Model, jsonscan.AppendString(nil, nonce+s.prompt), nil)
	member, _ := p.Bound(t.Endpoint)
	if member == "" {
		return append(b, '}')
	}
	path := strings.Split(member, ".")
	for i, name := range path {
		b = append(jsonscan.AppendString(append(b, ",{"[min(i, 1)]), name), ':')
	}
	b = strconv.AppendInt(b, int64(s.bound), 10)
	return append(b, strings.Repeat("}", len(path))...)
}
