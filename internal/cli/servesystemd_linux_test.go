package cli_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestSystemdHearsHowTheGatewayDoes(t *testing.T) {
	dir, err := os.MkdirTemp("", "n") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", name)
	t.Setenv("WATCHDOG_USEC", "200000")
	// next waits for a message that begins so, past those of the watchdog.
	next := func(want string) string {
		t.Helper()
		b := make([]byte, 4096)
		socket.SetReadDeadline(time.Now().Add(time.Minute))
		for {
			n, err := socket.Read(b)
			if err != nil {
				t.Fatalf("no %s: %v", want, err)
			}
			text := string(b[:n])
			if strings.HasPrefix(text, want) {
				return text
			}
			if text != "WATCHDOG=1" {
				t.Fatalf("%q, want %s", text, want)
			}
		}
	}
	g, _ := serveHouse(t, time.Millisecond)
	next("READY=1")
	if resp, err := http.Get(g.url + "/readyz"); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("ready, and %v %v", resp, err)
	}
	next("WATCHDOG=1")
	next("WATCHDOG=1")
	g.cmd.Process.Signal(syscall.SIGHUP)
	if text := next("RELOADING=1"); !regexp.MustCompile(`^RELOADING=1\nMONOTONIC_USEC=[1-9]\d+$`).MatchString(text) {
		t.Errorf("%q", text)
	}
	next("READY=1")
	g.cmd.Process.Signal(os.Interrupt)
	next("STOPPING=1")
	if err := g.cmd.Wait(); err != nil {
		t.Errorf("%v: %s", err, g.stderr)
	}
}
