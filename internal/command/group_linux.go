package command

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// dieWithUs lets the kernel kill a command when we end, however we do. In truth the signal comes when the thread ends that
// started the command (golang.org/issue/27505). Go's threads do not end, but for one whose goroutine locked itself to it and
// ended so, which none of ours does; the first thread is kept even then.
func dieWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// awaitEnd waits until the program has ended, and leaves it to be waited for: until then its number stays taken.
func (g *group) awaitEnd() bool {
	for {
		err := unix.Waitid(unix.P_PID, g.cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return err == nil
		}
	}
}

func maxRSS(state *os.ProcessState) int64 {
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		return int64(usage.Maxrss) << 10 // the kernel counts in KiB
	}
	return 0
}
