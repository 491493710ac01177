// Package regular opens files by names at which there may be something else by now: opening a pipe waits for who writes to it,
// and a device may have no end.
package regular

import "os"

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
