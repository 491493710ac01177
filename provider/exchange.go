package provider

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/errtext"
	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/redact"
	"github.com/sluice-llm/sluice/internal/sse"
)

const (
	defaultTimeout = 10 * time.Minute // what the official SDKs wait for one attempt
	defaultIdle    = 2 * time.Minute  // without a byte
	defaultBytes   = 64 << 20
	longRefusal    = 1 << 20 // what is read of a refusal at most
)

// ErrAnswerTooLong is the error for a response that exceeds a maximum size, such as ExchangeConfig.MaxBytes.
var ErrAnswerTooLong = errors.New("response is too large")

// ExchangeConfig configures one attempt at a request.
type ExchangeConfig struct {
	Provider Provider
	Endpoint Endpoint
	Stream   bool                 // the request asks for a stream
	Timeout  time.Duration        // maximum time between two parts of a stream (default 2 min), or until the end of a response that is not a stream (default 10 min)
	Deadline func() time.Duration // returns the current time limit for a response that is not a stream (default: Timeout)
	MaxBytes int64                // maximum size of the response (default 64 MiB)
	Key      string               // API key to remove from all texts, in addition to secrets in the request header
	Cost     sluice.Cost          // estimated cost, whose input counts if a stream breaks off before reporting usage
	Added    []string             // names of the fields that were added to the user's request (see Verdict.Unsupported)

	keys []string                      // Key, and those of the header
	sent func() (io.ReadCloser, error) // the request's body; may be nil

	whole bool // a good response without the place of an answer is a failure; what is only passed on may be of another path
}

// Answer is the response received in one attempt.
type Answer struct {
	Status       int         // HTTP status; 0 if no response was received
	RequestID    string      // request ID in the response header
	Header       http.Header // response header
	Body         []byte      // body in valid UTF-8, without API keys; for a stream, the equivalent complete message
	FinishReason string      // the provider's finish reason, such as stop, end_turn, completed or length
}

