package term

import (
	"os"

	"golang.org/x/sys/windows"
)

// hasTerminal reports whether the process has a controlling terminal, which only matters where one hangs up.
func HasTerminal() bool { return false }

// steerable reports whether a terminal understands escape sequences.
func steerable(f *os.File) bool {
	var mode uint32
	console := windows.Handle(f.Fd())
	return windows.GetConsoleMode(console, &mode) == nil &&
		windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
