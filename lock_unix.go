//go:build unix

package sluice

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the lock of a file, which ends with the process, and reports whether another process has it. Where
// there is no locking, nobody writes.
func lockFile(path string) (f *os.File, taken bool) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, errors.Is(err, syscall.EWOULDBLOCK)
	}
	return f, false
}

// waitLock takes the lock of a file that others hold for a moment only.
func waitLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
