package control

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"
)

// Server listens at an address. Close it, whether or not it was started.
type Server struct {
	address  Address
	listener net.Listener
	remove   func() error // of the socket's file
	web      *http.Server
	served   sync.WaitGroup
}

const (
	mostConnections = 64              // that are open at once: each is a file that the run's calls then lack
	headerTime      = 5 * time.Second // for the head of a request,
	requestTime     = 10 * time.Second
	idleTime        = time.Minute
	closeTime       = time.Second // that requests have to end in when the run does
)

// Listen takes the address. A Unix socket is made such that nobody but its owner can connect, at no instant; one of a
// process that is dead is replaced. Requests wait until Start.
func Listen(a Address) (*Server, error) {
	s := &Server{address: a, remove: func() error { return nil }}
	var err error
	if a.Network == "unix" {
		s.listener, s.remove, err = listenSocket(a.Name)
	} else {
		s.listener, err = net.Listen("tcp", a.Name)
	}
	if err != nil {
		return nil, err
	}
	if a.Network == "tcp" { // the port may have been left to the system
		_, port, _ := net.SplitHostPort(s.listener.Addr().String())
		s.address.Name = net.JoinHostPort(a.Host(), port)
	}
	return s, nil
}

// Address is where the server is reached.
func (s *Server) Address() Address { return s.address }

// Start serves h from now on. It is called once.
func (s *Server) Start(h http.Handler) {
	s.web = &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       requestTime,
		WriteTimeout:      requestTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          log.New(io.Discard, "", 0),
	}
	l := &bounded{Listener: s.listener, room: make(chan struct{}, mostConnections), closed: make(chan struct{})}
	s.served.Go(func() { s.web.Serve(l) })
}

// Close takes the socket away and ends the server. Requests have a second to end.
//
// The socket goes while it is still listened at: nobody takes it for that of a dead process until then, so that what is taken
// away is our own.
func (s *Server) Close() error {
	err := s.remove()
	if s.web != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closeTime)
		defer cancel()
		if err := s.web.Shutdown(ctx); err != nil {
			s.web.Close()
		}
		s.served.Wait()
	} else {
		err = errors.Join(err, s.listener.Close())
	}
	return err
}

// bounded is a listener with so many connections at once: the others wait in the system's queue.
type bounded struct {
	net.Listener
	room   chan struct{}
	closed chan struct{}
	once   sync.Once
}

// Accept waits for room and a connection.
func (b *bounded) Accept() (net.Conn, error) {
	select {
	case b.room <- struct{}{}:
	case <-b.closed:
		return nil, net.ErrClosed
	}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.room
		return nil, err
	}
	return &counted{Conn: c, leave: sync.OnceFunc(func() { <-b.room })}, nil
}

// Close ends the listening.
func (b *bounded) Close() error {
	b.once.Do(func() { close(b.closed) })
	return b.Listener.Close()
}

// counted is a connection that makes room when it is closed.
type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
