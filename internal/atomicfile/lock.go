package atomicfile

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrLocked is the cause of an error of Lock, TryLock and Locked while another process holds the lock, or another open file of this one.
var ErrLocked = errors.New("another process holds the lock")

// longestWait bounds each wait for a lock: its holder may be a process that stands still. Many processes on a busy machine may hold it for
// seconds in turn.
const longestWait = 10 * time.Second

// TryLock takes the lock of an open file or directory. It ends when the file is closed, and with the process. Others can read and write
// the file. On systems without such locks it does nothing.
func TryLock(f *os.File) error {
	if err := lock(f); err != nil {
		return &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return nil
}

// Lock is TryLock, and waits for other holders until ctx ends, at most 10 s.
func Lock(ctx context.Context, f *os.File) error {
	ctx, cancel := context.WithTimeout(ctx, longestWait)
	defer cancel()
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		err := TryLock(f)
		if !errors.Is(err, ErrLocked) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}

// Locked calls do while it holds the lock of the file path + ".lock", which it makes and leaves there. It waits as Lock does.
func Locked(ctx context.Context, path string, do func() error) error {
	f, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := Lock(ctx, f); err != nil {
		return err
	}
	return do()
}
