package work

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/sluice-llm/sluice/internal/atomicfile"
)

// disk is where journals are. Tests put one in between whose power they cut.
type disk interface {
	Open(name string, flag int, perm fs.FileMode) (file, error)
	Stat(name string) (fs.FileInfo, error)
	Rename(from, to string) error
	Remove(name string) error
	SyncDir(dir string) // makes what a directory holds last, where the system can
}

// file is an open file of a disk.
type file interface {
	io.Writer
	io.ReaderAt
	io.Closer
	Name() string
	Stat() (fs.FileInfo, error)
	Chmod(fs.FileMode) error
	Truncate(size int64) error
	Sync() error
	Lock() error // see atomicfile.Lock
}

// openNew opens a file that becomes a journal under a name that is the caller's, and opens it as a journal is. What is there
// is what a crash left, or a link of somebody else's, who must not choose which file is written: it is taken away. Until the caller
// gives it the rights of what it replaces, it is for its owner alone.
func openNew(d disk, name string) (file, error) {
	const flag = os.O_RDWR | os.O_APPEND | os.O_CREATE | os.O_EXCL
	f, err := d.Open(name, flag, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if err := d.Remove(name); err != nil {
			return nil, err
		}
		f, err = d.Open(name, flag, 0o600)
	}
	return f, err
}

// systemDisk is the disk of the system.
type systemDisk struct{}

func (systemDisk) Open(name string, flag int, perm fs.FileMode) (file, error) {
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return systemFile{f}, nil
}

func (systemDisk) Stat(name string) (fs.FileInfo, error) { return os.Stat(name) }
func (systemDisk) Rename(from, to string) error          { return os.Rename(from, to) }
func (systemDisk) Remove(name string) error              { return os.Remove(name) }
func (systemDisk) SyncDir(dir string)                    { atomicfile.SyncDir(dir) }

type systemFile struct{ *os.File }

// Lock waits a little for the lock: InUse takes it, too, for an instant.
func (f systemFile) Lock() error {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	return atomicfile.Lock(ctx, f.File)
}
