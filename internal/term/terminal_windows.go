package term

import (
	"os"

	"golang.org/x/sys/windows"
)

// steerable reports whether a terminal understands escape sequences.
func steerable(f *os.File) bool {
	var mode uint32
	console := windows.Handle(f.Fd())
	return windows.GetConsoleMode(console, &mode) == nil &&
		windows.SetConsoleMode(console, mode|windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING) == nil
}
