// Package suite divides the tests into two suites. The fast suite is what `go test ./...` runs. The full suite adds the tests
// that take minutes, or need programs beside Go: `go test -tags full ./...`.
package suite

import (
	"os"
	"testing"
)

// FullOnly skips a test of the full suite when the fast suite runs.
func FullOnly(t testing.TB) {
	t.Helper()
	if !Full {
		t.Skip("full suite only: go test -tags full")
	}
}

// Size returns how often or how much a test does something in the suite that runs.
func Size[T any](fast, full T) T {
	if Full {
		return full
	}
	return fast
}

// InMemory keeps the temporary files of the fast suite in memory if the system has a file system there, since syncing to a disk
// takes most of the time of tests that write. A TMPDIR that is set stays. Call it from TestMain.
func InMemory() {
	if Full || os.Getenv("TMPDIR") != "" {
		return
	}
	const memory = "/dev/shm"
	if dir, err := os.MkdirTemp(memory, ""); err == nil {
		os.Remove(dir)
		os.Setenv("TMPDIR", memory)
	}
}
