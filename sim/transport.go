package sim

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice/internal/simbatch"
	"github.com/sluice-llm/sluice/internal/wake"
)

// Transport returns an http.RoundTripper that reaches the Server without sockets. RoundTrip waits for the response in the caller's
// goroutine. A stream uses an additional goroutine, which stops with the body. The RoundTripper works in a testing/synctest bubble.
// For Faults.Reset, RoundTrip returns an error. For Faults.Cut, the body ends with io.ErrUnexpectedEOF. For Faults.Hang, RoundTrip
// blocks until the request's context ends.
func (s *Server) Transport() http.RoundTripper { return transport{s} }

type transport struct{ server *Server }

// bodies are buffers for requests.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	w := &memory{header: make(http.Header, 16)}
	if simbatch.Serves(r.URL.Path) {
		if r.Body != nil {
			defer r.Body.Close()
		}
		w.run(func() { t.server.batches.ServeHTTP(w, r) })
		return w.response(r)
	}
	if servesAccount(r.URL.Path) {
		w.run(func() { t.server.account(w, r) })
		return w.response(r)
	}
	buffer := bodies.Get().(*bytes.Buffer)
	buffer.Reset()
	defer bodies.Put(buffer)
	if r.Body != nil {
		_, err := buffer.ReadFrom(io.LimitReader(r.Body, maxBody+1))
		r.Body.Close()
		if err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	c, no := t.server.receive(r.Method, r.URL, r.Header, buffer.Bytes())
	if no == nil && c.stream {
		return t.stream(r, c, w)
	}
	w.run(func() { t.server.serve(ctx, c, no, w) })
	return w.response(r)
}

// stream answers as soon as the response has begun.
func (t transport) stream(r *http.Request, c *call, w *memory) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	w.pipe = &pipe{ctx: ctx, cancel: cancel, begun: make(chan struct{}), done: make(chan struct{}), ready: make(chan struct{}, 1)}
	go func() {
		defer close(w.pipe.done)
		switch aborted := w.run(func() { t.server.serve(ctx, c, nil, w) }); {
		case aborted:
			w.pipe.stop(io.ErrUnexpectedEOF)
		case ctx.Err() != nil:
			w.pipe.stop(context.Cause(ctx))
		default:
			w.pipe.stop(io.EOF)
		}
	}()
	select {
	case <-w.pipe.begun:
	case <-w.pipe.done:
		defer cancel()
	}
	return w.response(r)
}

// memory is the http.ResponseWriter of a caller in the same process. A body that does not stream comes in one piece.
type memory struct {
	header  http.Header
	status  int // 0: there was no response
	body    []byte
	pipe    *pipe // nil: the call does not stream
	streams bool  // the stream has begun
}

func (m *memory) Header() http.Header { return m.header }

func (m *memory) WriteHeader(status int) { m.status = status }

func (m *memory) Write(b []byte) (int, error) {
	if m.status == 0 {
		m.status = http.StatusOK
	}
	if m.streams || m.pipe != nil && m.header["Content-Length"] == nil { // once it streams, the header is the client's
		m.pipe.write(b)
	} else {
		m.body = b
	}
	return len(b), nil
}

// Flush begins a stream.
func (m *memory) Flush() {
	if m.pipe != nil && !m.streams {
		m.streams = true
		close(m.pipe.begun)
	}
}

// run calls a handler, and reports whether it broke the connection.
func (m *memory) run(handle func()) (aborted bool) {
	defer func() {
		if e := recover(); e == http.ErrAbortHandler {
			aborted = true
		} else if e != nil {
			panic(e)
		}
	}()
	handle()
	return false
}

// response is what the caller gets.
func (m *memory) response(r *http.Request) (*http.Response, error) {
	if m.status == 0 {
		if r.Context().Err() != nil {
			return nil, context.Cause(r.Context())
		}
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	m.header["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	response := &http.Response{
		Status:        strconv.Itoa(m.status) + " " + http.StatusText(m.status),
		StatusCode:    m.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        m.header,
		ContentLength: -1,
		Request:       r,
	}
	if m.streams {
		response.TransferEncoding = []string{"chunked"}
		response.Body = m.pipe
		return response, nil
	}
	length, err := strconv.Atoi(m.header.Get("Content-Length"))
	if err == nil {
		response.ContentLength = int64(length)
	}
	response.Body = &memoryBody{rest: m.body, torn: len(m.body) < length}
	return response, nil
}

// memoryBody is a body that is there already.
type memoryBody struct {
	rest []byte
	torn bool
}

func (b *memoryBody) Read(p []byte) (int, error) {
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if len(b.rest) > 0 {
		return n, nil
	}
	if b.torn {
		return n, io.ErrUnexpectedEOF
	}
	return n, io.EOF
}

func (b *memoryBody) Close() error {
	b.rest, b.torn = nil, false
	return nil
}

// pipe is a body that is being written. It is not bounded, as the buffers of a kernel are for a small body.
type pipe struct {
	ctx    context.Context
	cancel context.CancelFunc
	begun  chan struct{} // closed with the header
	done   chan struct{} // closed when the call is over
	ready  chan struct{} // something to read, or the end

	mu  sync.Mutex
	buf []byte
	err error
}

func (p *pipe) write(part []byte) {
	p.mu.Lock()
	p.buf = append(p.buf, part...)
	p.mu.Unlock()
	wake.Up(p.ready)
}

// stop says how reading ends; the first word counts.
func (p *pipe) stop(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.mu.Unlock()
	wake.Up(p.ready)
}

// Read implements io.Reader, for one reader at a time.
func (p *pipe) Read(b []byte) (int, error) {
	for {
		p.mu.Lock()
		if len(p.buf) > 0 {
			n := copy(b, p.buf)
			p.buf = p.buf[n:]
			p.mu.Unlock()
			return n, nil
		}
		err := p.err
		p.mu.Unlock()
		if err != nil {
			return 0, err
		}
		select {
		case <-p.ready:
		case <-p.ctx.Done():
			return 0, context.Cause(p.ctx)
		}
	}
}

// Close disconnects: the call is abandoned if it is not over.
func (p *pipe) Close() error {
	p.cancel()
	<-p.done
	return nil
}
