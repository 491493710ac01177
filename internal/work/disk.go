package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/regular"
)

// disk is where journals are. Tests put one in between whose power they cut.
type disk interface {
	Open(name string, flag int, perm fs.FileMode) (file, error)
	Rename(from, to string) error
	Remove(name string) error
	SyncDir(dir string) // makes what a directory holds last, where the system can
}

// file is an open file of a disk.
type file interface {
	io.WriteCloser
	io.ReaderAt
	Stat() (fs.FileInfo, error)
	Chmod(fs.FileMode) error
	Truncate(size int64) error
	Sync() error
	Lock() error // see atomicfile.Lock
}

// systemDisk is the disk of the system.
type systemDisk struct{}

func (systemDisk) Open(name string, flag int, perm fs.FileMode) (file, error) {
	f, err := os.OpenFile(name, flag, perm)
	return systemFile{f}, err
}

func (systemDisk) Rename(from, to string) error { return os.Rename(from, to) }
func (systemDisk) Remove(name string) error     { return os.Remove(name) }
func (systemDisk) SyncDir(dir string)           { atomicfile.SyncDir(dir) }

type systemFile struct{ *os.File }

// Lock waits a little for the lock: InUse takes it, too, for an instant.
func (f systemFile) Lock() error {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	return atomicfile.Lock(ctx, f.File)
}

// FollowLinks returns the target of a symbolic link, which need not exist; path if it is not a link.
func FollowLinks(path string) string {
	for range 40 { // more are refused by the system
		target, err := os.Readlink(path)
		if err != nil {
			break // no link, or not there
		}
		if dir, _ := filepath.Split(path); !filepath.IsAbs(target) {
			target = dir + target // not cleaned: dir may be a link, too
		}
		path = target
	}
	return path
}

// open opens and locks the file that has the journal's name then, or makes it.
func (j *Journal) open() (file, error) {
	for {
		_, err := os.Stat(j.path)
		j.created = errors.Is(err, fs.ErrNotExist)
		f, err := j.cfg.disk.Open(j.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = &regular.Error{Path: j.path}
		}
		if err == nil {
			err = f.Lock()
		}
		if errors.Is(err, atomicfile.ErrLocked) {
			state, _ := LoadState(j.state.path)
			err = &LockedError{Path: j.path, PID: state.PID}
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		// Between opening and locking, the one who had it may have replaced or removed the file.
		if now, err := os.Stat(j.path); err == nil && os.SameFile(info, now) {
			return f, nil
		}
		f.Close()
	}
}

// InUse reports whether a process has the journal of path open. What is not there is in nobody's use; what is no regular file
// is an error, and is not opened.
func InUse(path string) (bool, error) {
	f, err := regular.Open(FollowLinks(path))
	if err == nil {
		defer f.Close() // and with it the lock, should there be one now
		err = atomicfile.TryLock(f)
	}
	switch {
	case errors.Is(err, atomicfile.ErrLocked):
		return true, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	}
	return false, err
}

// LockedError is returned by OpenJournal for a journal that another process has open.
type LockedError struct {
	Path string
	PID  int // 0 when it is not known
}

// Error names the file and the process.
func (e *LockedError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%s is in use by another process", e.Path)
	}
	return fmt.Sprintf("%s is in use by process %d", e.Path, e.PID)
}

// Hint says what can be done.
func (e *LockedError) Hint() string {
	if e.PID == 0 {
		return "wait for that run, or use another output"
	}
	return fmt.Sprintf("wait for that run, stop it with kill -INT %d, or use another output", e.PID)
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *LockedError) FaultCode() string { return fault.InUse }

// missing is an error if the file is not, or not whole, where it was: somebody removed, replaced or cut it.
func (j *Journal) missing() error {
	here, err := j.file.Stat()
	if err != nil {
		return nil // closed
	}
	there, err := os.Stat(j.path)
	switch {
	case err != nil || !os.SameFile(here, there):
		return j.wrong(lostError("was removed or replaced during the run: its results are lost"))
	case here.Size() < j.size:
		return j.wrong(lostError("was truncated during the run: results are lost"))
	}
	return nil
}

// lostError is what became of a file by somebody else's hand.
type lostError string

func (e lostError) Error() string { return string(e) }

// Hint says what can be done.
func (e lostError) Hint() string {
	return "restore the file from a copy and run the same command again: items without a result are sent again"
}
