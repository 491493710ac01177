//go:build unix && !linux

package command

import (
	"os"
	"runtime"
	"syscall"
)

// dieWithUs does nothing: there is no such signal.
func dieWithUs(*syscall.SysProcAttr) {}

// awaitEnd reports that a process cannot be seen to end without waiting for it.
func (g *group) awaitEnd() bool { return false }

func maxRSS(state *os.ProcessState) int64 {
	usage, ok := state.SysUsage().(*syscall.Rusage)
	switch {
	case !ok:
		return 0
	case runtime.GOOS == "darwin" || runtime.GOOS == "ios":
		return int64(usage.Maxrss) // bytes there, and KiB elsewhere
	default:
		return int64(usage.Maxrss) << 10
	}
}
