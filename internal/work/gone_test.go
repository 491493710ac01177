package work_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/sluice-llm/sluice/internal/work"
)

// TestAJournalThatIsGoneTakesNoMore: whoever appends has called for results that nobody would ever read.
func TestAJournalThatIsGoneTakesNoMore(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an open file can be neither removed nor cut there")
	}
	for name, spoil := range map[string]func(path string) error{
		"removed": os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 0) },
	} {
		path := filepath.Join(t.TempDir(), "out.jsonl")
		j, err := work.OpenJournal(path, work.JournalConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Append([]byte("a\n")); err != nil {
			t.Fatal(err)
		}
		if err := spoil(path); err != nil {
			t.Fatal(err)
		}
		if err := j.Flush(); err == nil {
			t.Errorf("%s: nobody is told", name)
		}
		if err := j.Append([]byte("b\n")); err == nil {
			t.Errorf("%s: another line is taken", name)
		}
		if err := j.Close(); err == nil {
			t.Errorf("%s: at the end all is well", name)
		}
	}
}
