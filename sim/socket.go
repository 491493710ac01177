package sim

import (
	"net"
	"net/http"
	"strconv"
)

// socket is the wire of an http.ResponseWriter.
type socket struct {
	w    http.ResponseWriter
	done bool // all that was to be sent was
}

func (s *socket) Header() http.Header { return s.w.Header() }

func (s *socket) whole(status int, body []byte) {
	s.w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	s.w.WriteHeader(status)
	s.w.Write(body) // the client may be gone; nothing is left to do then
	s.done = true
}

func (s *socket) begin() {
	s.w.WriteHeader(http.StatusOK)
	s.flush()
}

func (s *socket) event(part []byte) {
	s.w.Write(part) // as in whole
	s.flush()
}

func (s *socket) end() { s.done = true }

func (s *socket) flush() {
	http.NewResponseController(s.w).Flush() // what cannot flush sends at the end
}

// reset makes the kernel send RST rather than FIN, if it can.
func (s *socket) reset() {
	conn, _, err := http.NewResponseController(s.w).Hijack()
	if err != nil {
		return
	}
	s.done = true
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) // best effort
	}
	conn.Close()
}

func (s *socket) tear(status int, body []byte) {
	s.w.Header()["Content-Length"] = []string{strconv.Itoa(len(body))}
	s.w.WriteHeader(status)
	s.w.Write(body[:len(body)/2]) // as in whole
	s.tearStream()
}

// short has the end of the connection be the end of the body, as HTTP/1.0 had it.
// https://www.rfc-editor.org/rfc/rfc9112#section-6.3
func (s *socket) short(status int, body []byte) {
	s.w.Header()["Transfer-Encoding"] = []string{"identity"} // which net/http takes for neither length nor chunks
	s.w.WriteHeader(status)
	s.w.Write(body[:len(body)/2]) // as in whole
	s.done = true
}

func (s *socket) tearStream() { s.flush() }

// finish breaks the connection unless the answer is complete.
func (s *socket) finish() {
	if !s.done {
		panic(http.ErrAbortHandler)
	}
}
