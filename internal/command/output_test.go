//go:build unix

package command_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/suite"
)

// counter counts bytes, does something once after so many, and after most of them has an error. It is not safe for concurrent
// use.
type counter struct {
	most, n int
	at      int
	then    func()
}

func (c *counter) Write(b []byte) (int, error) {
	if c.n += len(b); c.n > c.most {
		return 0, errors.New("full")
	}
	if c.then != nil && c.n >= c.at {
		c.then()
		c.then = nil
	}
	return len(b), nil
}

func TestAFloodEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	out := &counter{most: 1 << 50, at: 1 << 16, then: func() { cancel(errors.New("enough")) }}
	res, err := command.Run(ctx, command.Spec{
		Args: []string{"sh", "-c", "trap '' TERM; yes & yes"}, Env: env, Stdout: out, Grace: 100 * time.Millisecond,
	})
	if err == nil || err.Error() != "enough" {
		t.Errorf("%+v, %v, %d bytes", res, err, out.n)
	}
}

func TestAWriterThatFailsEndsTheCommand(t *testing.T) {
	out := &counter{most: 1 << 16}
	res, err := command.Run(t.Context(), command.Spec{Args: []string{"yes"}, Env: env, Stdout: out})
	if res.Signal != "SIGPIPE" || err == nil {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := command.Run(t.Context(), command.Spec{Args: []string{"sh", "-c", "echo hello; exit 0"}, Env: env, Stdout: &counter{}}); fmt.Sprint(err) != "full" {
		t.Errorf("error %v, want that of the writer", err)
	}
}

func TestOneWriterForBothIsWrittenToByOne(t *testing.T) {
	out := &counter{most: 1 << 50} // the race detector sees it otherwise
	script := `i=0; while [ $i -lt 200 ]; do echo out; echo err >&2; i=$((i+1)); done`
	if _, err := command.Run(t.Context(), command.Spec{Args: []string{"sh", "-c", script}, Env: env, Stdout: out, Stderr: out}); err != nil || out.n != 200*8 {
		t.Errorf("%d bytes, %v", out.n, err)
	}
}

func TestOutputIsNotCutShort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for range 20 {
		out.Reset()
		script := `(head -c 300000 /dev/zero; echo late) & echo more >&2` // from a child that lives a little longer
		if _, err := command.Run(t.Context(), command.Spec{Args: []string{"sh", "-c", script}, Env: env, Stdout: &out, Stderr: f}); err != nil {
			t.Error(err)
		}
		if n := out.Len(); n != 300005 || !strings.HasSuffix(out.String(), "late\n") {
			t.Fatalf("%d bytes", n)
		}
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(f); err != nil || string(b) != strings.Repeat("more\n", 20) {
		t.Errorf("%q, %v", b, err)
	}
}

// waker ends a context when something is written.
type waker struct {
	text   []byte
	cancel context.CancelFunc
}

func (w *waker) Write(b []byte) (int, error) {
	defer w.cancel()
	w.text = append(w.text, b...)
	return len(b), nil
}

// TestWhoIsAskedToEndHasItsGrace: children that clean up after the end of the program get the rest of the grace, and no more.
func TestWhoIsAskedToEndHasItsGrace(t *testing.T) {
	const (
		ends  = `trap 'exit 0' TERM; `
		stays = `trap : TERM; `
	)
	for _, c := range []struct {
		program string
		grace   time.Duration
		clean   string // how long the child takes, in seconds
		want    string
	}{
		{ends, time.Minute, "0.2", "begun\nclean\n"},
		{ends, 50 * time.Millisecond, "30", "begun\n"},
		{ends, -1, "30", "begun\n"},
		{stays, 2 * time.Second, "3", "begun\n"},
	} {
		t.Run(c.program+c.grace.String(), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			out := &waker{cancel: cancel}
			script := c.program + `sh -c 'trap "sleep ` + c.clean + `; echo clean; exit" TERM; echo begun; while :; do sleep 0.02; done' & while :; do wait; done`
			res, err := command.Run(ctx, command.Spec{Args: []string{"sh", "-c", script}, Env: env, Stdout: out, Grace: c.grace})
			if !errors.Is(err, context.Canceled) || string(out.text) != c.want {
				t.Errorf("%q, %+v, %v", out.text, res, err)
			}
		})
	}
}

// A program may write all that a pipe holds and end before anything of it is read, and leave a process that writes on. NoLinger
// passes on the first, and does not wait for the second.
func TestTheEndOfTheProgramIsTheEndOfItsOutput(t *testing.T) {
	t.Parallel()
	for range suite.Size(5, 50) {
		out := &tail{}
		_, err := command.Run(t.Context(), command.Spec{
			Args: []string{"sh", "-c", "setsid sleep 10 & head -c 60000 /dev/zero; echo said"}, Env: env, Stdout: out, Grace: 5 * time.Minute, NoLinger: true,
		})
		if err != nil || out.n != 60005 || !strings.HasSuffix(string(out.last), "said\n") {
			t.Errorf("%d bytes that end with %q, %v", out.n, out.last, err)
		}
	}
	res, err := command.Run(t.Context(), command.Spec{
		Args: []string{"sh", "-c", "setsid timeout 60 yes & exit 3"}, Env: env, Stdout: &tail{}, Grace: 5 * time.Minute, NoLinger: true,
	})
	if err == nil || res.ExitCode != 3 {
		t.Errorf("%+v, %v", res, err)
	}
}

// tail counts what is written, slowly, and keeps the last of it.
type tail struct {
	n    int
	last []byte
}

func (w *tail) Write(b []byte) (int, error) {
	time.Sleep(10 * time.Millisecond)
	w.n, w.last = w.n+len(b), bytes.Clone(b)
	return len(b), nil
}

// A process that was left behind and holds the input does not change how the program ended.
func TestInputThatIsHeldIsNoError(t *testing.T) {
	t.Parallel()
	res, err := command.Run(t.Context(), command.Spec{
		Args: []string{"sh", "-c", "exec 3<&0; setsid sleep 3 <&3 >/dev/null 2>&1 &"}, Env: env, Stdin: strings.NewReader(strings.Repeat("long", 100_000)),
		Grace: 100 * time.Millisecond,
	})
	if err != nil || res.Asked {
		t.Errorf("%+v, %v", res, err)
	}
}
