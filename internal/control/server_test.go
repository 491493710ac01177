//go:build unix

package control_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/control"
	"github.com/sluice-llm/sluice/internal/suite"
)

func address(t *testing.T, text string) control.Address {
	t.Helper()
	a, err := control.ParseAddress(text)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// shortDir is a directory whose path leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "c")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func serve(t *testing.T, text string, g control.Guard) *control.Server {
	t.Helper()
	s, err := control.Listen(address(t, text))
	if err != nil {
		t.Fatal(err)
	}
	s.Start(control.Handler(&double{phase: control.Running}, g))
	t.Cleanup(func() { s.Close() })
	return s
}

func TestAddresses(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"unix:run.sock": "unix:" + filepath.Join(here, "run.sock"), "run.sock": "unix:" + filepath.Join(here, "run.sock"),
		"127.0.0.1:80": "127.0.0.1:80", "[::1]:0": "[::1]:0", "host:http": "host:http", "./a:1": "unix:" + filepath.Join(here, "a:1"),
		"": "", ":80": "", "unix:": "", "host:": "", "unix:a\x00b": "",
	} {
		a, err := control.ParseAddress(text)
		if (err == nil) != (want != "") || err == nil && a.String() != want {
			t.Errorf("%q is %q, %v", text, a, err)
		}
		if err == nil {
			if again, err := control.ParseAddress(a.String()); err != nil || again != a {
				t.Errorf("%q is read back as %v, %v", a, again, err)
			}
		}
	}
	for text, want := range map[string]bool{"a.sock": true, "127.9.9.9:1": true, "[::1]:1": true, "localhost:1": true, "10.0.0.1:1": false, "0.0.0.0:1": false, "evil.example:1": false} {
		if got := address(t, text).Local(); got != want {
			t.Errorf("%s is local: %v", text, got)
		}
	}
}

func TestASocketIsItsOwnersAlone(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "s")
	s := serve(t, path, control.Guard{})
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	c := control.NewClient(s.Address(), "")
	defer c.Close()
	if st, err := c.Status(t.Context()); err != nil || st.Phase != control.Running {
		t.Errorf("%+v, %v", st, err)
	}
	if names := list(t, dir); len(names) != 1 {
		t.Errorf("beside the socket there are %q", names)
	}
	if _, err := control.Listen(address(t, path)); err == nil || !strings.Contains(err.Error(), "another process listens there") {
		t.Errorf("a second: %v", err)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Errorf("after the second: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed again: %v", err)
	}
	if names := list(t, dir); len(names) != 0 {
		t.Errorf("left behind: %q", names)
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		names = append(names, e.Name())
	}
	return names
}

// stale leaves a socket that nobody listens at.
func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestTheSocketOfTheDeadIsReplacedAndAFileIsNot(t *testing.T) {
	dir := shortDir(t)
	path := filepath.Join(dir, "s")
	stale(t, path)
	serve(t, path, control.Guard{})
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f", "l"} {
		if _, err := control.Listen(address(t, filepath.Join(dir, name))); err == nil || !strings.Contains(err.Error(), "no socket") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "mine" {
		t.Errorf("the file holds %q, %v", b, err)
	}
	if _, err := control.Listen(address(t, filepath.Join(dir, strings.Repeat("x", 110)))); err == nil || !strings.Contains(err.Error(), "may have 103 bytes") {
		t.Errorf("a long path: %v", err)
	}
	if _, err := control.Listen(address(t, filepath.Join(dir, "no", "such"))); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
}

func TestOfManyThatTakeADeadSocketOneGetsIt(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	for range 20 {
		stale(t, path)
		var (
			wg    sync.WaitGroup
			mu    sync.Mutex
			first []*control.Server
		)
		for range 8 {
			wg.Go(func() {
				s, err := control.Listen(address(t, path))
				if err != nil {
					return
				}
				s.Start(control.Handler(&double{phase: control.Running}, control.Guard{}))
				mu.Lock()
				defer mu.Unlock()
				first = append(first, s)
			})
		}
		wg.Wait()
		if len(first) != 1 {
			t.Fatalf("%d have it", len(first))
		}
		c := control.NewClient(first[0].Address(), "")
		if _, err := c.Status(t.Context()); err != nil {
			t.Error(err)
		}
		c.Close()
		first[0].Close()
	}
}

func TestAnotherSocketIsNotTakenAwayAtTheEnd(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	s := serve(t, path, control.Guard{})
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	stale(t, path)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Error(err)
	}
}

func TestSlowAndManyConnectionsDoNotKeepTheRunFromEnding(t *testing.T) {
	s := serve(t, "127.0.0.1:0", control.Guard{Token: "0123456789abcdef", Hosts: []string{}})
	for i := range 100 { // more than are served at once: the others wait
		c, err := net.Dial("tcp", s.Address().Name)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			fmt.Fprintf(c, "POST /limits HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer 0123456789abcdef\r\nContent-Length: 1000\r\n\r\n{")
		}
	}
	start := time.Now()
	s.Close()
	if took := time.Since(start); suite.Full && took > time.Minute {
		t.Errorf("closing took %v", took)
	}
}

func TestAHugeBodyIsCutOff(t *testing.T) {
	path := filepath.Join(shortDir(t), "s")
	serve(t, path, control.Guard{})
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	go func() {
		fmt.Fprintf(c, "POST /limits HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
		chunk := fmt.Sprintf("%x\r\n%s\r\n", 1<<16, strings.Repeat(" ", 1<<16))
		for range 1000 {
			if _, err := io.WriteString(c, chunk); err != nil {
				return
			}
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
		t.Errorf("%+v, %v", resp, err)
	}
}

// While the last requests end, the socket's path is free already: whoever takes it then keeps it.
func TestAPathIsFreeBeforeTheLastRequestsEnd(t *testing.T) {
	path := filepath.Join(shortDir(t), "run.sock")
	s, err := control.Listen(address(t, path))
	if err != nil {
		t.Fatal(err)
	}
	asked, answer := make(chan struct{}), make(chan struct{})
	s.Start(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(asked)
		<-answer
	}))
	c, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	<-asked
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	for { // until nobody is let in any more
		other, err := net.Dial("unix", path)
		if err != nil {
			break
		}
		other.Close()
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("nobody listens, and the socket is there: %v", err)
	}
	next := serve(t, path, control.Guard{})
	close(answer)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if other, err := net.Dial("unix", path); err != nil {
		t.Errorf("the socket of the next was taken away: %v", err)
	} else {
		other.Close()
	}
	next.Close()
}
