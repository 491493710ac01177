package atomicfile

import (
	"os"
	"syscall"
	"unsafe"
)

var lockFileEx = syscall.NewLazyDLL("kernel32.dll").NewProc("LockFileEx")

// lock locks a byte far behind the end, so that others can read the file.
func lock(f *os.File) error {
	const exclusiveNow, violation, far = 3, syscall.Errno(33), 1 << 30
	ok, _, err := lockFileEx.Call(f.Fd(), exclusiveNow, 0, 1, 0, uintptr(unsafe.Pointer(&syscall.Overlapped{OffsetHigh: far})))
	switch {
	case ok != 0:
		return nil
	case err == violation:
		return ErrLocked
	}
	return err
}
