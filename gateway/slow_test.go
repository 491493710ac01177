package gateway_test

import (
	"io"
	"strings"
	"testing"
	"time"
)

func TestABodyThatNobodyAsksForIsNotWaitedFor(t *testing.T) {
	within(t, nil, func(s *setting) {
		s.MaxBodyMemory = 4 * 4096
	}, func(t *testing.T, x *relayed) {
		dial := wire(t, x)
		for _, head := range []string{
			"POST /healthz HTTP/1.1\r\nHost: localhost",
			"POST /nowhere HTTP/1.1\r\nHost: localhost",
			"POST /v1/chat/completions HTTP/1.1\r\nHost: other.example",
			"GET /v1/models HTTP/1.1\r\nHost: localhost",
			"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost",
		} {
			for _, length := range []string{"Content-Length: 1000", "Content-Length: 100000", "Transfer-Encoding: chunked"} {
				conn := dial()
				text := head + "\r\n" + length + "\r\n\r\n"
				if length == "Transfer-Encoding: chunked" {
					text += "fffff\r\nx"
				}
				send(t, conn, text)
				_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
				b, err := io.ReadAll(conn)
				if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 ") {
					t.Errorf("%s, %s: %q, %v: want an answer, and the connection closed", head, length, b, err)
				}
			}
		}
	})
}
