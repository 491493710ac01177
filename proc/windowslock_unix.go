//go:build unix

package proc

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockTries is how often, 5 ms apart, the lock is asked for: many runs on a busy machine hold it for seconds in turn.
const lockTries = 2000

// lockSoon takes the lock of a file that others hold for a moment only, and returns what lets go of it. It ends with the
// process in any case.
func lockSoon(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for tries := 0; ; tries++ {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if tries == lockTries || !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			f.Close()
			return nil, err
		}
		time.Sleep(5 * time.Millisecond)
	}
}
