//go:build unix

package command

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// group is a process group that begins with a command.
type group struct{ cmd *exec.Cmd }

// endsWithUs: a group does not end with this process by itself.
const endsWithUs = false

// newGroup lets the command begin a group, away from the terminal's: Ctrl-C is for us to pass on. Unless it survives us, the
// command is killed at our end where that can be.
func newGroup(cmd *exec.Cmd, survives bool) *group {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if !survives {
		dieWithUs(cmd.SysProcAttr)
	}
	return &group{cmd}
}

func (g *group) started() {}
func (g *group) close()   {}

// ask asks all in the group to end.
func (g *group) ask() error { return g.signal(syscall.SIGTERM) }

// kill ends all in the group.
func (g *group) kill() error { return g.signal(syscall.SIGKILL) }

func (g *group) signal(sig syscall.Signal) error {
	err := syscall.Kill(-g.cmd.Process.Pid, sig)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// signalOf names the signal that ended a process; "" is none.
func signalOf(state *os.ProcessState) string {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return unix.SignalName(status.Signal())
	}
	return ""
}

func killGroup(group int) { _ = syscall.Kill(-group, syscall.SIGKILL) }
