package sim

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// dialect is what differs between providers.
type dialect interface {
	// key is the API key that a request brings, if any.
	key(header http.Header, query url.Values) string
	// read walks over the value of a member of the body, and keeps it in c if
	// it matters; it reports false on what is not JSON.
	read(c *call, s *scanner, key []byte) bool

	// idHeader names the header with the request id; empty if there is none.
	idHeader() string
	// rateHeaders adds the headers that tell the quotas.
	rateHeaders(h *headers, q *[dimensions]quota, now time.Time)
	// retryHeaders adds the headers that say when to come back.
	retryHeaders(h *headers, form RetryAfterForm, wait time.Duration, now time.Time)
	// refusal is the status and the body of an error.
	refusal(c *call, r *refusal) (status int, body []byte)

	// answer appends a whole answer.
	answer(b []byte, c *call) []byte
	// streamType is the media type of a stream; open, delta and close append
	// what it consists of.
	streamType(c *call) string
	open(b []byte, c *call) []byte
	delta(b []byte, c *call, choice int, text []byte) []byte
	close(b []byte, c *call) []byte
	// count says how many tokens a request has.
	count(c *call) []byte
	// models lists the models there are.
	models(names []string, now time.Time) []byte
}

// plain is what the dialects of OpenAI and Anthropic have in common.
type plain struct{}

func (plain) key(header http.Header, _ url.Values) string {
	return cmp.Or(bearer(header), header.Get("X-Api-Key"))
}

func bearer(header http.Header) string {
	key, ok := strings.CutPrefix(header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return key
}

func (plain) read(c *call, s *scanner, key []byte) bool {
	if string(key) == "messages" || string(key) == "input" {
		n, ok := s.prompts()
		c.prompts = n
		return ok
	}
	start := s.i
	if !s.value(isText(key), 0) {
		return false
	}
	if !c.set(key, s.b[start:s.i]) {
		c.mistyped(string(key))
	}
	return true
}

func (plain) retryHeaders(h *headers, form RetryAfterForm, wait time.Duration, now time.Time) {
	retryAfter(h, form, wait, now)
}

const eventStream = "text/event-stream; charset=utf-8"

func (plain) streamType(*call) string { return eventStream }
