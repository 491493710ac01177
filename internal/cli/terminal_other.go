//go:build !unix

package cli

// hasTerminal reports whether the process has a controlling terminal, which only matters where one hangs up.
func hasTerminal() bool { return false }
