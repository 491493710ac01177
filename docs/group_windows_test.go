//go:build full

package docs_test

import (
	"os"
	"syscall"
)

// inGroup is nothing, as no session of a document runs on Windows.
func inGroup() *syscall.SysProcAttr { return nil }

func endGroup(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		p.Kill()
	}
}
