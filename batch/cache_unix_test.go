//go:build unix

package batch_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Reading a pipe that nobody writes to does not end.
func TestAPipeInACacheIsNoAnswer(t *testing.T) {
	f := newFiles(t, chats(3))
	dir := filepath.Join(t.TempDir(), "cache")
	cachedRun(t, f, dir, nil)
	pipe := func(path string) {
		err := os.Remove(path)
		if err == nil {
			err = syscall.Mkfifo(path, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	pipe(entries(t, dir)[0])
	within(t, func() {
		if rep, calls, said := cachedRun(t, f, dir, nil); calls != 1 || rep.Cached != 2 || !strings.Contains(said, "not a regular file") {
			t.Errorf("%d calls, %+v, said %q", calls, rep, said)
		}
	})
	if rep, calls, said := cachedRun(t, f, dir, nil); calls != 0 || rep.Cached != 3 || said != "" {
		t.Errorf("then %d calls, %+v, said %q", calls, rep, said)
	}
}

// within fails the test if do does not end.
func within(t *testing.T, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("it does not end")
	}
}
