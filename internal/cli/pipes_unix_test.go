//go:build unix

package cli_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/cli"
	"github.com/sluice-llm/sluice/internal/proc"
)

// Opening a pipe that nobody writes to does not end.
func TestNobodyWaitsForAPipeInThePlaceOfAnOutput(t *testing.T) {
	const running = `{"version":1,"status":"running","pid":1,"updated_at":"2026-01-01T00:00:00Z"}`
	dir, of := t.TempDir(), t.TempDir()
	pipe, input := filepath.Join(dir, "pipe.jsonl"), filepath.Join(of, "in.jsonl")
	for _, name := range []string{pipe, input, proc.ResultsPath(of)} {
		if err := syscall.Mkfifo(name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{pipe + ".state.json", proc.StatePath(of)} {
		put(t, name, running)
	}
	for _, tt := range []struct {
		name string
		args []string
		code int
		says string
	}{
		{"status of it", []string{"status", pipe}, 3, "warning: " + pipe + " is not a regular file"},
		{"status of the directory", []string{"status", dir}, 0, "warning: " + pipe + " is not a regular file"},
		{"status of commands", []string{"status", of}, 3, "is not a regular file"},
		{"answers of it", []string{"answers", pipe}, 2, pipe + " is not a regular file"},
		{"answers of commands", []string{"answers", of}, 1, "is not a regular file"},
		{"a run of it", []string{"run", "--provider", "sim", input, "-o", filepath.Join(of, "out.jsonl")}, 2, "is not a regular file: name a file, or use - and pipe the data in"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			code := make(chan int, 1)
			go func() { code <- cli.Main(t.Context(), tt.args, strings.NewReader(""), &stdout, &stderr) }()
			select {
			case got := <-code:
				if got != tt.code || !strings.Contains(stderr.String(), tt.says) {
					t.Errorf("exit code %d, and it says\n%s%s", got, &stderr, &stdout)
				}
			case <-time.After(time.Minute):
				t.Fatal("it does not end")
			}
		})
	}
}
