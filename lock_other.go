//go:build !unix

package sluice

import "os"

// lockFile opens the lock file. Without locks, the last process that writes wins.
func lockFile(path string) (f *os.File, taken bool) {
	f, _ = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	return f, false
}

// waitLock opens the lock file.
func waitLock(path string) (*os.File, error) { return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) }
