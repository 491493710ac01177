package cli

import (
	"context"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// lastAnswers is how long what was asked may still be answered after the input has ended.
const lastAnswers = 5 * time.Second

// answering is a transport whose input ends when all that was asked through it is answered: the SDK drops what is open at
// the end of its input, and with a pipe that is nearly everything. It waits for lastAnswers at most, since an agent that
// has gone wants no answer, and find may be spending.
type answering struct{ mcp.Transport }

// Connect implements mcp.Transport.
func (t answering) Connect(ctx context.Context) (mcp.Connection, error) {
	conn, err := t.Transport.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &answeringConn{Connection: conn, open: map[jsonrpc.ID]bool{}, closed: make(chan struct{})}, nil
}

// answeringConn is a connection of answering.
type answeringConn struct {
	mcp.Connection
	close  sync.Once
	closed chan struct{}

	mu   sync.Mutex
	open map[jsonrpc.ID]bool // what was asked and is not answered
	idle chan struct{}       // if somebody waits: closed when nothing is open
}

// Read implements mcp.Connection.
func (c *answeringConn) Read(ctx context.Context) (jsonrpc.Message, error) {
	msg, err := c.Connection.Read(ctx)
	if err != nil {
		c.wait(ctx)
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
func (c *answeringConn) wait(ctx context.Context) {
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
	case <-ctx.Done():
	}
}
