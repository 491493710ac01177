package sim

import (
	"net/http"
	"time"

	"github.com/sluice-llm/sluice/internal/simbatch"
	"github.com/sluice-llm/sluice/limits"
)

// Batches configures the Batch APIs of OpenAI, Anthropic and Gemini. With the zero value of Batches, only the documented limits
// apply, and a batch takes 1 s.
type Batches = simbatch.Config

// batchHost answers the lines of batches as single requests. It charges no limit for them.
type batchHost struct{ *Server }

// Authorize implements simbatch.Host.
func (s batchHost) Authorize(path string, r *http.Request) (why string, status int, body []byte) {
	c := &call{id: RequestHash(nil), dialect: dialectOf(path, nil, nil)}
	no := s.checkKey(c, r.Header, r.URL.Query())
	if _, ok := c.dialect.(anthropic); ok && no == nil && r.Header["Anthropic-Version"] == nil {
		no = &refusal{reason: reasonNoVersion}
	}
	if no != nil {
		why = no.name()
		status, body = c.dialect.refusal(c, no)
	}
	return why, status, body
}

// line reads a request as if it had come live.
func (s batchHost) line(path, model string, body []byte) (*call, *refusal) {
	c, _ := newCall(http.MethodPost, path, nil, nil, body)
	c.model = model
	no := s.validate(c, anyVersion(), body)
	if no == nil && c.stream {
		no = &refusal{reason: reasonWrongType, param: "stream"} // batches have no streams
	}
	c.plan.output = c.perChoice * c.choices
	return c, no
}

// Charge implements simbatch.Host.
func (s batchHost) Charge(path, model string, body []byte) (of string, charged int, ok bool) {
	c, no := s.line(path, model, body)
	price := c.cost(s.config.Charge)
	return c.model, int(price.charge[limits.Tokens]), no == nil
}

// Answer implements simbatch.Host.
func (s batchHost) Answer(path, model string, body []byte, at time.Time, fail int) (status int, response []byte) {
	c, no := s.line(path, model, body)
	c.admitted = at
	switch {
	case fail == http.StatusTooManyRequests:
		no = &refusal{reason: reasonStray, vague: true}
	case fail == http.StatusInternalServerError:
		no = &refusal{reason: reasonServerError}
	case fail != 0 && no == nil:
		no = &refusal{reason: reasonBadRequest}
	}
	if no != nil {
		return c.dialect.refusal(c, no)
	}
	return http.StatusOK, []byte(c.dialect.answer(c))
}

// Luck implements simbatch.Host.
func (s batchHost) Luck(choice uint64, about [16]byte, n uint32) float64 {
	return newLuck(s.config.Seed, about, n).uniform(choice)
}

// Hint implements simbatch.Host.
func (s batchHost) Hint(path string, header http.Header, wait time.Duration) {
	if s.config.RetryAfter != RetryAfterNone {
		h := newHeaders(header)
		dialectOf(path, nil, nil).retryHeaders(&h, s.config.RetryAfter, wait, time.Now())
	}
}

// anyVersion is a header that requests without one are read with.
func anyVersion() http.Header { return http.Header{"Anthropic-Version": {"2023-06-01"}} }
