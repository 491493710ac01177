package sim

import (
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/simbatch"
	"github.com/sluice-llm/sluice/internal/wake"
)

// Server simulates a provider, as an http.Handler or with Transport. Create a Server with New. A Server is safe for concurrent use.
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

	batches *simbatch.Handler
}

// account counts the attempts at one request.
type account struct {
	admitted uint32
	strays   uint32 // refused for no reason
	paid     uint32
}

// New returns a Server. If a field of c is invalid, the error names the field.
func New(c Config) (*Server, error) {
	c, err := c.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{
		config:    c,
		processor: processor{places: c.Contention},
		budgets:   newBudgets(c),
		accounts:  map[hash]account{},
		stats:     Stats{Refused: map[string]int{}},
	}
	s.batches = simbatch.New(c.Batches, c.Seed, c.NoStats, batchHost{s})
	return s, nil
}

// maxBody is the longest body that is read.
const maxBody = 64 << 20

// ServeHTTP serves one request of a client. ServeHTTP takes as long as the Config specifies.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if simbatch.Serves(r.URL.Path) {
		s.batches.ServeHTTP(w, r)
		return
	}
	if servesAccount(r.URL.Path) {
		s.account(w, r)
		return
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		panic(http.ErrAbortHandler) // the client is gone
	}
	c, no := s.receive(r.Method, r.URL, r.Header, body)
	s.serve(r.Context(), c, no, w)
	if r.Context().Err() != nil {
		panic(http.ErrAbortHandler) // as above: the response may not be complete
	}
}

// send sends a whole response.
func send(w http.ResponseWriter, status int, body []byte) {
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	w.WriteHeader(status)
	w.Write(body) // the client may be gone
}

// tear breaks the connection after half of the body.
func tear(w http.ResponseWriter, body []byte) {
	w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	write(w, string(body[:len(body)/2]))
	panic(http.ErrAbortHandler)
}

// write sends a part of a response at once.
func write(w http.ResponseWriter, part string) {
	io.WriteString(w, part) // as in send
	http.NewResponseController(w).Flush()
}

// reset breaks the connection before the response, with RST rather than FIN if that is possible.
func reset(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) // best effort
	}
	conn.Close()
}

// serve sees a received call through to its end.
func (s *Server) serve(ctx context.Context, c *call, no *refusal, w http.ResponseWriter) {
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
		if wake.In(ctx, s.config.RefusalLatency, nil) == nil {
			s.refuse(c, no, w)
		}
		return
	}
	s.answer(ctx, c, w)
}

// page answers a request that is not charged.
func (s *Server) page(c *call, w http.ResponseWriter) {
	var body string
	switch c.endpoint {
	case statsPage:
		body = string(marshal(s.Stats()))
	case countPage:
		body = c.dialect.count(c)
	default:
		body = c.dialect.models(s.models(), time.Now())
	}
	h := newHeaders(w.Header())
	h.set("Content-Type", "application/json")
	send(w, http.StatusOK, []byte(body))
}

// refuse sends an error.
func (s *Server) refuse(c *call, no *refusal, w http.ResponseWriter) {
	h := s.headers(c, w)
	if no.hint {
		c.dialect.retryHeaders(&h, s.config.RetryAfter, no.wait, time.Now())
	}
	h.set("Content-Type", "application/json")
	status, body := c.dialect.refusal(c, no)
	send(w, status, body)
}

// headers begins the headers of an answer.
func (s *Server) headers(c *call, w http.ResponseWriter) headers {
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
