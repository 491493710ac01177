package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal opens a pair of terminal ends: what happens to the first happens to the second.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { master.Close() })
	fd := int(master.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip(err)
	}
	return master, slave
}

// TestATerminalThatHangsUpDrains starts a run with a file of limits on a terminal of its own. HUP by hand re-reads it; when the
// terminal goes away, open calls end.
func TestATerminalThatHangsUpDrains(t *testing.T) {
	k := newKillBench(t, 200, 4)
	limits := filepath.Join(k.dir, "limits.yaml")
	write := func(text string) {
		if err := os.WriteFile(limits, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("limits: {rpm: 120}\n")
	master, slave := terminal(t)
	errs := filepath.Join(k.dir, "err.txt")
	said, err := os.Create(errs)
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd := exec.Command("sluice", "run", "--provider", "openai", "--base-url", k.url+"/v1", k.in, "-o", k.out, "--config", limits)
	cmd.Env = append(os.Environ(), "OPENAI_API_KEY="+sentinelKey, "XDG_STATE_HOME="+filepath.Join(k.dir, "state"))
	cmd.Stdin, cmd.Stderr = slave, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	slave.Close()
	k.lastStart = &run{Cmd: cmd}
	saying := func(what string) {
		k.await(what, func() bool {
			b, _ := os.ReadFile(errs)
			return bytes.Contains(b, []byte(what))
		})
	}
	k.awaitLines(1)
	write("limits: {rpm: 240}\n")
	if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	saying("limits re-read: rpm 120 -> 240")
	master.Close()
	saying("sluice: error: interrupted")
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the run goes on without its terminal")
	}
	text, _ := os.ReadFile(errs)
	if cmd.ProcessState.ExitCode() != 130 || strings.Contains(string(text), "calls open") {
		t.Errorf("%v:\n%s", cmd.ProcessState, text)
	}
}
