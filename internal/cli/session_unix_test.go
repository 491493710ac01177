//go:build unix

package cli_test

import "syscall"

// ownSession has a process begin a session of its own.
func ownSession() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
