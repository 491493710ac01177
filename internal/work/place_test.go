package work_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/sluice-llm/sluice/internal/work"
)

func TestAJournalBehindALinkToNothingIsMadeWhereItLeads(t *testing.T) {
	dir := t.TempDir()
	link, target := filepath.Join(dir, "link"), filepath.Join(dir, "target")
	if err := os.Symlink("target", link); err != nil {
		t.Skip(err)
	}
	j, err := work.OpenJournal(link, work.JournalConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Append([]byte("{}\n")); err != nil {
		t.Error(err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != "{}\n" {
		t.Errorf("the target holds %q, %v", b, err)
	}
}

// Who appends has called for results that nobody would ever read.
func TestAJournalThatIsTakenAwayTakesNoMore(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file can be neither removed nor cut there")
	}
	for name, takeAway := range map[string]func(path string) error{
		"removed":  os.Remove,
		"cut":      func(path string) error { return os.Truncate(path, 0) },
		"replaced": func(path string) error { os.Remove(path); return os.WriteFile(path, []byte("{}\n"), 0o600) },
	} {
		for _, mode := range []work.SyncMode{work.SyncInterval, work.SyncEach} {
			path := journalPath(t)
			j := openJournal(t, path, work.JournalConfig{Sync: mode})
			for i, want := range []bool{true, false} {
				if err := j.Flush(); (err == nil) != want {
					t.Errorf("%s: Flush returns %v", name, err)
				}
				if _, err := j.Append([]byte("{}\n")); (err == nil) != want {
					t.Errorf("%s: Append returns %v", name, err)
				}
				if i > 0 {
					break
				}
				if err := takeAway(path); err != nil {
					t.Fatal(err)
				}
			}
			if err := j.Close(); err == nil {
				t.Errorf("%s: at the end all is well", name)
			}
		}
	}
}
