package provider

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
)

// flight is one try on the wire: from the permit to the last byte of the answer, under a time limit of its own.
type flight struct {
	cancel  context.CancelCauseFunc
	cause   func() error // why the try's context ended
	after   func(func()) (stop func() bool)
	timer   *time.Timer
	due     atomic.Int64 // how long after start the timer is to fire
	allowed allowance
	begun   atomic.Bool    // the answer
	stalls  atomic.Bool    // it waits for more of the request to be taken
	start   time.Time      // of the try, and
	left    atomic.Int64   // how long after it the request left
	permit  *sluice.Permit // may be nil
	keys    []string
	socket  bool // the base is a *http.Transport, which obeys contexts
	sent    atomic.Bool
	traced  atomic.Bool // the base tells when it looks for a connection,
	wired   atomic.Bool // and it has one
}

// allowance is how long a try may take.
type allowance struct {
	first  time.Duration        // from the instant the request leaves to the answer's first byte
	follow func() time.Duration // the present value of first, which may change meanwhile; nil: first stays
	idle   time.Duration        // from one part of the answer to the next
	total  time.Duration        // from the instant the request leaves to the answer's end; 0 is not bounded

	// sending says that the request is long: idle is also from one part of it to the next, and first is from its end on.
	sending bool
}

// launch sends req and returns the answer's head. If there is none, it returns the outcome of the try. The caller
// calls land when it is done with the body.
func launch(ctx context.Context, base http.RoundTripper, permit *sluice.Permit, req *http.Request, allowed allowance, keys []string) (*http.Response, *flight, sluice.Outcome) {
	f := &flight{permit: permit, allowed: allowed, keys: keys, start: time.Now()}
	tryCtx, cancel := context.WithCancelCause(ctx)
	f.cancel = cancel
	f.cause = func() error { return context.Cause(tryCtx) }
	f.after = func(do func()) func() bool { return context.AfterFunc(tryCtx, do) }
	f.due.Store(int64(f.within(f.first())))
	f.timer = time.AfterFunc(time.Duration(f.due.Load()), f.expire)
	if _, f.socket = base.(*http.Transport); !f.socket {
		// A base that may not tell when the request leaves: it leaves now.
		f.leave()
	}
	if allowed.sending {
		req = f.sending(req)
	}
	traceCtx := httptrace.WithClientTrace(tryCtx, f.trace())
	resp, err := f.roundTrip(base, req.WithContext(traceCtx))
	if err != nil {
		o := f.failure(ctx, err)
		f.land()
		return nil, f, o
	}
	f.leave() // a base that answers has sent
	return resp, f, sluice.Outcome{}
}

// trace learns whether the request ever left: when no connection came of it, it did not.
func (f *flight) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) { f.traced.Store(true); f.wired.Store(false) },
		GotConn: func(httptrace.GotConnInfo) { f.wired.Store(true); f.leave() },
	}
}

// leave marks the instant at which the request leaves, and starts the time limit from there.
func (f *flight) leave() {
	if f.sent.Swap(true) {
		return
	}
	f.left.Store(int64(time.Since(f.start)))
	f.arm(f.within(f.first()))
	if f.permit != nil {
		f.permit.Sent()
	}
}

// alive starts the time limit anew: a part of the answer came.
func (f *flight) alive() {
	f.begun.Store(true)
	f.arm(f.within(f.allowed.idle))
}

// sending returns req with a body whose every part starts the time limit anew.
func (f *flight) sending(req *http.Request) *http.Request {
	if req.Body == nil || req.Body == http.NoBody {
		return req
	}
	open, r := req.GetBody, *req
	r.Body = sentParts{req.Body, f}
	if open != nil {
		r.GetBody = func() (io.ReadCloser, error) {
			body, err := open()
			return sentParts{body, f}, err
		}
	}
	return &r
}

// sentParts is a request's body whose every part starts the time limit anew.
type sentParts struct {
	io.ReadCloser
	f *flight
}

