//go:build unix

package work

import (
	"errors"
	"os"
	"syscall"
)

var errLocked = errors.New("locked")

// lockFile takes the file for this process, or fails with errLocked. The lock belongs to the open file: it ends with it,
// also when the process is killed, and holds against another open file of the same process.
func lockFile(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		}
		return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
}
