package telemetry_test

import (
	"io"
	"net"

	"strconv"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/telemetry"
)

// Each connection is a file that the run's calls then lack.
func TestConnectionsToTheMetricsAreBounded(t *testing.T) {
	s, err := telemetry.Serve("127.0.0.1:0", telemetry.Routes(telemetry.NewMetrics(nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port()))
	answered := 0
	for i := range 48 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		patience := 50 * time.Millisecond // that a connection above the bound is not answered
		if i < 8 {
			patience = time.Minute // a busy machine answers late
		}
		c.SetReadDeadline(time.Now().Add(patience))
		if n, _ := c.Read(make([]byte, 1)); n > 0 {
			answered++
		}
	}
	if answered < 8 || answered > 40 {
		t.Errorf("%d connections were answered", answered)
	}
}
