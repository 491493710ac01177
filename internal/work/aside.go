package work

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluice-llm/sluice/internal/atomicfile"
)

// AsidePath returns where the journal of a file is that is arranged at the end.
func AsidePath(path string) string { return path + ".journal" }

// AsideError is returned by OpenJournal for a file whose journal stands aside, unless Aside is set.
type AsideError struct {
	Path    string
	Journal string
}

// Error names both files.
func (e *AsideError) Error() string {
	return fmt.Sprintf("the results of %s are in %s, by a run that has not ended", e.Path, e.Journal)
}

// openHere opens the journal in its place.
func (j *Journal) openHere() error {
	if err := j.refuseAside(false); err != nil { // before a file is made
		return err
	}
	for {
		f, err := j.openLocked(j.out, 0)
		if errors.Is(err, fs.ErrNotExist) {
			f, err = j.openLocked(j.out, os.O_CREATE|os.O_EXCL)
			if errors.Is(err, fs.ErrExist) {
				continue
			}
			j.created = err == nil
		}
		if err != nil {
			return err
		}
		// Whoever has its journal aside looks for this file once that is there: of two that begin at once, both may go, but
		// never both stay. A file that was made here is left, since another may have its name by now.
		if err := j.refuseAside(true); err != nil {
			f.Close()
			return err
		}
		if j.isAt(f, j.out) { // nobody is left who might replace it
			j.file = f
			return nil
		}
		j.created = false
		f.Close()
	}
}

// isAt says whether an open file still has that name.
func (j *Journal) isAt(f file, name string) bool {
	here, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := j.disk.Stat(name)
	return err == nil && os.SameFile(here, there)
}

// refuseAside is an error if there is a journal aside. One without a line, such as a kill leaves, is none: who has the file
// itself removes it. Nobody else may, since a run that has the file replaces the journal aside whoever has that.
func (j *Journal) refuseAside(owner bool) error {
	aside := AsidePath(j.out)
	if _, err := j.disk.Stat(aside); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f, err := j.openLocked(aside, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	switch info, err := f.Stat(); {
	case err != nil || info.Size() == 0 && !owner:
		return err
	case info.Size() == 0:
		return j.disk.Remove(aside)
	}
	return &AsideError{Path: j.out, Journal: aside}
}

// openAside opens the journal aside. While there is none and the file itself has lines, that is the journal until the
// first Append takes it over. Both are locked, so that no run in another order begins, of an older program either.
func (j *Journal) openAside() error {
	aside := AsidePath(j.out)
	for {
		f, err := j.openLocked(aside, 0)
		switch {
		case err == nil:
			if again, err := j.haveAside(f, aside); err != nil || !again {
				return err
			}
			continue
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		f, err = j.openLocked(j.out, 0)
		switch {
		case err == nil:
			if _, err := j.disk.Stat(aside); err == nil || !j.isAt(f, j.out) { // it came between the two, and may be gone
				f.Close()
				continue
			}
			j.file, j.path, j.takes = f, j.out, true
			return nil
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		f, err = j.openLocked(aside, os.O_CREATE|os.O_EXCL)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return err
		}
		if _, err := j.disk.Stat(j.out); err == nil {
			// The file came meanwhile, perhaps with a run that has put its journal in the place of ours: it is not removed but
			// looked at again, together with the file.
			f.Close()
			continue
		}
		j.file, j.path, j.created = f, aside, true
		return nil
	}
}

// haveAside takes the journal aside that is there, and the file itself if there is one. If only that has lines, it
// counts, and the caller begins again.
func (j *Journal) haveAside(f file, aside string) (again bool, err error) {
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return false, err
	}
	j.held, err = j.openLocked(j.out, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		j.held = nil
	case err != nil:
		f.Close()
		return false, err
	}
	switch {
	case !j.isAt(f, aside): // a run that had the file took it over before we had both
		if j.held != nil {
			j.held.Close()
			j.held = nil
		}
		f.Close()
		return true, nil
	case j.held != nil && info.Size() == 0:
		err = j.disk.Remove(aside)
		j.held.Close()
		j.held = nil
		f.Close()
		return true, err
	}
	j.file, j.path = f, aside
	return false, nil
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
			err = &LockedError{Path: j.out, PID: state.PID}
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
func (j *Journal) syncDir() { j.disk.SyncDir(filepath.Dir(j.out)) }
