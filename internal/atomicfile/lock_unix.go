//go:build unix

package atomicfile

import (
	"os"
	"syscall"
)

func lock(f *os.File) error {
	for {
		switch err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err {
		case syscall.EINTR:
		case syscall.EWOULDBLOCK:
			return ErrLocked
		default:
			return err
		}
	}
}
