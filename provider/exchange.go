package provider

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
)

const (
	defaultTimeout = 10 * time.Minute // what the official SDKs wait for one attempt
	defaultBytes   = 64 << 20
	longRefusal    = 1 << 20 // what is read of a refusal at most
)

// ErrAnswerTooLong is the error of an answer above the most bytes allowed.
var ErrAnswerTooLong = errors.New("answer is larger than allowed")

// ExchangeConfig shapes one try.
type ExchangeConfig struct {
	Provider Provider
	Endpoint Endpoint
	Stream   bool          // the request asked for a stream
	Timeout  time.Duration // from the instant the request leaves to the answer's last byte. Default 10 minutes
	MaxBytes int64         // of the answer. Default 64 MiB
	Key      string        // the run's key, struck out of every text, as are the secrets in the request's header
	Cost     sluice.Cost   // the estimate: the input of an answer that breaks off before it states its usage

	keys []string // Key, and those of the header
}

// Answer is what came back, whole.
type Answer struct {
	Status       int
	RequestID    string
	Header       http.Header
	Body         []byte // of a stream: the message that it amounts to; keys are struck out
	FinishReason string // as the provider words it: stop, end_turn, completed, length, ...
}

// Exchange makes one try: it sends req through base, reads the answer to its end, and says what it meant. It retries
// nothing. permit may be nil; Exchange marks it sent, and the caller releases it with the outcome.
//
// Outcome.Err is the context's error if ctx ended first, an *Error for an answer that is a refusal, and else what the
// network said. The Answer holds whatever came, also of a refusal.
func Exchange(ctx context.Context, base http.RoundTripper, permit *sluice.Permit, req *http.Request, cfg ExchangeConfig) (Answer, sluice.Outcome) {
	if cfg.Timeout <= 0 {
		cfg.Timeout = defaultTimeout
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultBytes
	}
	cfg.keys = secretsOf(req.Header, cfg.Key)
	resp, f, o := launch(ctx, base, permit, req, allowance{first: cfg.Timeout, idle: cfg.Timeout}, cfg.keys)
	if resp == nil {
		return Answer{}, o
	}
	defer f.land()
	defer resp.Body.Close()
	a := Answer{Status: resp.StatusCode, RequestID: Redact(requestID(resp.Header), cfg.keys...), Header: resp.Header}
	readings := cfg.Provider.Readings(resp.Header, time.Now())
	if resp.StatusCode/100 == 2 && cfg.streams(resp.Header) {
		if permit != nil {
			permit.Answered(readings)
		}
		o = cfg.collect(ctx, f, resp, &a)
	} else {
		o = cfg.read(ctx, f, resp, &a)
	}
	o.Readings = readings
	a.Body, a.FinishReason = cfg.strike(a.Body, o.Kind), clip(Redact(a.FinishReason, cfg.keys...), longFinish)
	return a, o
}

// longFinish is how much of a reason to end is kept, which is a word.
const longFinish = 200

// strike strikes keys out of a body that will be kept: whatever looks like one out of a refusal, which may quote what
// it was sent, and what was sent out of an answer.
func (cfg ExchangeConfig) strike(body []byte, kind sluice.Kind) []byte {
	switch {
	case kind != sluice.OK:
		return []byte(Redact(string(body), cfg.keys...))
	case slices.ContainsFunc(cfg.keys, func(key string) bool { return len(key) >= leastKey && holds(body, []byte(key)) }):
		return []byte(redaction{keys: cfg.keys, given: true}.of(string(body)))
	}
	return body
}

// read takes an answer that is not a stream.
func (cfg ExchangeConfig) read(ctx context.Context, f *flight, resp *http.Response, a *Answer) sluice.Outcome {
	most, length := cfg.MaxBytes, resp.ContentLength
	if resp.StatusCode/100 != 2 { // the beginning of a refusal says what it is
		most, length = min(most, longRefusal), 0
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, most), resp.Body}
	}
	body, err := readAll(resp.Body, length, most)
	a.Body = body
	if err != nil {
		return cfg.broken(ctx, f, err)
	}
	o, finish := cfg.judge(resp.StatusCode, resp.Header, body, a.RequestID)
	a.FinishReason = finish
	return o
}

// judge says what a whole answer that is not a stream meant. A good status is no good answer if an error is in it; what
// such an answer says that it used counts all the same.
func (cfg ExchangeConfig) judge(status int, h http.Header, body []byte, id string) (o sluice.Outcome, finish string) {
	var s summary
	if status/100 == 2 {
		s = summarize(cfg.Endpoint, body)
		blocked := s.finish != "" && !s.failed() // a prompt that Gemini blocks: an answer without content, which is paid for
		if s.valid && (blocked || !s.refuses(body)) {
			return sluice.Outcome{Usage: s.usage, HasUsage: s.hasUsage}, s.finish
		}
	}
	v := Classify(cfg.Provider, status, h, body, time.Now())
	if v.Kind == sluice.OK { // it is no error that anybody knows, but no answer either
		v = Verdict{Kind: sluice.ServerError, Message: "answer is not JSON: " + Redact(clip(string(body), 200)),
			Why: Reason{Rule: "good status, no JSON", Field: "body", Value: h.Get("Content-Type")}}
	}
	o = v.without(cfg.keys).Outcome(cfg.Provider, status, id)
	o.Usage, o.HasUsage = s.usage, s.hasUsage
	return o, ""
}

