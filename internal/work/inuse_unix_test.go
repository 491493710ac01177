//go:build unix

package work_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/work"
)

func TestWhoAsksWhetherAJournalIsInUseKeepsNobodyFromOpeningIt(t *testing.T) {
	path := journalPath(t)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil { // as InUse does, for an instant
		t.Fatal(err)
	}
	done := make(chan error)
	time.AfterFunc(20*time.Millisecond, func() { done <- syscall.Flock(int(f.Fd()), syscall.LOCK_UN) })
	openJournal(t, path, work.JournalConfig{}).Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Reading a pipe that nobody writes to does not end.
func TestAPipeIsNeitherAStateNorInUse(t *testing.T) {
	path := journalPath(t)
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan bool)
	go func() {
		if _, err := work.LoadState(path); err == nil {
			t.Error("a pipe is read")
		}
		if used, err := work.InUse(path); used || err == nil || err.Error() != path+" is not a regular file" {
			t.Errorf("in use: %v, %v", used, err)
		}
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}
