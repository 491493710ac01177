package gateway

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
)

// Serve accepts connections on l and serves them with web until web is shut down or closed. Serve sets web.Handler and
// web.ConnContext, and returns the error of web.Serve. Serve sends each part of a response in one write, even above 4 KiB.
func (g *Gateway) Serve(web *http.Server, l net.Listener) error {
	web.Handler = g
	web.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connKey{}, c)
	}
	return web.Serve(listener{l})
}

type listener struct{ net.Listener }

func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	if _, secure := c.(*tls.Conn); secure {
		return c, nil // the server has to know it as such
	}
	return &conn{Conn: c}, nil
}

type connKey struct{}

// connOf is the connection that a request came by; nil if the gateway did not accept it.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// conn is a client's connection. Who writes an answer may have it gather what is written; it is used by one goroutine then.
type conn struct {
	net.Conn
	gathered *[]byte // from copyBuffers; nil: writes go out at once
}

// gather keeps what is written from now on until release, as far as there is room.
func (c *conn) gather() {
	if c != nil && c.gathered == nil {
		c.gathered = copyBuffers.Get().(*[]byte)
		*c.gathered = (*c.gathered)[:0]
	}
}

// release writes what was gathered.
func (c *conn) release() (err error) {
	if c == nil || c.gathered == nil {
		return nil
	}
	if b := *c.gathered; len(b) > 0 {
		if _, err = c.Conn.Write(b); err != nil {
			c.Conn.Close() // the server takes it for written: another answer would follow the part that was
		}
	}
	*c.gathered = (*c.gathered)[:cap(*c.gathered)]
	copyBuffers.Put(c.gathered)
	c.gathered = nil
	return err
}

func (c *conn) Write(b []byte) (int, error) {
	if c.gathered == nil {
		return c.Conn.Write(b)
	}
	held := *c.gathered
	if len(held)+len(b) <= cap(held) {
		*c.gathered = append(held, b...)
		return len(b), nil
	}
	*c.gathered = held[:0]
	all := net.Buffers{held, b}
	n, err := all.WriteTo(c.Conn)
	return max(0, int(n)-len(held)), err
}

// CloseWrite ends a response before the connection closes, so that a client that still sends does not lose unread parts of it.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}
