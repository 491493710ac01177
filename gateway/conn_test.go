package gateway_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/gateway"
)

// serve has a gateway's own server answer at a listener, until the test ends.
func serve(t *testing.T, x *relayed, l net.Listener) {
	t.Helper()
	web := &http.Server{}
	var serving sync.WaitGroup
	serving.Go(func() { _ = x.Serve(web, l) })
	t.Cleanup(func() {
		web.Close()
		serving.Wait()
	})
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// shortListener's connections take only a part of the first long write, as where its deadline passes.
type shortListener struct{ net.Listener }

func (l shortListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	return &shortConn{Conn: c}, err
}

type shortConn struct {
	net.Conn
	failed bool
}

func (c *shortConn) Write(b []byte) (int, error) {
	if c.failed || len(b) < 8<<10 {
		return c.Conn.Write(b)
	}
	c.failed = true
	n, _ := c.Conn.Write(b[:len(b)/2])
	return n, os.ErrDeadlineExceeded
}

func TestAnAnswerOfWhichAPartIsLostIsTheConnectionsLast(t *testing.T) {
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		whole(w, chatAnswer+strings.Repeat(" ", 12<<10))
	}))
	t.Cleanup(up.Close)
	ended := make(chan string, 2)
	x := relay(t, up.URL, func(s *setting) {
		s.Traffic = gateway.NewTraffic(func(r *gateway.Record) { ended <- r.Kind })
	})
	l := listen(t)
	serve(t, x, shortListener{l})
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const asks = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n" + `{"model":"m"}`
	send(t, conn, asks+asks)
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	b, _ := io.ReadAll(conn)
	if n := strings.Count(string(b), "HTTP/1.1 "); n != 1 {
		t.Errorf("behind half an answer %d others are begun", n-1)
	}
	if kind := <-ended; kind != gateway.KindClientGone {
		t.Errorf("the call ended as %s", kind)
	}
}

func TestWhoIsRefusedBeforeTheBodyWasReadGetsTheAnswerWhole(t *testing.T) {
	t.Parallel()
	x := relay(t, "http://127.0.0.1:1", nil)
	l := listen(t)
	serve(t, x, l)
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	send(t, conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\nContent-Length: 1000000\r\n\r\n"+strings.Repeat(" ", 1_000_000))
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if b, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(b), "HTTP/1.1 403 ") {
		t.Errorf("%q, %v", b, err)
	}
}

func TestServeMayBeGivenAListenerOfTLS(t *testing.T) {
	x := relay(t, "http://127.0.0.1:1", nil)
	lends := httptest.NewUnstartedServer(nil)
	lends.EnableHTTP2 = true
	lends.StartTLS()
	t.Cleanup(lends.Close)
	l := listen(t)
	serve(t, x, tls.NewListener(l, lends.TLS))
	client := lends.Client()
	resp, err := client.Get("https://" + l.Addr().String() + "/healthz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("%s", resp.Status)
	}
	client.CloseIdleConnections()
}
