// Package regular opens files by names at which there may be something else by now: opening a pipe waits for who writes to it,
// and a device may have no end.
package regular

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Error is returned for what is there and is not a regular file, such as a directory, a pipe or a device.
type Error struct{ Path string }

// Error names the file.
func (e *Error) Error() string { return e.Path + " is not a regular file" }

// Check refuses what is there and is not a regular file.
func Check(path string) error {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return &Error{path}
	}
	return nil
}

// Open opens a regular file for reading. Where there is none, the error is that of os.Open.
func Open(path string) (*os.File, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	return os.Open(path)
}

// Read returns the content of a small file or named pipe, which has at most that many MiB.
func Read(path string, maxMiB int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if kind := info.Mode().Type(); kind != 0 && kind != fs.ModeNamedPipe {
		return nil, fmt.Errorf("%s is neither a file nor a pipe", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxMiB<<20+1))
	if err == nil && int64(len(b)) > maxMiB<<20 {
		err = fmt.Errorf("%s is larger than %d MiB", path, maxMiB)
	}
	return b, err
}

// Same reports whether two paths lead to one file. No path, or "-", leads to none.
func Same(a, b string) bool {
	if a == "" || b == "" || a == "-" || b == "-" {
		return false
	}
	infoA, errA := os.Stat(a)
	infoB, errB := os.Stat(b)
	if errA != nil || errB != nil {
		return filepath.Clean(a) == filepath.Clean(b)
	}
	return os.SameFile(infoA, infoB)
}
