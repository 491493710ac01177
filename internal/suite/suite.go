// Package suite divides the tests into two suites. The fast suite is what `go test ./...` runs. The full suite adds the tests
// that take minutes, or need programs beside Go: `go test -tags full ./...`.
package suite

import "testing"

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
