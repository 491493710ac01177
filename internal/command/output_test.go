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

// writer is an io.Writer. It is not safe for concurrent use.
type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestAFloodEndsWithTheContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	n := 0
	out := writer(func(b []byte) (int, error) {
		if n += len(b); n >= 1<<16 {
			cancel(errors.New("enough"))
		}
		return len(b), nil
	})
	res, err := command.Run(ctx, command.Spec{
		Args: []string{"sh", "-c", "trap '' TERM; yes & yes"}, Env: env, Stdout: out, Grace: 100 * time.Millisecond,
	})
	if err == nil || err.Error() != "enough" {
		t.Errorf("%+v, %v, %d bytes", res, err, n)
	}
}

func TestAWriterThatFailsEndsTheCommand(t *testing.T) {
	room := 1 << 16
	out := writer(func(b []byte) (int, error) {
		if room -= len(b); room < 0 {
			return 0, errors.New("full")
		}
		return len(b), nil
	})
	res, err := command.Run(t.Context(), command.Spec{Args: []string{"yes"}, Env: env, Stdout: out})
	if res.Signal != "SIGPIPE" || err == nil {
		t.Errorf("%+v, %v", res, err)
	}
	if _, err := command.Run(t.Context(), command.Spec{Args: []string{"sh", "-c", "echo hello; exit 0"}, Env: env, Stdout: out}); fmt.Sprint(err) != "full" {
		t.Errorf("error %v, want that of the writer", err)
	}
}

func TestOneWriterForBothIsWrittenToByOne(t *testing.T) {
	out := new(bytes.Buffer) // the race detector sees it otherwise
	script := `i=0; while [ $i -lt 200 ]; do echo out; echo err >&2; i=$((i+1)); done`
	if _, err := command.Run(t.Context(), command.Spec{Args: []string{"sh", "-c", script}, Env: env, Stdout: out, Stderr: out}); err != nil || out.Len() != 200*8 {
		t.Errorf("%d bytes, %v", out.Len(), err)
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
		{stays, time.Second, "30", "begun\n"},
	} {
		t.Run(c.program+c.grace.String(), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			var text bytes.Buffer
			out := writer(func(b []byte) (int, error) {
				defer cancel()
				return text.Write(b)
			})
			script := c.program + `sh -c 'trap "sleep ` + c.clean + `; echo clean; exit" TERM; echo begun; while :; do sleep 0.02; done' & while :; do wait; done`
			res, err := command.Run(ctx, command.Spec{Args: []string{"sh", "-c", script}, Env: env, Stdout: out, Grace: c.grace})
			if !errors.Is(err, context.Canceled) || text.String() != c.want {
				t.Errorf("%q, %+v, %v", text.String(), res, err)
			}
		})
	}
}

// A program may write all that a pipe holds and end before anything of it is read, and leave a process that writes on. NoLinger
// passes on the first, and does not wait for the second.
func TestTheEndOfTheProgramIsTheEndOfItsOutput(t *testing.T) {
	t.Parallel()
	var said bytes.Buffer
	slow := writer(func(b []byte) (int, error) {
		time.Sleep(10 * time.Millisecond)
		return said.Write(b)
	})
	for range suite.Size(5, 50) {
		said.Reset()
		_, err := command.Run(t.Context(), command.Spec{
			Args: []string{"sh", "-c", "setsid sleep 10 & head -c 60000 /dev/zero; echo said"}, Env: env, Stdout: slow, Grace: 5 * time.Minute, NoLinger: true,
		})
		if n := said.Len(); err != nil || n != 60005 || !strings.HasSuffix(said.String(), "said\n") {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	res, err := command.Run(t.Context(), command.Spec{
		Args: []string{"sh", "-c", "setsid timeout 60 yes & exit 3"}, Env: env, Stdout: slow, Grace: 5 * time.Minute, NoLinger: true,
	})
	if err == nil || res.ExitCode != 3 {
		t.Errorf("%+v, %v", res, err)
	}
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

func TestNoLingerWaitsForNoProcessThatLeftTheGroup(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, err := command.Run(t.Context(), command.Spec{
		Args: []string{"sh", "-c", "cd " + dir + "; setsid sh -c 'echo $$ > pid; sleep 60; echo > late' & until test -s pid; do :; done"}, Env: env,
		Stdout: new(bytes.Buffer), Grace: 5 * time.Minute, NoLinger: true,
	})
	if _, late := os.Stat(filepath.Join(dir, "late")); err != nil || late == nil {
		t.Errorf("%v; it was waited for: %v", err, late == nil)
	}
	pid, _ := os.ReadFile(filepath.Join(dir, "pid"))
	if _, err := command.Run(t.Context(), command.Spec{Args: []string{"kill", "--", "-" + strings.TrimSpace(string(pid))}, Env: env}); err != nil {
		t.Errorf("process group %q is not ended: %v", pid, err)
	}
}
