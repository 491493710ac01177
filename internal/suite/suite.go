// Package suite divides the tests into two suites. `go test ./...` runs the fast suite. `go test -tags full ./...` runs the full
// suite, which adds tests that take longer or need programs other than Go.
package suite

import (
	"flag"
	"os"
	"testing"

	_ "pgregory.net/rapid" // registers its flags
)

// init has property tests of the fast suite draw the same values each time.
func init() {
	if !Full {
		flag.Set("rapid.seed", "1")
	}
}

// FullOnly skips the test unless the full suite runs.
func FullOnly(t testing.TB) {
	t.Helper()
	if !Full {
		t.Skip("full suite only: go test -tags full")
	}
}

// Size returns the size of a test, such as its number of rounds, in the suite that runs.
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

// Generated compares a generated document with the file. With SLUICE_TEST_WRITE set, as by go generate, it writes the file.
func Generated(t testing.TB, path, text string) {
	t.Helper()
	if os.Getenv("SLUICE_TEST_WRITE") != "" {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != text {
		t.Errorf("%s is not up to date: run go generate ./... (%v)", path, err)
	}
}
