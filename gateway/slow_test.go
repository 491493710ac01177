package gateway_test

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/gateway"
)

func TestABodyThatNobodyAsksForIsNotWaitedFor(t *testing.T) {
	within(t, nil, func(s *setting) {
		s.Bodies.Most, s.Dashboard, s.Admin = 4096, true, &gateway.Admin{Key: "the-admins-own-key"}
	}, func(t *testing.T, x *relayed) {
		dial := wire(t, x)
		for _, head := range []string{
			"POST /healthz HTTP/1.1\r\nHost: localhost",
			"POST /nowhere HTTP/1.1\r\nHost: localhost",
			"POST /v1/chat/completions HTTP/1.1\r\nHost: other.example",
			"GET /v1/models HTTP/1.1\r\nHost: localhost",
			"POST /ui/pause HTTP/1.1\r\nHost: localhost",
			"POST /ui/pause HTTP/1.1\r\nHost: localhost\r\nX-Sluice-Admin-Key: the-admins-own-key",
			"GET /ui HTTP/1.1\r\nHost: localhost",
			"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost",
		} {
			for _, length := range []string{"Content-Length: 1000", "Content-Length: 100000", "Transfer-Encoding: chunked"} {
				conn := dial()
				send(t, conn, head+"\r\n"+length+"\r\n\r\n")
				if length == "Transfer-Encoding: chunked" {
					send(t, conn, "fffff\r\nx")
				}
				_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
				b, err := io.ReadAll(conn)
				if err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 ") {
					t.Errorf("%s, %s: %q, %v: want an answer, and the connection closed", head, length, b, err)
				}
			}
		}
	})
}
