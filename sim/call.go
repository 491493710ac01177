package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strconv"
	"time"
)

// hash identifies a request by its body.
type hash [16]byte

func hashOf(body []byte) hash {
	sum := sha256.Sum256(body)
	return hash(sum[:16])
}

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// RequestHash is the name under which a server accounts for a request: the
// first 16 bytes of the body's SHA-256 in hex. The text of an answer begins
// with "sim:" and the hash of the request it belongs to; every answer's request
// id carries it as well, or of Gemini, whose errors have none, its responseId.
func RequestHash(body []byte) string { return hashOf(body).String() }

// endpoint is what was called.
type endpoint int

const (
	chat endpoint = iota
	responses
	embeddings
	messages
	// Of Gemini.
	generate
	embedding
	embeddingBatch
	// These are not calls.
	statsPage
	modelsPage
	countPage
)

// call is one request on its way through the server.
type call struct {
	request
	endpoint endpoint
	dialect  dialect
	hash     hash
	id       string // hash in hex
	version  string // of Gemini's API, from the path
	verb     string // what Gemini's path asks for
	array    bool   // a stream is one JSON array, not events

	plan      plan
	perChoice int  // tokens of each of the answer's choices
	cut       bool // by max_tokens

	admitted time.Time
	quotas   [dimensions]quota
	produced int // tokens of a stream so far
	sequence int // of the next event of a stream
}

// cost is what the call costs at admission under the given rule.
func (c *call) cost(rule Charge) cost {
	return costOf(rule, c.input, c.maxTokens*c.choices)
}

// costOf is the cost of input tokens and a declared number of output tokens.
func costOf(rule Charge, input, declared int) cost {
	var k cost
	k.need[requests], k.need[requestsPerDay] = 1, 1
	k.need[inputTokens] = float64(input)
	if rule == ChargeActual {
		k.need[tokens] = float64(input)
		k.charge = k.need
		k.need[outputTokens] = 1
		return k
	}
	k.need[tokens] = float64(max(input, declared))
	k.need[outputTokens] = float64(declared)
	k.charge = k.need
	return k
}

// The text of an answer is the name of the request, which is 9 tokens long by
// the rule of four characters to a token, and then a filler for every token
// that is left.
const (
	nameTokens = 9
	filler     = " and"
)

// appendText appends the tokens from up to to of the text of an answer. The
// name is whole in the first of them.
func (c *call) appendText(b []byte, from, to int) []byte {
	if from == 0 {
		b = append(b, "sim:"...)
		b = append(b, c.id...)
	}
	for range to - max(from, nameTokens) {
		b = append(b, filler...)
	}
	return b
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string always encodes
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

func appendInt(b []byte, n int) []byte { return strconv.AppendInt(b, int64(n), 10) }
