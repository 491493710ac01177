package command

import (
	"os/exec"
	"sync"
)

// children are the processes that have this process for their parent: those that Run started and, on Linux while there is a
// Guard, orphans of these.
type children struct {
	mu      sync.RWMutex // held to read while one is started or forgotten, to write while orphans are looked for
	started sync.Map     // *exec.Cmd by process number: not waited for yet
	orphans
}

// ours is a variable of the package, which is against the rule, because it describes what the process has only one of. Who looks
// for orphans has to know every command, with or without a guard: to wait for a process that os/exec waits for as well would
// take its end away from there. It is like syscall.ForkLock.
var ours children

// start starts a command. A look for orphans does not see it before it is known as none.
func (c *children) start(cmd *exec.Cmd) error {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if err := cmd.Start(); err != nil {
		return err
	}
	c.started.Store(cmd.Process.Pid, cmd)
	return nil
}

// wait waits for a command. Its number may stand for another one by the time that it is forgotten.
func (c *children) wait(cmd *exec.Cmd) error {
	err := cmd.Wait()
	c.mu.RLock()
	defer c.mu.RUnlock()
	c.started.CompareAndDelete(cmd.Process.Pid, cmd)
	return err
}

// known reports whether a process was started by Run and has not been waited for.
func (c *children) known(pid int) bool {
	_, ok := c.started.Load(pid)
	return ok
}
