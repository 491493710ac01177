package work_test

import (
	"os"
	"path/filepath"
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
	if err := j.Append([]byte("{}\n")); err != nil {
		t.Error(err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(target); err != nil || string(b) != "{}\n" {
		t.Errorf("the target holds %q, %v", b, err)
	}
}

func TestAJournalThatIsTakenAwayIsMissed(t *testing.T) {
	for name, takeAway := range map[string]func(path string) error{
		"removed":  os.Remove,
		"cut":      func(path string) error { return os.Truncate(path, 0) },
		"replaced": func(path string) error { os.Remove(path); return os.WriteFile(path, []byte("{}\n"), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "out")
			j, err := work.OpenJournal(path, work.JournalConfig{Sync: work.SyncNone})
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close()
			if err := j.Append([]byte("{}\n")); err != nil {
				t.Fatal(err)
			}
			if err := j.Flush(); err != nil {
				t.Fatal(err)
			}
			if err := takeAway(path); err != nil {
				t.Fatal(err)
			}
			if err := j.Flush(); err == nil {
				t.Error("nobody notices that the results are gone")
			}
		})
	}
}
