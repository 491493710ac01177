package sim

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// Server is an imitation of a provider. New makes one; it is safe for
// concurrent use. Most callers want it as an http.Handler or by its Transport.
type Server struct {
	config    Config
	processor processor

	mu       sync.Mutex
	start    time.Time // of the first request
	budgets  *budgets
	open     int // admitted, and not yet done
	serving  int // of those, past the silent queue
	queue    []chan struct{}
	accounts map[hash]account
	paid     int
	stats    Stats
	store    batchStore
}

// account is what is known about one request.
type account struct {
	admitted uint32
	strays   uint32 // refused for no reason
	paid     uint32
}

// New returns a server under the limits of c, or an error that names the field
// that makes no sense.
func New(c Config) (*Server, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Server{
		config:    c,
		processor: processor{places: c.Contention},
		budgets:   newBudgets(c),
		accounts:  map[hash]account{},
		stats:     Stats{Refused: map[string]int{}},
		store:     newBatchStore(),
	}, nil
}

// maxBody is the longest body that is read.
const maxBody = 64 << 20

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if api := batchAPIOf(r.URL.Path); api != nil {
		wire := &socket{w: w}
		s.serveBatch(api, r, wire)
		wire.finish()
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	wire := &socket{w: w}
	c, no := s.receive(r.Method, target(r.URL), r.Header, body)
	s.serve(r.Context(), c, no, wire)
	wire.finish()
}

// wire is where an answer goes: a socket or a caller in the same process. One
// of whole, short, begin, reset and tear comes first, or none if the client is gone;
// events follow begin.
type wire interface {
	Header() http.Header
	// whole sends an answer.
	whole(status int, body []byte)
	// begin sends the header of a stream, event a part of it, end its end.
	begin()
	event(part []byte)
	end()
	// short sends half of the body, and nothing that tells that it is not all.
	short(status int, body []byte)
	// reset breaks the connection before the answer, tear after half of the
	// body, and tearStream in the middle of a stream.
	reset()
	tear(status int, body []byte)
	tearStream()
}

// serve sees a received call through to its end.
func (s *Server) serve(ctx context.Context, c *call, no *refusal, w wire) {
	if no == nil && c.endpoint >= statsPage {
		s.page(c, w)
		return
	}
	if no == nil {
		no = s.admit(c)
	} else {
		s.count(no)
	}
	if no != nil {
		if wait(ctx, s.config.RefusalLatency) {
			s.refuse(c, no, w)
		}
		return
	}
	s.answer(ctx, c, w)
}

// page answers what is not a call.
func (s *Server) page(c *call, w wire) {
	var body []byte
	switch c.endpoint {
	case statsPage:
		body = marshal(s.Stats())
	case countPage:
		body = c.dialect.count(c)
	default:
		names := s.config.Models
		if len(names) == 0 {
			names = []string{"sim"}
		}
		body = c.dialect.models(names, time.Now())
	}
	h := newHeaders(w.Header())
	h.set("Content-Type", "application/json")
	w.whole(http.StatusOK, body)
}

// refuse sends an error.
func (s *Server) refuse(c *call, no *refusal, w wire) {
	h := s.headers(c, w)
	if no.hint {
		c.dialect.retryHeaders(&h, s.config.RetryAfter, no.wait, time.Now())
	}
	h.set("Content-Type", "application/json")
	w.whole(c.dialect.refusal(c, no))
}

// headers begins the headers of an answer.
func (s *Server) headers(c *call, w wire) headers {
	h := newHeaders(w.Header())
	if name := c.dialect.idHeader(); name != "" {
		h.set(name, "req_"+c.id)
	}
	if s.config.NoHeaders {
		return h
	}
	if s.config.LateHeaders {
		s.mu.Lock()
		if !s.start.IsZero() {
			s.quotasLocked(c, time.Since(s.start))
		}
		s.mu.Unlock()
	}
	c.dialect.rateHeaders(&h, &c.quotas, time.Now())
	return h
}

// wait sleeps for d; it reports false if ctx ended before.
func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
