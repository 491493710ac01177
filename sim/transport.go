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
)

// Transport returns a way to the server that needs no sockets: RoundTrip
// judges and answers in the caller's goroutine, waiting as the server would,
// and only a stream has a goroutine of its own, which ends with its body. It
// works in a testing/synctest bubble. A reset is an error, a cut body ends in
// io.ErrUnexpectedEOF, and a call that hangs does so until its context ends.
func (s *Server) Transport() http.RoundTripper { return transport{s} }

type transport struct{ server *Server }

// bodies are buffers for requests.
var bodies = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (t transport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx := r.Context()
	if api := batchAPIOf(r.URL.Path); api != nil {
		if r.Body != nil {
			defer r.Body.Close()
		}
		w := &memory{header: make(http.Header, 16)}
		t.server.serveBatch(api, r, w)
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
	c, no := t.server.receive(r.Method, target(r.URL), r.Header, buffer.Bytes())
	if no == nil && c.stream {
		return t.stream(r, c)
	}
	w := &memory{header: make(http.Header, 16)}
	t.server.serve(ctx, c, no, w)
	return w.response(r)
}

// stream answers as soon as the answer has begun.
func (t transport) stream(r *http.Request, c *call) (*http.Response, error) {
	ctx, cancel := context.WithCancel(r.Context())
	w := &memory{header: make(http.Header, 16), pipe: newPipe(ctx, cancel)}
	go func() {
		defer close(w.pipe.done)
		t.server.serve(ctx, c, nil, w)
		w.pipe.stop(context.Cause(ctx))
	}()
	select {
	case <-w.pipe.begun:
	case <-w.pipe.done:
		defer cancel()
	}
	return w.response(r)
}

// memory is the wire of a caller in the same process.
type memory struct {
	header http.Header
	status int // 0: nothing was answered
	body   []byte
	torn   bool // body ends too early
	silent bool // and no length tells
	length int
	broken bool  // reset
	pipe   *pipe // nil: the call does not stream
}

func (m *memory) Header() http.Header { return m.header }

func (m *memory) whole(status int, body []byte) {
	m.status, m.body, m.length = status, body, len(body)
}

func (m *memory) begin() {
	m.status, m.length = http.StatusOK, -1
	close(m.pipe.begun)
}

func (m *memory) event(part []byte) { m.pipe.write(part) }

func (m *memory) end() { m.pipe.stop(io.EOF) }

func (m *memory) reset() { m.broken = true }

func (m *memory) tear(status int, body []byte) {
	m.whole(status, body)
	m.body, m.torn = body[:len(body)/2], true
}

func (m *memory) short(status int, body []byte) {
	m.whole(status, body[:len(body)/2])
	m.silent = true
}

func (m *memory) tearStream() { m.pipe.stop(io.ErrUnexpectedEOF) }

// response is what the caller gets.
func (m *memory) response(r *http.Request) (*http.Response, error) {
	if m.broken {
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	}
	if m.status == 0 {
		return nil, context.Cause(r.Context())
	}
	m.header["Date"] = []string{time.Now().UTC().Format(http.TimeFormat)}
	response := &http.Response{
		Status:        strconv.Itoa(m.status) + " " + http.StatusText(m.status),
		StatusCode:    m.status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        m.header,
		ContentLength: int64(m.length),
		Request:       r,
	}
	if m.length < 0 {
		response.TransferEncoding = []string{"chunked"}
		response.Body = m.pipe
		return response, nil
	}
	if m.silent {
		response.ContentLength = -1
	} else {
		m.header["Content-Length"] = []string{strconv.Itoa(m.length)}
	}
	response.Body = &memoryBody{rest: m.body, torn: m.torn}
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

// pipe is a body that is being written. It holds whatever was written, as a
// kernel holds what a slow client has not read.
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

func newPipe(ctx context.Context, cancel context.CancelFunc) *pipe {
	return &pipe{
		ctx:    ctx,
		cancel: cancel,
		begun:  make(chan struct{}),
		done:   make(chan struct{}),
		ready:  make(chan struct{}, 1),
	}
}

func (p *pipe) write(part []byte) {
	p.mu.Lock()
	p.buf = append(p.buf, part...)
	p.mu.Unlock()
	p.wake()
}

// stop says how reading ends; the first word counts.
func (p *pipe) stop(err error) {
	p.mu.Lock()
	if p.err == nil {
		p.err = err
	}
	p.mu.Unlock()
	p.wake()
}

func (p *pipe) wake() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
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
