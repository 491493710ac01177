//go:build unix

package cli

import "syscall"

// openFiles is how many files this process may open, and 0 if that is not known. Go has raised it as far as it may.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur)
}
