package work

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-llm/sluice/internal/atomicfile"
)

// open opens the journal, or makes it.
func (j *Journal) open() error {
	for {
		f, err := j.openLocked(j.path, 0)
		if errors.Is(err, fs.ErrNotExist) {
			f, err = j.openLocked(j.path, os.O_CREATE|os.O_EXCL)
			j.created = err == nil
		}
		if !errors.Is(err, fs.ErrExist) {
			j.file = f
			return err
		}
	}
}

// openLocked opens and locks the file that has that name then. With O_EXCL it is a file that it made.
func (j *Journal) openLocked(name string, flag int) (file, error) {
	for {
		f, err := j.disk.Open(name, os.O_RDWR|os.O_APPEND|flag, 0o644)
		if err != nil {
			return nil, err
		}
		info, err := f.Stat()
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file", name)
		}
		if err == nil {
			err = f.Lock()
		}
		if errors.Is(err, atomicfile.ErrLocked) {
			state, _ := LoadState(j.statePath())
			err = &LockedError{Path: j.path, PID: state.PID}
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		// Between opening and locking, the one who had it may have replaced or removed the file.
		now, err := j.disk.Stat(name)
		if err == nil && os.SameFile(info, now) {
			return f, nil
		}
		f.Close()
		if flag&os.O_EXCL != 0 {
			return nil, fs.ErrExist // the name is, or was, another's: the caller looks again
		}
	}
}

// syncDir makes names in the journal's directory last.
func (j *Journal) syncDir() { j.disk.SyncDir(filepath.Dir(j.path)) }
