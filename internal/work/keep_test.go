package work_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/work"
)

// TestWhatAStateCannotHoldIsNotKept has a run know of more batches than a state file is read with: the one before stays.
func TestWhatAStateCannotHoldIsNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	j := openJournal(t, path, work.JournalConfig{})
	if err := j.Keep([]byte(`{"parts":1}`)); err != nil {
		t.Fatal(err)
	}
	if err := j.Keep(fmt.Appendf(nil, `{"parts":%q}`, strings.Repeat("x", 16<<20))); err == nil {
		t.Error("a state is kept that is too long to be read")
	}
	state, err := work.LoadState(work.StatePath(path))
	if err != nil || !strings.Contains(string(state.Batches), `"parts": 1`) {
		t.Errorf("the state has %.40q, %v", state.Batches, err)
	}
}

func TestADraftOfAStateThatAKillLeftIsNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "out.jsonl")
	draft := work.StatePath(path) + ".tmp"
	if err := os.WriteFile(draft, []byte(`{"status":"runn`), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := work.OpenJournal(path, work.JournalConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Keep([]byte(`{"a":1}`)); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(work.StatePath(path) + "*.tmp"); err != nil || len(left) > 0 {
		t.Errorf("%q, %v", left, err)
	}
	if state, err := work.LoadState(work.StatePath(path)); err != nil || !strings.Contains(string(state.Batches), `"a": 1`) {
		t.Errorf("%+v, %v", state, err)
	}
}
