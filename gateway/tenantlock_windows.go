package gateway

import (
	"os"

	"golang.org/x/sys/windows"
)

// lock takes the lock of a file, which others hold for a moment only. It ends with the file.
func lock(f *os.File) error {
	return windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK, 0, 1, 0, &windows.Overlapped{})
}
