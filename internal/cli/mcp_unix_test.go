//go:build unix

package cli_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestAgentsDoNotWaitForPipes(t *testing.T) {
	d := newDesk(t)
	for _, name := range []string{"in.jsonl", "in.csv", "out.jsonl"} {
		if err := syscall.Mkfifo(filepath.Join(d.dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(t, filepath.Join(d.dir, "out.jsonl.state.json"), `{"version":1,"status":"running","pid":1,"updated_at":"2026-01-01T00:00:00Z"}`)
	for tool, args := range map[string][]map[string]any{
		"plan":   {{"rpm": 60, "workload": "in.jsonl", "model": "sim-small"}, {"rpm": 60, "workload": "in.csv"}},
		"status": {{"path": "out.jsonl"}, {"path": "."}},
	} {
		for _, one := range args {
			if a, failure := useTool(t, d.session, tool, one); !strings.Contains(failure, "is no plain file") {
				t.Errorf("%s %v: it says %q and answers %v", tool, one, failure, a)
			}
		}
	}
}
