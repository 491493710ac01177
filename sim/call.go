package sim

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/limits"
)

// hash identifies a request by its body.
type hash [16]byte

func hashOf(body []byte) hash {
	sum := sha256.Sum256(body)
	return hash(sum[:16])
}

func (h hash) String() string { return hex.EncodeToString(h[:]) }

// RequestHash returns the ID of a request in [Stats].Paid: the first 16 bytes of the SHA-256 of its body, in hex. The text of a
// response starts with "sim:" and the RequestHash. The request ID of a response also contains the RequestHash. Gemini's request ID is
// the responseId, which errors lack.
func RequestHash(body []byte) string { return hashOf(body).String() }

// endpoint is an endpoint of an API.
type endpoint int

const (
	chat endpoint = iota
	responses
	embeddings
	messages
	cohereChat
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
	quotas   [limits.NumDimensions]quota
	produced int // tokens of a stream so far
	sequence int // of the next event of a stream
}

// cost is what the call costs at admission under the given rule.
func (c *call) cost(rule limits.Charge) cost {
	return costOf(rule, c.input, c.maxTokens*c.choices)
}

// costOf is the cost of input tokens and a declared number of output tokens.
func costOf(rule limits.Charge, input, declared int) cost {
	var k cost
	k.need[limits.Requests], k.need[limits.RequestsPerDay] = 1, 1
	k.need[limits.InputTokens] = float64(input)
	if rule == limits.ChargeActual {
		k.need[limits.Tokens] = float64(input)
		k.charge = k.need
		k.need[limits.OutputTokens] = 1
		return k
	}
	k.need[limits.Tokens] = float64(max(input, declared))
	k.need[limits.OutputTokens] = float64(declared)
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

// text is the tokens from up to to of the text of an answer. The name is whole in the first of them.
func (c *call) text(from, to int) string {
	rest := strings.Repeat(filler, max(0, to-max(from, nameTokens)))
	if from == 0 {
		return "sim:" + c.id + rest
	}
	return rest
}

// quote is s as a JSON string.
func quote(s string) string { return string(jsonscan.AppendString(make([]byte, 0, len(s)+2), s)) }
