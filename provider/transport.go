package provider

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/coding"
)

// ErrRequestTooLong is returned by a [Transport] for a request body that exceeds Config.MaxBytes.
var ErrRequestTooLong = errors.New("request body is too large")

// Doer makes the attempts of a call, each with a permit. Examples are a *sluice.Scheduler and a member of a pool. Unless the whole call
// ends, the context of an attempt must not end before its permit is released.
type Doer interface {
	Do(ctx context.Context, c sluice.Call, try func(context.Context, *sluice.Permit) sluice.Outcome) (sluice.Tally, error)
}

// Config configures a [Transport].
type Config struct {
	// Scheduler admits calls and retries them. Required.
	Scheduler Doer

	// Provider determines how limits and errors in responses are read (default: an OpenAI-compatible server).
	Provider Provider

	// Base is the transport that sends the requests (default: NewBase(Slots)).
	Base http.RoundTripper

	// Slots is the number of unused connections that the default Base keeps for reuse (default 64). Slots does not limit the requests in
	// flight.
	Slots int

	// Timeout limits, per attempt, the time from sending the request to the first byte of the body, and the time between two parts of the
	// body. The defaults are the deadline of [Deadlines] and 10 min.
	Timeout time.Duration

	// MaxBytes is the maximum size of a request body, which is kept in memory for retries (default 64 MiB).
	MaxBytes int64

	// Key is removed from all texts in errors and events. The Transport does not send Key, because the client sends its own key.
	Key string

	// Call changes the sluice.Call of a request, for example its Tenant and Priority. The given sluice.Call already has its Lane and Cost.
	// If Call is nil, the call stays unchanged.
	Call func(*http.Request, sluice.Call) sluice.Call
}

// Transport is an http.RoundTripper that keeps the requests of a client within the limits of an account. Use it as the Transport of the HTTP
// client of an official SDK. A Transport is safe for concurrent use.
//
// Each request waits for a permit, and is retried by the Scheduler's rules. A request is not retried after a part of its response was
// returned. If no retry can succeed, the last response is returned with the header x-should-retry: false, which official SDKs obey. Requests
// to unknown endpoints are sent at once, without a permit. A Transport does not follow redirects.
type Transport struct {
	cfg       Config
	deadlines Deadlines
}

// NewTransport returns a Transport. If a field of cfg is invalid, the error names the field.
func NewTransport(cfg Config) (*Transport, error) {
	if cfg.Scheduler == nil {
		return nil, errors.New("provider: Config.Scheduler is nil")
	}
	if cfg.Timeout < 0 || cfg.MaxBytes < 0 || cfg.Slots < 0 {
		return nil, errors.New("provider: Config.Timeout, Config.MaxBytes and Config.Slots must not be negative")
	}
	cfg.MaxBytes = cmp.Or(cfg.MaxBytes, defaultBytes)
	if cfg.Base == nil {
		cfg.Base = NewBase(cmp.Or(cfg.Slots, 64))
	}
	return &Transport{cfg: cfg}, nil
}

