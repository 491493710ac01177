//go:build unix

package account

import "syscall"

// openFiles returns how many files this process may open, or 0 if that is unknown. Go has raised the limit to its maximum.
func openFiles() uint64 {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 0
	}
	return uint64(limit.Cur)
}