// Judge says what an answer meant that came otherwise than by Exchange, such as in the files of a Batch API: it is read as one is
// that comes whole and at once, and no text of it keeps a key. id is the provider's name for it; sent is the header that it was
// asked for with, whose secrets are struck out too.
func (cfg ExchangeConfig) Judge(sent http.Header, status int, id string, body []byte) (Answer, sluice.Outcome) {
	cfg.keys = secretsOf(sent, cfg.Key)
	a := Answer{Status: status, RequestID: Redact(id, cfg.keys...), Body: body}
	o, finish := cfg.judge(status, nil, body, a.RequestID)
	a.Body, a.FinishReason = cfg.strike(body, o.Kind), clip(Redact(finish, cfg.keys...), longFinish)
	return a, o
}

// collect takes an answer that is a stream.
func (cfg ExchangeConfig) collect(ctx context.Context, f *flight, resp *http.Response, a *Answer) sluice.Outcome {
	m, err := Collect(cfg.Endpoint, resp.Body, cfg.MaxBytes)
	a.Body, a.FinishReason = m.Body, m.FinishReason
	if err == nil && m.Fault == nil {
		f.drain(resp.Body)
	}
	u, ok := m.meter.usage(cfg.Cost, false)
	var o sluice.Outcome
	switch {
	case m.Fault != nil:
		o = cfg.fault(resp, m.Fault, a.RequestID)
	case err != nil:
		o = cfg.broken(ctx, f, err)
	}
	o.Usage, o.HasUsage = u, ok
	return o
}

// fault classifies an error that came in the middle of a stream.
func (cfg ExchangeConfig) fault(resp *http.Response, data []byte, id string) sluice.Outcome {
	v := ClassifyEvent(cfg.Provider, data, time.Now())
	return v.without(cfg.keys).Outcome(cfg.Provider, resp.StatusCode, id)
}

// broken is the outcome of an answer whose body did not come whole.
func (cfg ExchangeConfig) broken(ctx context.Context, f *flight, err error) sluice.Outcome {
	// Asking again for what is too long would bring the same, and cost the same.
	switch {
	case errors.Is(err, ErrAnswerTooLong):
		return sluice.Outcome{Kind: sluice.BadRequest, Err: fmt.Errorf("%w: more than %d bytes", err, cfg.MaxBytes)}
	case errors.Is(err, ErrEventTooLong): // its limit is another, MaxEvent
		return sluice.Outcome{Kind: sluice.BadRequest, Err: err}
	}
	o := f.failure(ctx, err)
	o.Unsent = false
	return o
}

// streams reports whether a good answer is a stream.
func (cfg ExchangeConfig) streams(h http.Header) bool {
	ct := h.Get("Content-Type")
	is := func(kind string) bool { return len(ct) >= len(kind) && strings.EqualFold(ct[:len(kind)], kind) }
	switch {
	case is("text/event-stream"):
		return true
	case cfg.Endpoint == StreamGenerateContent: // an array, element by element
		return ct == "" || is("application/json")
	}
	return cfg.Stream && ct == ""
}

// requestID returns the name that the provider gave the call.
func requestID(h http.Header) string {
	for _, k := range [...]string{"X-Request-Id", "Request-Id", "Apim-Request-Id", "X-Amzn-Requestid"} {
		if v := h[k]; len(v) > 0 {
			return v[0]
		}
	}
	return ""
}

// buffers are for bodies of unknown length.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// maxPooled keeps one huge answer from holding its memory for ever.
const maxPooled = 1 << 20

// giveBack has a buffer used again.
func giveBack(buf *bytes.Buffer) {
	if buf.Cap() <= maxPooled {
		buffers.Put(buf)
	}
}

// readAll reads a body to its end. It fails with ErrAnswerTooLong above most bytes, and with io.ErrUnexpectedEOF when
// fewer came than the head announced. A length of 0 or less says nothing: round trippers that are not a network leave
// it at 0.
func readAll(r io.Reader, length, most int64) ([]byte, error) {
	if length > most {
		return nil, ErrAnswerTooLong
	}
	if length > 0 && length <= maxPooled {
		b := make([]byte, length)
		n, err := io.ReadFull(r, b)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return b[:n], err
	}
	// An announced length is not trusted with memory beyond a megabyte.
	buf := buffers.Get().(*bytes.Buffer)
	buf.Reset()
	_, err := buf.ReadFrom(io.LimitReader(r, most+1))
	b := bytes.Clone(buf.Bytes())
	giveBack(buf)
	switch {
	case err != nil:
		return b, err
	case int64(len(b)) > most:
		return nil, ErrAnswerTooLong
	case length > int64(len(b)):
		return b, io.ErrUnexpectedEOF
	}
	return b, nil
}
