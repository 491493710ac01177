package worlds

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/wake"
)

// Server plays the provider of a world over HTTP and in real time, which starts with NewServer. The header Item of a request
// holds the ID of its item. It is safe for concurrent use.
type Server struct {
	items []*Item
	start time.Time

	mu       sync.Mutex
	provider *provider
	requests int
}

// NewServer returns the Server of a world.
func NewServer(w *World) *Server {
	s := &Server{items: w.Items(), start: time.Now(), provider: newProvider(w, new(clock), false)}
	s.provider.speaker = newSpeaker(w)
	s.provider.speaker.epoch = s.start.Truncate(time.Second) // as Epoch: dates in headers are whole seconds
	return s
}

// ServeHTTP answers as the provider does, after the delays of the network.
func (s *Server) ServeHTTP(out http.ResponseWriter, req *http.Request) {
	id, err := strconv.Atoi(req.Header.Get("Item"))
	if err != nil || id < 0 || id >= len(s.items) {
		http.NotFound(out, req)
		return
	}
	sent := time.Since(s.start)
	if _, err := io.Copy(io.Discard, req.Body); err != nil {
		return
	}
	serve := s.provider.w.Serve
	s.mu.Lock()
	s.requests++
	up := serve.Up + Seconds(draw(s.provider.w.Seed, streamJitter, s.requests))*serve.Jitter
	s.mu.Unlock()
	s.wait(req.Context(), sent+up.span())
	s.mu.Lock()
	s.advance()
	r := s.provider.arrive(s.items[id], sent+s.provider.w.Config.deadline())
	s.mu.Unlock()
	if r.head < r.done || r.Err == nil {
		s.wait(req.Context(), r.head+serve.Down.span())
		s.mu.Lock()
		s.advance() // headers of that instant are written then
		for name, values := range r.Header {
			out.Header()[name] = values
		}
		s.mu.Unlock()
		out.Header().Set("Content-Length", strconv.Itoa(max(1, len(r.Body))))
		out.WriteHeader(max(r.Status, 200)) // 200 until the stream breaks
		http.NewResponseController(out).Flush()
	}
	s.wait(req.Context(), r.done+serve.Down.span())
	if r.Err != nil {
		panic(http.ErrAbortHandler)
	}
	out.Write(r.Body)
}

// advance runs the provider's events up to now.
func (s *Server) advance() {
	c, now := s.provider.clock, time.Since(s.start)
	for len(c.events) > 0 && c.events[0].at <= now {
		c.step()
	}
	c.now = max(c.now, now)
}

// wait returns at an instant, or when the client is gone. An instant below zero never comes: it is beyond the last one.
func (s *Server) wait(ctx context.Context, at time.Duration) {
	if at < 0 {
		at = never
	}
	_ = wake.In(ctx, at-time.Since(s.start), nil)
}
