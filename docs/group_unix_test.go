//go:build unix && full

package docs_test

import "syscall"

// inGroup has a process be the first of a group.
func inGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// endGroup kills the group of a process.
func endGroup(pid int) { syscall.Kill(-pid, syscall.SIGKILL) }
