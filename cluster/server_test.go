package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/suite"
)

// realServer is a redis-server of a test's own.
type realServer struct {
	t    testing.TB
	port int
	dir  string
	args []string
	cmd  *exec.Cmd
}

// newServer starts a redis-server with these settings, and waits until it listens. The test is skipped in the fast suite, and without a
// redis-server.
func newServer(t testing.TB, settings ...string) *realServer {
	t.Helper()
	return startServer(t, freePort(t), settings...)
}

func startServer(t testing.TB, port int, settings ...string) *realServer {
	t.Helper()
	suite.FullOnly(t)
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Skip("no redis-server is installed: this needs a real one")
	}
	s := &realServer{t: t, port: port, dir: t.TempDir()}
	s.args = append([]string{"--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--loglevel", "warning"}, settings...)
	if settings != nil && settings[0] == "--sentinel" { // which wants a file of its own to write to
		s.args = []string{sentinelFile(t, port, settings[1]), settings[0]}
	}
	s.start()
	t.Cleanup(s.stop)
	return s
}

// start starts the server, also again after stop, on the same files.
func (s *realServer) start() {
	s.t.Helper()
	s.cmd = exec.Command("redis-server", s.args...)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "the server answers", s.answers)
}

// answers reports whether the server says anything, if only that it wants TLS, which is when it closes the connection. One that
// takes connections may not listen at its socket yet.
func (s *realServer) answers() bool {
	conn, err := net.Dial("tcp", s.address())
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = conn.Write([]byte("PING\r\n"))
	_, err = conn.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

// stop kills the server.
func (s *realServer) stop() {
	if s.cmd.ProcessState == nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
	}
}

func sentinelFile(t testing.TB, port int, text string) string {
	file := filepath.Join(t.TempDir(), "sentinel.conf")
	text = fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\n%s\n", port, t.TempDir(), text)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func (s *realServer) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }
func (s *realServer) url() string     { return "redis://" + s.address() }

// do runs a command on the server.
func (s *realServer) do(words ...string) string { return do(s.t, s.address(), words...) }

func do(t testing.TB, address string, words ...string) string {
	t.Helper()
	client := dial(t, address)
	text, err := client.Do(context.Background(), client.B().Arbitrary(words...).Build()).ToString()
	if err != nil && !rueidis.IsParseErr(err) {
		t.Fatalf("%s: %v", strings.Join(words, " "), err)
	}
	return text
}

// dial returns a client of one server, which is closed with the test.
func dial(t testing.TB, address string) rueidis.Client {
	t.Helper()
	return dialAs(t, address, "")
}

func dialAs(t testing.TB, address, password string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{address}, Password: password, DisableCache: true, ForceSingleClient: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// freePort returns a port that nothing listens at. Neither it nor that of a cluster's node, which is 10000 above it, is one of
// those that systems give to whoever asks for any, so that no other test gets it meanwhile: they are 32768 and above.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10000 + rand.IntN(12000)
		if vacant(port) && vacant(port+10000) {
			return port
		}
	}
	t.Fatal("100 ports are in use")
	return 0
}

func vacant(port int) bool {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		l.Close()
	}
	return err == nil
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, patience)
		}
	}
}

// refused opens a Cluster, which must not succeed. It returns what is said of it and the hint.
func refused(t *testing.T, cfg cluster.Config) (text, hint string, settings bool) {
	t.Helper()
	c, err := cluster.Open(t.Context(), cfg)
	if err == nil {
		c.Close()
		t.Fatalf("%s is accepted", cluster.Redact(cfg.URL))
	}
	wrong, ok := err.(*cluster.Error)
	if !ok {
		t.Fatalf("%T is no *Error: %v", err, err)
	}
	return err.Error(), wrong.Hint(), wrong.Settings
}
