package work

import (
	"errors"
	"io/fs"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/regular"
)

// InUse reports whether a process has the journal of path open. What is not there is in nobody's use; what is no regular file
// is an error, and is not opened.
func InUse(path string) (bool, error) {
	path, err := followLinks(path)
	if err != nil {
		return false, err
	}
	f, err := regular.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // and with it the lock, should there be one now
	err = atomicfile.TryLock(f)
	if errors.Is(err, atomicfile.ErrLocked) {
		return true, nil
	}
	return false, err
}
