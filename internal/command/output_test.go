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
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	var flooded time.Time
	out := &counter{most: 1 << 50, at: 1 << 16, then: func() {
		flooded = time.Now()
		cancel(errors.New("enough"))
	}}
	res, err := command.Run(ctx, command.Spec{
		Args: []string{"sh", "-c", "trap '' TERM; yes & yes"}, Env: env, Stdout: out, Grace: 4 * time.Second,
	})
	if took := time.Since(flooded); err == nil || err.Error() != "enough" || took > 8*time.Second { // one grace for all of it
		t.Errorf("%+v, %v, %d bytes, and %v", res, err, out.n, took)
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

// TestWhoIsAskedToEndHasItsGrace: what cleans up after the program has gone gets the rest of the grace, and no more.
func TestWhoIsAskedToEndHasItsGrace(t *testing.T) {
	for grace, want := range map[time.Duration]string{5 * time.Second: "begun\nclean\n", 50 * time.Millisecond: "begun\n", -1: "begun\n"} {
		ctx, cancel := context.WithCancel(t.Context())
		out := &waker{cancel: cancel}
		script := `trap 'exit 0' TERM; sh -c 'trap "sleep 0.4; echo clean; exit" TERM; echo begun; while :; do sleep 0.02; done' & wait`
		res, err := command.Run(ctx, command.Spec{Args: []string{"sh", "-c", script}, Env: env, Stdout: out, Grace: grace})
		if !errors.Is(err, context.Canceled) || string(out.text) != want || res.Took > 4*time.Second {
			t.Errorf("grace %v: %q, %+v, %v", grace, out.text, res, err)
		}
	}
}
