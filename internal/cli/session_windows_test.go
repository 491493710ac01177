package cli_test

import "syscall"

// ownSession is nothing: there are no such sessions.
func ownSession() *syscall.SysProcAttr { return nil }
