//go:build unix

package term

import (
	"os"
	"syscall"
)

// steerable reports whether a terminal understands escape sequences.
func steerable(*os.File) bool { return os.Getenv("TERM") != "dumb" }

// hasTerminal reports whether the process has a controlling terminal.
func HasTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	f.Close()
	return true
}
