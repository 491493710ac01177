package command

import (
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// group is a job that a command begins in. Without one, the command alone is ended.
type group struct {
	cmd *exec.Cmd
	job windows.Handle // 0: there is none
}

// endsWithUs: a job ends when its last handle is closed, and ours are, with us.
const endsWithUs = true

func newGroup(cmd *exec.Cmd, _ bool) *group {
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP}
	return &group{cmd: cmd}
}

// started takes the command into a job, which what it starts from then on belongs to as well.
func (g *group) started() {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return
	}
	var info windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	info.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation, uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info)))
	if err == nil {
		err = g.assign(job)
	}
	if err != nil {
		windows.CloseHandle(job)
		return
	}
	g.job = job
}

func (g *group) assign(job windows.Handle) error {
	const access = windows.PROCESS_SET_QUOTA | windows.PROCESS_TERMINATE
	process, err := windows.OpenProcess(access, false, uint32(g.cmd.Process.Pid))
	if err != nil {
		return err
	}
	defer windows.CloseHandle(process)
	return windows.AssignProcessToJobObject(job, process)
}

// awaitEnd reports that a process cannot be seen to end without waiting for it.
func (g *group) awaitEnd() bool { return false }

// ask asks the command's group to end, or ends it where no console passes that on.
func (g *group) ask() error {
	if windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, uint32(g.cmd.Process.Pid)) == nil {
		return nil
	}
	return g.cmd.Process.Kill()
}

// kill ends all in the job.
func (g *group) kill() error {
	if g.job != 0 {
		return windows.TerminateJobObject(g.job, 1)
	}
	return g.cmd.Process.Kill()
}

func (g *group) close() {
	if g.job != 0 {
		windows.CloseHandle(g.job)
	}
}

// signalOf names the signal that ended a process: there are none.
func signalOf(*os.ProcessState) string { return "" }

func maxRSS(*os.ProcessState) int64 { return 0 }

func killGroup(int) {} // jobs do it