// Exchange sends req through base once, reads the whole response and returns the outcome. permit may be nil. Exchange marks the permit as
// sent. The caller releases the permit with the outcome.
//
// Outcome.Err is the error of ctx if ctx ended first, an *[Error] after a rejection, and a *[LateError] after a timeout. Outcome.Err can
// also be another error, such as a network error. Even after a rejection, the Answer contains the received part of the response.
func Exchange(ctx context.Context, base http.RoundTripper, permit *sluice.Permit, req *http.Request, cfg ExchangeConfig) (Answer, sluice.Outcome) {
	allowed := allowance{first: cmp.Or(max(0, cfg.Timeout), defaultTimeout), follow: cfg.Deadline, idle: cmp.Or(max(0, cfg.Timeout), defaultIdle)}
	if cfg.Stream || cfg.Endpoint.spec().stream != "" {
		allowed.first, allowed.follow = allowed.idle, nil
	}
	if cfg.MaxBytes <= 0 {
		cfg.MaxBytes = defaultBytes
	}
	cfg.keys, cfg.sent, cfg.whole = secretsOf(req.Header, cfg.Key), req.GetBody, cfg.Endpoint != NoEndpoint
	resp, f, o := launch(ctx, base, permit, req, allowed, cfg.keys)
	if resp == nil {
		return Answer{}, o
	}
	defer f.land()
	defer resp.Body.Close()
	decompress(req.Method, resp, cfg.MaxBytes)
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
// it was sent, and what was sent out of an answer. Bytes that are not UTF-8 are replaced,
// since the output is in UTF-8.
func (cfg ExchangeConfig) strike(body []byte, kind sluice.Kind) []byte {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if kind != sluice.OK {
		return jsonscan.Repair(redact.New(cfg.keys...).Bytes(body))
	}
	return jsonscan.Repair(redact.New(cfg.keys...).Known(body))
}

// read takes an answer that is not a stream.
func (cfg ExchangeConfig) read(ctx context.Context, f *flight, resp *http.Response, a *Answer) sluice.Outcome {
	from, most, length := io.Reader(resp.Body), cfg.MaxBytes, resp.ContentLength
	if resp.StatusCode/100 != 2 { // the beginning of a refusal says what it is
		most, length = min(most, longRefusal), 0
		from = io.LimitReader(from, most)
	}
	body, err := readAll(from, length, most)
	a.Body = body
	if err != nil && (ctx.Err() != nil || !stands(resp.StatusCode) && !whole(body)) {
		return cfg.broken(ctx, f, err)
	}
	o, finish := cfg.judge(resp.StatusCode, resp.Header, body, a.RequestID)
	a.FinishReason = finish
	return o
}

// stands reports whether a status says enough, whatever becomes of the body.
func stands(status int) bool { return status == 429 || status == 503 || status == 529 }

// whole reports whether a body is a JSON document whose end was read, whatever length the head announced.
func whole(body []byte) bool {
	first := bytes.TrimLeft(body, " \t\r\n")
	return len(first) > 0 && (first[0] == '{' || first[0] == '[') && jsonscan.Valid(body)
}

// judge says what a whole response that is not a stream meant. A good status is not a success if the body holds an error, or where
// that is asked for not the endpoint's answer; the usage that such a response states counts all the same.
func (cfg ExchangeConfig) judge(status int, h http.Header, body []byte, id string) (o sluice.Outcome, finish string) {
	var s summary
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if status/100 == 2 {
		s = summarize(cfg.Endpoint, body)
		if s.valid && !s.failed() && (s.answers() && s.vectors >= cfg.inputs() || !cfg.whole && !s.hasPlace && !s.refuses(body)) {
			return sluice.Outcome{Usage: s.usage, HasUsage: s.hasUsage}, s.finish
		}
	}
	v := cfg.Provider.classify(status, h, body, errtext.NewEcho(cfg.sent), time.Now())
	if v.Kind == sluice.OK || status/100 == 2 && (!s.valid && v.basis != byCode || v.Message == "") { // no known error, and no response either
		v = Verdict{Kind: sluice.ServerError, Message: "response is not JSON: " + Redact(clip(string(body), 200)),
			Why: Reason{Rule: "successful status without JSON", Field: "body", Value: h.Get("Content-Type")}}
		if s.valid {
			v.Message = fmt.Sprintf("response from %s contains no answer: %s", cfg.Endpoint, Redact(clip(string(body), 200)))
			v.Why = Reason{Rule: "successful status without an answer", Field: "body", Value: quote(string(body))}
		}
		if errtext.Tagged(strings.TrimSpace(string(body[:min(len(body), firstRead)]))) {
			v.Kind, v.Message = sluice.Blocked, "response is an HTML page: "+Redact(clip(string(body), 200))
		}
	}
	if (status == http.StatusBadRequest || status == http.StatusUnprocessableEntity) && len(cfg.Added) > 0 {
		v.Unsupported = errtext.Read(body, nil).Unsupported(cfg.Added)
	}
	o = v.without(cfg.keys).Outcome(cfg.Provider, status, id)
	o.Usage, o.HasUsage = s.usage, s.hasUsage
	return o, ""
}

// inputs returns how many vectors a request for embeddings asks for; 0 if that is unknown, as of texts among tokens.
func (cfg ExchangeConfig) inputs() int {
	if !cfg.Endpoint.Embeds() || cfg.sent == nil {
		return 0
	}
	sent, err := cfg.sent()
	if err != nil {
		return 0
	}
	defer sent.Close()
	var request struct{ Input, Requests []json.RawMessage }
	isOther := func(input json.RawMessage) bool { return input[0] != '"' && input[0] != '[' }
	if json.NewDecoder(sent).Decode(&request) != nil || slices.ContainsFunc(request.Input, isOther) {
		return 0
	}
	return max(len(request.Input), len(request.Requests))
}

// Judge returns the Answer and the outcome of a response that Exchange did not receive, such as a result in a Batch API's file. The response
// must be complete and not a stream. id is the request ID. Judge removes keys and secrets in the request header sent from all texts.
func (cfg ExchangeConfig) Judge(sent http.Header, status int, id string, body []byte) (Answer, sluice.Outcome) {
	cfg.keys, cfg.whole = secretsOf(sent, cfg.Key), cfg.Endpoint != NoEndpoint
	a := Answer{Status: status, RequestID: Redact(id, cfg.keys...), Body: body}
	o, finish := cfg.judge(status, nil, body, a.RequestID)
	a.Body, a.FinishReason = cfg.strike(body, o.Kind), clip(Redact(finish, cfg.keys...), longFinish)
	return a, o
}

// collect takes an answer that is a stream.
func (cfg ExchangeConfig) collect(ctx context.Context, f *flight, resp *http.Response, a *Answer) sluice.Outcome {
	f.alive()
	m, err := collect(cfg.Endpoint, parts{resp.Body, f}, cfg.MaxBytes)
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
	case cfg.whole:
		o, _ = cfg.judge(resp.StatusCode, resp.Header, m.Body, a.RequestID)
	}
	o.Usage, o.HasUsage = u, ok
	return o
}

