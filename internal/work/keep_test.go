package work_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-llm/sluice/internal/work"
)

func TestADraftOfAStateThatAKillLeftIsNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	draft := work.StatePath(path) + ".tmp"
	if err := os.WriteFile(draft, []byte(`{"status":"runn`), 0o600); err != nil {
		t.Fatal(err)
	}
	openJournal(t, path, work.JournalConfig{})
	if left, err := filepath.Glob(work.StatePath(path) + "*.tmp"); err != nil || len(left) > 0 {
		t.Errorf("%q, %v", left, err)
	}
	if state, err := work.LoadState(work.StatePath(path)); err != nil || state.PID != os.Getpid() {
		t.Errorf("%+v, %v", state, err)
	}
}
