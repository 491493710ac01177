//go:build unix

package work_test

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

func TestAJournalIsInUseWhileItIsOpen(t *testing.T) {
	path := journalPath(t)
	check := func(when string, want bool) {
		t.Helper()
		if got, err := work.InUse(path); err != nil || got != want {
			t.Errorf("%s: %v, %v", when, got, err)
		}
	}
	check("before it is there", false)
	j := openJournal(t, path, work.JournalConfig{})
	check("open", true)
	if _, err := j.Append([]byte("{}\n")); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	check("closed", false)
	child := startChild(t, "hold", path)
	check("open elsewhere", true)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(path, link); err == nil {
		if got, err := work.InUse(link); err != nil || !got {
			t.Errorf("behind a link: %v, %v", got, err)
		}
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	check("of a process that was killed", false)
}

func TestTheStateSaysThatARunIsPaused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := journalPath(t)
		var pauses work.Pauses
		j := openJournal(t, path, work.JournalConfig{})
		defer j.Close()
		r := newRunner(t, work.Config{Journal: j, Encode: encode, Pauses: &pauses, Handler: &fake{took: time.Minute}})
		add(t, r, numbered(1)...)
		said := func(after time.Duration, events []sluice.Event, want work.State) {
			time.AfterFunc(after, func() {
				for _, e := range events {
					pauses.Observe(e)
				}
				synctest.Wait()
				time.Sleep(time.Millisecond) // for the file, which is outside the bubble's time
				s, err := work.LoadState(work.StatePath(path))
				if err != nil || s.Status != want.Status || s.Reason != want.Reason || s.PauseCount != want.PauseCount {
					t.Errorf("after %s: %+v, %v, want %+v", after, s, err, want)
				}
			})
		}
		pause := func(account string) sluice.Event { return sluice.Event{Type: limits.EventPaused, Account: account} }
		resume := func(account string) sluice.Event { return sluice.Event{Type: limits.EventResumed, Account: account} }
		held := work.State{Status: work.Paused, Reason: "the scheduler is paused", PauseCount: 1}
		said(5*time.Second, nil, work.State{Status: work.Running})
		said(10*time.Second, []sluice.Event{pause("a"), pause("b")}, held)
		said(20*time.Second, []sluice.Event{resume("a")}, held) // the other account still pauses
		said(30*time.Second, []sluice.Event{resume("b")}, work.State{Status: work.Running, PauseCount: 1})
		said(40*time.Second, []sluice.Event{pause("a")}, work.State{Status: work.Paused, Reason: "the scheduler is paused", PauseCount: 2})
		if _, err := r.Run(t.Context()); err != nil {
			t.Error(err)
		}
		s, err := work.LoadState(work.StatePath(path))
		if err != nil || s.Status != work.Completed || s.Reason != "" {
			t.Errorf("at the end: %+v, %v", s, err)
		}
	})
}
