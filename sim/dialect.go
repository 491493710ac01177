package sim

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/limits"
)

// dialect is what differs between providers.
type dialect interface {
	// key is the API key that a request brings, if any.
	key(header http.Header, query url.Values) string
	// read reads the value of a member of the body, and keeps it in c if it matters.
	read(c *call, s *jsonscan.Scanner, key string)

	// idHeader names the header with the request id; empty if there is none.
	idHeader() string
	// rateHeaders adds the headers that tell the quotas.
	rateHeaders(h *headers, q *[limits.NumDimensions]quota, now time.Time)
	// retryHeaders adds the headers that say when to come back.
	retryHeaders(h *headers, form RetryAfterForm, wait time.Duration, now time.Time)
	// refusal is the status and the body of an error.
	refusal(c *call, r *refusal) (status int, body []byte)

	// answer is a whole response.
	answer(c *call) string
	// streamType is the media type of a stream, which consists of open, a delta for each part of a text, and close.
	streamType(c *call) string
	open(c *call) string
	delta(c *call, choice int, text string) string
	close(c *call) string
	// count says how many tokens a request has.
	count(c *call) string
	// models lists the models.
	models(names []string, now time.Time) string
}

// plain is what the dialects of OpenAI and Anthropic have in common.
type plain struct{}

func (plain) key(header http.Header, _ url.Values) string {
	return cmp.Or(bearer(header), header.Get("X-Api-Key"))
}

func bearer(header http.Header) string {
	if key, ok := strings.CutPrefix(header.Get("Authorization"), "Bearer "); ok {
		return key
	}
	return ""
}

func (plain) read(c *call, s *jsonscan.Scanner, key string) {
	if key == "messages" || key == "input" {
		c.readPrompts(s)
		return
	}
	s.Peek()
	start := s.Offset()
	c.walk(s, holdsText(key))
	if value := s.Since(start); len(value) > 0 && !c.set(key, value) {
		c.mistyped(key)
	}
}

func (plain) retryHeaders(h *headers, form RetryAfterForm, wait time.Duration, now time.Time) {
	retryAfter(h, form, wait, now)
}

const eventStream = "text/event-stream; charset=utf-8"

func (plain) streamType(*call) string { return eventStream }
