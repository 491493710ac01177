package work

import (
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/sluice-llm/sluice/internal/regular"
)

// InUse reports whether a process has the journal of path open, in its place or aside. What is not there is in nobody's
// use; what is no regular file is an error, and is not opened.
func InUse(path string) (bool, error) {
	path, err := followLinks(path)
	if err != nil {
		return false, err
	}
	for _, name := range []string{path, AsidePath(path)} {
		if used, err := locked(name); used || err != nil {
			return used, err
		}
	}
	return false, nil
}

// locked reports whether a process has a lock on the file of that name.
func locked(name string) (bool, error) {
	f, err := regular.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // and with it the lock, should there be one now
	err = lockFile(f)
	if errors.Is(err, errLocked) {
		return true, nil
	}
	return false, err
}

// lockSoon locks the file, and waits a little if it is locked: InUse locks too, for an instant.
func lockSoon(f *os.File) error {
	const tries, apart = 40, 5 * time.Millisecond
	for range tries {
		if err := lockFile(f); !errors.Is(err, errLocked) {
			return err
		}
		time.Sleep(apart)
	}
	return lockFile(f)
}