func (p sentParts) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	switch {
	case p.f.begun.Load(): // an answer that came early has a time limit of its own
	case err != nil:
		p.f.stalls.Store(false)
		p.f.arm(p.f.within(p.f.first()))
	case n > 0:
		p.f.stalls.Store(true)
		p.f.arm(p.f.within(p.f.allowed.idle))
	}
	return n, err
}

// first returns the time until expire looks again whether the answer is late.
func (f *flight) first() time.Duration {
	if f.allowed.follow != nil {
		return leastDeadline
	}
	return f.allowed.first
}

// arm has the timer fire after d.
func (f *flight) arm(d time.Duration) {
	f.due.Store(int64(time.Since(f.start) + d))
	f.timer.Reset(d)
}

// A timer that fires lateTimer after its instant shows that this process stood still. Parts of a response that arrived meanwhile are read
// within readArrived. Without such a part, the request may only leave now: its time limits start anew.
const (
	lateTimer   = 200 * time.Millisecond
	readArrived = time.Second
)

// expire ends the try, unless its time limit has changed and is not over.
func (f *flight) expire() {
	due, now := f.due.Load(), time.Since(f.start)
	switch left := time.Duration(due) - now; {
	case left > 0: // it was armed again just now
		f.timer.Reset(left)
		return
	case left < -lateTimer:
		again := readArrived
		if !f.begun.Load() {
			f.left.Store(int64(now))
			again = f.within(f.first())
		}
		if f.due.CompareAndSwap(due, int64(now+again)) {
			f.timer.Reset(again)
		}
		return
	}
	if f.allowed.follow != nil && !f.begun.Load() {
		first := f.allowed.follow()
		if left := time.Duration(f.left.Load()) + first - time.Since(f.start); left > 0 && (f.allowed.total <= 0 || f.remains() > 0) {
			f.arm(f.within(min(left, leastDeadline)))
			return
		}
		f.cancel(&LateError{FirstByteDeadline, first})
	}
	f.cancel(f.tooLate())
}

// within is so long, or what is left of the whole try's time.
func (f *flight) within(d time.Duration) time.Duration {
	if f.allowed.total <= 0 {
		return d
	}
	return min(d, f.remains())
}

func (f *flight) remains() time.Duration {
	return time.Duration(f.left.Load()) + f.allowed.total - time.Since(f.start)
}

// tooLate says which time limit is over.
func (f *flight) tooLate() error {
	switch {
	case f.allowed.total > 0 && f.remains() <= 0:
		return &LateError{TotalDeadline, f.allowed.total}
	case !f.begun.Load() && f.stalls.Load():
		return &LateError{SendDeadline, f.allowed.idle}
	case f.begun.Load():
		return &LateError{IdleDeadline, f.allowed.idle}
	}
	return &LateError{FirstByteDeadline, f.allowed.first}
}

// parts is a body whose every part starts the time limit anew.
type parts struct {
	r io.Reader
	f *flight
}

func (p parts) Read(b []byte) (int, error) {
	n, err := p.r.Read(b)
	if n > 0 {
		p.f.alive()
	}
	return n, err
}

// land ends the try: what of it still runs is cancelled.
func (f *flight) land() {
	f.timer.Stop()
	f.cancel(nil)
}

// drainTime is how long the end of a connection's answer is waited for after the end of the message.
const drainTime = 50 * time.Millisecond

// drain reads what little follows a message that has come to its end, so that the connection can be used again. Only a
// base that surely obeys the timer is worth it.
func (f *flight) drain(r io.Reader) {
	if !f.socket {
		return
	}
	f.arm(drainTime)
	_, _ = io.CopyN(io.Discard, r, firstRead) // whatever it says, the message is whole
}

