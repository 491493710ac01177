//go:build unix

package control

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice/internal/atomicfile"
)

// mostSocketPath is how long the path of a socket may be where it may be shortest.
const mostSocketPath = 103

// listenSocket makes the socket in a new directory that nobody else may enter, gives it its mode, and only then links it to
// its path. The process's umask, which other goroutines need, stays as it is.
func listenSocket(path string) (_ net.Listener, remove func() error, err error) {
	hidden, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(hidden)
	made := filepath.Join(hidden, "s")
	if longest := max(len(path), len(made)); longest > mostSocketPath {
		return nil, nil, fmt.Errorf("%s: the path of a socket may have %d bytes, and this takes %d", path, mostSocketPath, longest)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: made, Net: "unix"})
	if err != nil {
		return nil, nil, err
	}
	l.SetUnlinkOnClose(false)
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if err := os.Chmod(made, 0o600); err != nil {
		return nil, nil, err
	}
	own, err := os.Lstat(made)
	if err != nil {
		return nil, nil, err
	}
	if err := place(made, path, filepath.Join(hidden, "old")); err != nil {
		return nil, nil, err
	}
	return l, func() error { return removeOwn(path, own) }, nil
}

// place links the socket to its path, and takes that of a dead process away from there.
func place(made, path, aside string) error {
	defer alone(filepath.Dir(path))()
	for range 10 { // others may do the same at the same time, where nobody can be alone
		linkErr := os.Link(made, path)
		if linkErr == nil {
			return nil
		}
		there, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			if errors.Is(linkErr, fs.ErrExist) {
				continue
			}
			return os.Rename(made, path) // there are file systems without links; the error of others is the same
		}
		if err != nil {
			return err
		}
		if there.Mode().Type() != fs.ModeSocket {
			return fmt.Errorf("%s is there and no socket", path)
		}
		if err := dead(path); err != nil {
			return err
		}
		if err := takeAway(path, aside, there); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s is made and taken away by others all the time", path)
}

// alone waits until no other process replaces a socket in the directory. Else one could take away what another has just put
// there. File systems without such locks have none.
func alone(dir string) (done func()) {
	d, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	_ = atomicfile.Lock(context.Background(), d)
	return func() { d.Close() }
}

// dead returns nil if nobody listens at the socket.
func dead(path string) error {
	c, err := net.DialTimeout("unix", path, time.Second)
	switch {
	case err == nil:
		c.Close()
		return fmt.Errorf("%s: another process listens there", path)
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err // it may live: its queue is full, or it is somebody else's
}

// takeAway removes the socket that was seen at path, and puts back what came there since.
func takeAway(path, aside string, seen fs.FileInfo) error {
	if err := os.Rename(path, aside); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	defer os.Remove(aside)
	if taken, err := os.Lstat(aside); err != nil || !os.SameFile(taken, seen) {
		return errors.Join(err, os.Link(aside, path), fmt.Errorf("%s: another process listens there", path))
	}
	return nil
}

// removeOwn takes the socket away at the end, unless what is at its path now is another's.
func removeOwn(path string, own fs.FileInfo) error {
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, own) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.Remove(path)
}
