package cli

import (
	"errors"
	"os"
	"runtime"
	"syscall"
)

// processLives reports whether a process of that number is there.
func processLives(pid int) bool {
	if pid <= 0 {
		return false
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return false
	}
	defer p.Release()
	if runtime.GOOS == "windows" { // which finds none that is not there, and takes no such signal
		return true
	}
	err = p.Signal(syscall.Signal(0))
	return err == nil || errors.Is(err, os.ErrPermission)
}
