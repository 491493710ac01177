//go:build unix

package gateway

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lock takes the lock of a file, which others hold for a moment only: one that stands still must not hold up who stops. It ends
// with the file.
func lock(f *os.File) error {
	const patience, pause = 5 * time.Second, 10 * time.Millisecond
	for until := time.Now().Add(patience); ; time.Sleep(pause) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		taken := errors.Is(err, syscall.EWOULDBLOCK)
		switch {
		case taken && time.Now().After(until):
			return errors.New("another process holds it")
		case !taken && !errors.Is(err, syscall.EINTR):
			return err
		}
	}
}
