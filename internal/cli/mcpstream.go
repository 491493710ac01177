package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sluice-llm/sluice/internal/work"
)

// lastAnswers is how long what was asked may still be answered after the input has ended.
const lastAnswers = 5 * time.Second

// answering is a transport whose input ends when all that was asked through it is answered: the SDK drops what is open at
// the end of its input, and with a pipe that is nearly everything. It waits for lastAnswers at most, since an agent that
// has gone wants no answer, and find may be spending. What is no message is refused, where the SDK would end.
type answering struct {
	in    *messages
	ended context.Context // its end is that of the input
	cut   context.Context // its end is that of the waiting, too
}

// Connect implements mcp.Transport.
func (t answering) Connect(ctx context.Context) (mcp.Connection, error) {
	lines := &mcp.IOTransport{Reader: io.NopCloser(t.in), Writer: stayOpen{t.in.out}, MaxLineLength: -1} // which messages bounds
	conn, err := lines.Connect(ctx)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(t.ended, func() { conn.Close() }) // it ends reading alone
	return &answeringConn{
		Connection: conn, in: t.in, cut: t.cut.Done(), open: map[jsonrpc.ID]bool{}, closed: make(chan struct{}),
	}, nil
}

// answeringConn is a connection of answering.
type answeringConn struct {
	mcp.Connection
	in     *messages
	cut    <-chan struct{}
	close  sync.Once
	closed chan struct{}

	mu   sync.Mutex
	open map[jsonrpc.ID]bool // what was asked and is not answered
	idle chan struct{}       // if somebody waits: closed when nothing is open
}

// Read implements mcp.Connection.
func (c *answeringConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	for err != nil && !errors.Is(err, io.EOF) && !isAny[*streamError](err) && ctx.Err() == nil { // a batch that is none
		if err = c.in.refuse(nil, jsonrpc.CodeInvalidRequest, "not a batch of messages of JSON-RPC 2.0"); err == nil {
			msg, err = c.Connection.Read(ctx)
		}
	}
	if err != nil {
		c.wait()
		return nil, err
	}
	if call, ok := msg.(*jsonrpc.Request); ok && call.IsCall() {
		c.mu.Lock()
		c.open[call.ID] = true
		c.mu.Unlock()
	}
	return msg, nil
}

// Write implements mcp.Connection.
func (c *answeringConn) Write(ctx context.Context, msg jsonrpc.Message) error {
	err := c.Connection.Write(ctx, msg)
	if answer, ok := msg.(*jsonrpc.Response); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.open, answer.ID)
		if len(c.open) == 0 && c.idle != nil {
			close(c.idle)
			c.idle = nil
		}
	}
	return err
}

// Close implements mcp.Connection.
func (c *answeringConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Connection.Close()
}

// wait returns when nothing is open, or nobody is there to wait for it.
func (c *answeringConn) wait() {
	c.mu.Lock()
	if len(c.open) == 0 {
		c.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	c.idle = idle
	c.mu.Unlock()
	late := time.NewTimer(lastAnswers)
	defer late.Stop()
	select {
	case <-idle:
	case <-late.C:
	case <-c.closed:
	case <-c.cut:
	}
}

// mostAsked is how long a message may be.
const mostAsked = 16 << 20

// messages are the lines of an input that are messages, or batches of them. Who sends another is told so.
type messages struct {
	lines *work.LineReader
	out   io.Writer
	buf   []byte
	rest  []byte // of buf, not read yet
}

func newMessages(in io.Reader, out io.Writer) *messages {
	return &messages{lines: work.NewLineReader(in, mostAsked), out: out}
}

// streamError is a failure to read or to write.
type streamError struct {
	stream string
	err    error
}

func (e *streamError) Error() string { return e.stream + ": " + e.err.Error() }

func (e *streamError) Unwrap() error { return e.err }

// Read reads of the next message. Its error is io.EOF or a *streamError.
func (m *messages) Read(p []byte) (int, error) {
	for len(m.rest) == 0 {
		if err := m.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, m.rest)
	m.rest = m.rest[n:]
	return n, nil
}

// next takes the next line, and refuses it if it is no message.
func (m *messages) next() error {
	line, err := m.lines.Next()
	text := bytes.TrimSpace(line.Bytes)
	switch {
	case err == io.EOF:
		return err
	case isAny[*work.TooLongError](err):
		return m.refuse(nil, jsonrpc.CodeInvalidRequest, err.Error())
	case err != nil:
		return &streamError{"standard input", err}
	case len(text) == 0:
		return nil
	case !json.Valid(text):
		return m.refuse(nil, jsonrpc.CodeParseError, fmt.Sprintf("line %d is not JSON", line.Number))
	case text[0] != '[': // whose members are read later
		if _, err := jsonrpc.DecodeMessage(text); err != nil {
			return m.refuse(idOf(text), jsonrpc.CodeInvalidRequest, fmt.Sprintf("line %d is no message of JSON-RPC 2.0", line.Number))
		}
	}
	m.buf = append(append(m.buf[:0], text...), '\n')
	m.rest = m.buf
	return nil
}

// idOf is the id of what is no message; nil where there is none.
func idOf(text []byte) json.RawMessage {
	var said struct {
		ID json.RawMessage `json:"id"`
	}
	if json.Unmarshal(text, &said) != nil || len(said.ID) == 0 || !strings.ContainsRune(`"-0123456789`, rune(said.ID[0])) {
		return nil
	}
	return said.ID
}

// refuse answers what is no message.
func (m *messages) refuse(id json.RawMessage, code int64, why string) error {
	text, err := json.Marshal(struct {
		Version string          `json:"jsonrpc"`
		ID      json.RawMessage `json:"id"`
		Error   *jsonrpc.Error  `json:"error"`
	}{"2.0", id, &jsonrpc.Error{Code: code, Message: why}})
	if err == nil {
		_, err = m.out.Write(append(text, '\n'))
	}
	if err != nil {
		return &streamError{"standard output", err}
	}
	return nil
}