// roundTrip turns a panic of the base into an error, so that the permit finds its way back.
func (f *flight) roundTrip(base http.RoundTripper, req *http.Request) (resp *http.Response, err error) {
	defer func() {
		if v := recover(); v != nil {
			resp, err = nil, &sluice.PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	resp, err = base.RoundTrip(req)
	if err == nil && resp == nil {
		err = errors.New("round tripper returned neither a response nor an error")
	}
	if err == nil && resp.StatusCode < 200 { // after a 101 a read would obey neither the context nor the time limit
		resp.Body.Close()
		resp, err = nil, fmt.Errorf("server returned the unexpected status %s", resp.Status)
	}
	return resp, err
}

// failure is the outcome of a try that broke off with err. ctx is the caller's.
func (f *flight) failure(ctx context.Context, err error) sluice.Outcome {
	netErr, ofNet := errors.AsType[net.Error](err)
	unsent := f.unsent(err)
	switch {
	case isAny[*sluice.PanicError](err):
		return sluice.Outcome{Kind: sluice.Internal, Err: err}
	case ctx.Err() != nil:
		return sluice.Outcome{Kind: sluice.Network, Err: ctx.Err(), Unsent: unsent}
	case f.late() != nil:
		return sluice.Outcome{Kind: sluice.Timeout, Err: f.late(), Unsent: unsent}
	case !unsent && ofNet && netErr.Timeout():
		return sluice.Outcome{Kind: sluice.Timeout, Err: f.redacted(err)}
	}
	return sluice.Outcome{Kind: sluice.Network, Err: f.redacted(err), Unsent: unsent}
}

// late returns the error of a try that ran out of time, or nil.
func (f *flight) late() error {
	if late, ok := errors.AsType[*LateError](f.cause()); ok {
		return late
	}
	return nil
}

// unsent reports whether the request surely never left: no connection was found for it, or the error is one of making
// a connection. A base that does not trace its connections is judged by the error alone.
func (f *flight) unsent(err error) bool {
	if f.socket || f.traced.Load() {
		return !f.wired.Load()
	}
	op, ok := errors.AsType[*net.OpError](err)
	return ok && (op.Op == "dial" || op.Op == "proxyconnect") ||
		isAny[*net.DNSError](err) || isAny[*tls.CertificateVerificationError](err) || isAny[tls.RecordHeaderError](err) ||
		isAny[x509.UnknownAuthorityError](err) || isAny[x509.HostnameError](err)
}

func isAny[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// redacted strips what may hold a key from the text of an error. The error it was is still found by errors.Is.
func (f *flight) redacted(err error) error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // its text begins with the address
	}
	return &networkError{text: Redact(err.Error(), f.keys...), err: err}
}

// networkError is a network's error whose text holds no key.
type networkError struct {
	text string
	err  error
}

func (e *networkError) Error() string { return e.text }
func (e *networkError) Unwrap() error { return e.err }

// Deadline is a time limit of an attempt.
type Deadline uint8

// These are the time limits of an attempt.
const (
	FirstByteDeadline Deadline = iota // time from sending the request to the first byte of the response
	IdleDeadline                      // time between two parts of the response
	TotalDeadline                     // time until the end of the response, over all attempts of a call
	SendDeadline                      // time between two parts of the request
)

// LateError reports that an attempt or a call exceeded a time limit.
type LateError struct {
	Deadline Deadline      // exceeded time limit
	After    time.Duration // duration of the exceeded time limit
}

// Error describes the exceeded time limit and its value.
func (e *LateError) Error() string {
	switch e.Deadline {
	case IdleDeadline:
		return fmt.Sprintf("no further part of the response within %v", e.After)
	case SendDeadline:
		return fmt.Sprintf("server accepted no further part of the request within %v", e.After)
	case TotalDeadline:
		return fmt.Sprintf("no complete response within %v", e.After)
	}
	return fmt.Sprintf("no response within %v", e.After)
}

// Timeout returns true, because a LateError is a timeout.
func (e *LateError) Timeout() bool { return true }

// Temporary returns true, because another attempt may be fast enough.
func (e *LateError) Temporary() bool { return true }
