//go:build unix

package stress

import "syscall"

// canStop says that processes can be stopped here, and go on later.
const canStop = true

func (c *child) stop() error   { return c.process.Signal(syscall.SIGSTOP) }
func (c *child) resume() error { return c.process.Signal(syscall.SIGCONT) }