// Client returns an HTTP client that uses t. The client does not follow redirects, because Go would send x-api-key to the new host.
func (t *Transport) Client() *http.Client {
	return &http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// CloseIdleConnections closes the unused connections of Config.Base.
func (t *Transport) CloseIdleConnections() {
	if c, ok := t.cfg.Base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// RoundTrip sends req through the Scheduler. RoundTrip fails with the error of the request's context, with [ErrRequestTooLong], or, if the
// last attempt had no response, with a *sluice.CallError.
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	e, ok := endpointOf(req)
	if !ok {
		resp, err := t.cfg.Base.RoundTrip(req)
		return stay(resp), err
	}
	body, err := t.buffer(req)
	if err != nil {
		return nil, err
	}
	// A body that is not JSON is the provider's to refuse.
	est, _ := Estimate(e, t.content(req.Header, body))
	lane := modelIn(req.URL.Path)
	if !e.ModelInPath() { // else the body may spell it otherwise
		lane = cmp.Or(est.Model, lane)
	}
	call := sluice.Call{Lane: lane, Cost: est.Cost}
	if t.cfg.Call != nil {
		call = t.cfg.Call(req, call)
	}
	ctx := req.Context()
	a := &attempts{
		cfg: ExchangeConfig{
			Provider: t.cfg.Provider, Endpoint: e, Stream: est.Stream, MaxBytes: defaultBytes,
			Key: t.cfg.Key, Cost: call.Cost, keys: secretsOf(req.Header, t.cfg.Key),
		},
		base: t.cfg.Base, allowed: allowance{first: t.cfg.Timeout, idle: cmp.Or(t.cfg.Timeout, defaultTimeout)},
		began: func(took time.Duration) { t.deadlines.Observe(call.Lane, took) },
	}
	if t.cfg.Timeout == 0 {
		a.allowed.follow = func() time.Duration { return t.deadlines.Of(call.Lane) }
	}
	plain := plainly(req)
	a.request = func(ctx context.Context) *http.Request { return withBody(ctx, plain, body) }
	_, err = t.cfg.Scheduler.Do(ctx, call, a.try)
	if a.open != nil {
		a.open.watch() // not before Do knows that the permit is the body's
	}
	resp, err := a.result(ctx, req, err)
	return stay(resp), err
}

// stay takes the address out of a redirect. An http.Client would follow it, and take the key along to another host: Go
// drops Authorization there, but not x-api-key.
func stay(resp *http.Response) *http.Response {
	if resp != nil && resp.StatusCode/100 == 3 && resp.Header.Get("Location") != "" {
		resp.Header = maps.Clone(resp.Header)
		resp.Header.Del("Location")
	}
	return resp
}

// buffer reads the request's body, and closes it as a RoundTripper must.
func (t *Transport) buffer(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer req.Body.Close()
	body, err := readAll(req.Body, req.ContentLength, t.cfg.MaxBytes)
	if errors.Is(err, ErrAnswerTooLong) {
		return nil, fmt.Errorf("%w: more than %d bytes", ErrRequestTooLong, t.cfg.MaxBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("request body: %w", err)
	}
	return body, nil
}

// content returns what a body holds, as far as it can be decompressed within MaxBytes.
func (t *Transport) content(h http.Header, body []byte) []byte {
	if codings := coding.Of(h); len(codings) > 0 && coding.Known(codings) {
		body, _ = io.ReadAll(coding.Reader(bytes.NewReader(body), codings, t.cfg.MaxBytes))
	}
	return body
}

// plainly returns req without its Accept-Encoding: a packed answer would hide its usage. Clients never need one.
func plainly(req *http.Request) *http.Request {
	if _, packed := req.Header["Accept-Encoding"]; !packed {
		return req
	}
	r := *req
	r.Header = maps.Clone(req.Header)
	delete(r.Header, "Accept-Encoding")
	return &r
}

// attempts are the tries of one call. Do makes them one after the other.
type attempts struct {
	cfg     ExchangeConfig
	base    http.RoundTripper
	allowed allowance
	request func(context.Context) *http.Request // a new one for each try
	resp    *http.Response                      // the last try's answer, if it had any
	open    *answerBody                         // its body, if that holds the permit
	began   func(time.Duration)                 // is told how long the head of a good answer took; may be nil
	raw     bool                                // good answers are handed out unread, whatever they are
	unpacks bool                                // compressed answers are handed out decompressed
}

const (
	// spool is how much of an answer that is not a stream is read before any of it is handed out. Nearly all answers
	// fit: they can be judged whole, tried again when they are cut, and give their slot back however slowly the
	// client reads.
	spool = 1 << 20

	// firstRead is how much of a stream is read ahead: overload often shows in the first event.
	firstRead = 4 << 10
)

// try makes one try.
func (a *attempts) try(ctx context.Context, p *sluice.Permit) sluice.Outcome {
	a.resp = nil
	req := a.request(ctx)
	a.cfg.sent = req.GetBody
	resp, f, o := launch(ctx, a.base, p, req, a.allowed, a.cfg.keys)
	if resp == nil {
		return o
	}
	if a.began != nil && resp.StatusCode/100 == 2 {
		a.began(time.Since(f.start) - time.Duration(f.left.Load()))
	}
	if a.unpacks {
		decompress(req.Method, resp, math.MaxInt64)
	}
	readings := a.cfg.Provider.Readings(resp.Header, time.Now())
	b := &answerBody{cfg: a.cfg, flight: f, permit: p, resp: resp, rc: resp.Body, readings: readings, ctx: ctx}
	streamed := resp.StatusCode/100 == 2 && a.cfg.streams(resp.Header)
	switch {
	case a.raw && resp.StatusCode/100 == 2, streamed && packed(resp.Header):
		a.hand(resp, b, resp.ContentLength)
		o.Open = true
	case streamed:
		o = a.stream(b)
	default:
		o = a.whole(b)
	}
	o.Readings = readings
	if o.Open {
		a.open = b
		return o
	}
	resp.Body.Close()
	f.land()
	return o
}

// whole takes an answer that is not a stream. One that does not fit the spool is handed out open.
func (a *attempts) whole(b *answerBody) sluice.Outcome {
	resp := b.resp
	buf := buffers.Get().(*bytes.Buffer)
	buf.Reset()
	if n := resp.ContentLength; n > 0 && n <= spool {
		buf.Grow(int(n) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(io.LimitReader(parts{resp.Body, b.flight}, spool))
	prefix := buf.Bytes()
	long := len(prefix) == spool
	length := int64(len(prefix))
	if resp.Request != nil && resp.Request.Method == http.MethodHead {
		length = resp.ContentLength // of what is not sent
	}
	if err == nil && !long && resp.ContentLength > length {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && (b.ctx.Err() != nil || !stands(resp.StatusCode)) {
		giveBack(buf)
		return a.cfg.broken(b.ctx, b.flight, err)
	}
	if long && resp.StatusCode/100 == 2 {
		b.prefix = prefix
		b.tail.Write(prefix)
		a.hand(resp, b, resp.ContentLength)
		return sluice.Outcome{Open: true}
	}
	a.hand(resp, keep(buf), length)
	if long {
		resp.Header.Del("Content-Length") // the rest of so long a refusal is of no use
	}
	if packed(resp.Header) {
		prefix = nil
		if resp.StatusCode/100 == 2 {
			return sluice.Outcome{}
		}
	}
	o, _ := a.cfg.judge(resp.StatusCode, resp.Header, prefix, requestID(resp.Header))
	return o
}

// stream takes a stream. One that fails before anything was handed out can be tried again.
func (a *attempts) stream(b *answerBody) sluice.Outcome {
	buf := make([]byte, firstRead)
	n, err := 0, error(nil)
	for n == 0 && err == nil {
		n, err = parts{b.resp.Body, b.flight}.Read(buf)
	}
	b.prefix = buf[:n]
	m := newMeter(a.cfg.Endpoint)
	b.meter = m
	m.feed(b.prefix)
	switch {
	case m.fault != nil:
		a.hand(b.resp, io.NopCloser(bytes.NewReader(b.prefix)), -1)
		return b.ended(nil)
	case err == io.EOF:
		m.end()
		o := b.ended(nil)
		if o.Kind == sluice.OK {
			a.hand(b.resp, io.NopCloser(bytes.NewReader(b.prefix)), -1)
		}
		return o
	case err != nil:
		return a.cfg.broken(b.ctx, b.flight, err)
	}
	a.hand(b.resp, b, -1)
	return sluice.Outcome{Open: true}
}

// hand makes resp what the caller gets, with another body.
func (a *attempts) hand(resp *http.Response, body io.ReadCloser, length int64) {
	out := *resp
	out.Body, out.ContentLength = body, length
	a.resp = &out
}

// result is what the caller of RoundTrip gets once Do is through.
func (a *attempts) result(ctx context.Context, req *http.Request, err error) (*http.Response, error) {
	resp := a.resp
	if err == nil && resp != nil {
		resp.Request = req
		return resp, nil
	}
	if a.open != nil {
		a.open.Close()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if resp == nil || a.open != nil {
		return nil, cmp.Or(err, errNoAnswer)
	}
	resp.Request = req
	resp.Header = maps.Clone(resp.Header)
	if resp.Header == nil {
		resp.Header = http.Header{}
	}
	// https://github.com/openai/openai-python and https://github.com/anthropics/anthropic-sdk-python look at this
	// header before the status (_should_retry in _base_client.py).
	resp.Header.Set("X-Should-Retry", "false")
	return resp, nil
}

var errNoAnswer = errors.New("call ended without a response")

// decompress replaces the body of a response that a server compressed unasked. Reading fails with an *http.MaxBytesError above most bytes.
// A body in an unknown coding stays as it is, and so does JSON or an event: proxies that decompress may leave the header.
func decompress(method string, resp *http.Response, most int64) {
	codings := coding.Of(resp.Header)
	if len(codings) == 0 || !coding.Known(codings) || !hasBody(method, resp) {
		return
	}
	resp.Header = maps.Clone(resp.Header)
	delete(resp.Header, "Content-Encoding")
	delete(resp.Header, "Content-Length")
	resp.ContentLength = -1
	buffered := bufio.NewReader(resp.Body)
	body := io.Reader(buffered)
	if first, _ := buffered.Peek(1); len(first) == 0 || codings[len(codings)-1] == "deflate" || !strings.Contains("{[de:", string(first)) {
		body = coding.Reader(buffered, codings, most)
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{body, resp.Body}
}

// packed reports whether an answer is compressed in spite of us.
func packed(h http.Header) bool { return len(coding.Of(h)) > 0 }

// hasBody reports whether an answer to a request of that method may have a body.
func hasBody(method string, resp *http.Response) bool {
	return method != http.MethodHead && resp.ContentLength != 0 && resp.StatusCode != http.StatusNoContent && resp.StatusCode != http.StatusNotModified
}

// NewBase returns a transport that keeps up to idle (at least one) unused connections for reuse. The transport detects dead connections, and
// limits neither open connections nor response times. NewBase reads the variables HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, also in
// lower case. If the variable for a URL's scheme is not set, ALL_PROXY applies.
func NewBase(idle int) *http.Transport {
	return &http.Transport{
		Proxy: proxies(),
		DialContext: (&net.Dialer{
			Timeout: 10 * time.Second,
			// A dead connection under a long answer is found within about a minute.
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3},
		}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second,
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
		MaxIdleConns:        max(idle, 1),
		MaxIdleConnsPerHost: max(idle, 1),
		IdleConnTimeout:     90 * time.Second,
		// What came of a stream meanwhile is read, and passed on, at once: 4 KiB, the usual, are a few events.
		ReadBufferSize: 16 << 10,
		// Answers are read as they pass, and streams must not wait for a packer's block.
		DisableCompression: true,
		// Nobody has need of more, and an answer's head is kept in memory.
		MaxResponseHeaderBytes: 256 << 10,
	}
}