// fault classifies an error that came in the middle of a stream.
func (cfg ExchangeConfig) fault(resp *http.Response, data []byte, id string) sluice.Outcome {
	v := classifyEvent(cfg.Provider, data, time.Now())
	if v.Kind == sluice.OK { // in words that no rule knows
		v.Kind, v.Message = sluice.ServerError, "stream ended with an error: "+clip(string(data), 200)
	}
	return v.without(cfg.keys).Outcome(cfg.Provider, resp.StatusCode, id)
}

// broken is the outcome of an answer whose body did not come whole.
func (cfg ExchangeConfig) broken(ctx context.Context, f *flight, err error) sluice.Outcome {
	// Asking again for what is too long would bring the same, and cost the same.
	switch {
	case errors.Is(err, ErrAnswerTooLong), isAny[*http.MaxBytesError](err):
		return sluice.Outcome{Kind: sluice.BadRequest, Err: fmt.Errorf("%w: more than %d bytes", ErrAnswerTooLong, cfg.MaxBytes)}
	case errors.Is(err, errEventTooLong): // its limit is another
		return sluice.Outcome{Kind: sluice.BadRequest, Err: err}
	}
	o := f.failure(ctx, err)
	o.Unsent = false
	return o
}

// streams reports whether a good answer is a stream.
func (cfg ExchangeConfig) streams(h http.Header) bool {
	ct := h.Get("Content-Type")
	always := cfg.Endpoint.spec().stream != ""
	if always && strings.HasPrefix(strings.ToLower(ct), "application/json") {
		return true // an array, element by element
	}
	return sse.Is(h) || ct == "" && (cfg.Stream || always)
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
	_, err := buf.ReadFrom(io.LimitReader(r, min(maxPooled/2, most+1)))
	b := bytes.Clone(buf.Bytes())
	giveBack(buf)
	if err == nil && int64(len(b)) == maxPooled/2 && most >= maxPooled/2 {
		b, err = readOn(b, r, most+1)
	}
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

// readOn reads on behind the beginning of a long body, up to a length. The last step of its growth is from less than half of that length, so
// that old and new memory together are less than twice of it.
func readOn(b []byte, r io.Reader, most int64) ([]byte, error) {
	for int64(len(b)) < most {
		if len(b) == cap(b) {
			size := 2 * int64(cap(b))
			if size > most/2 {
				size = most
			}
			b = append(make([]byte, 0, size), b...)
		}
		n, err := r.Read(b[len(b):cap(b)])
		if b = b[:len(b)+n]; err != nil {
			if err == io.EOF {
				err = nil
			}
			return slices.Clip(b), err
		}
	}
	return b, nil
}
