// Package command runs other programs, each with all that it starts in a group of its own that ends with it.
//
// Run alone starts commands. No shell reads them: Split parts a line into words, and a Spec's words are passed on as they are.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice/internal/fault"
)

// Spec is a command to run. Args is what it needs.
type Spec struct {
	Args   []string  // the program and what it is told
	Env    []string  // its whole environment; nil is none
	Stdin  io.Reader // nil is empty
	Stdout io.Writer // nil discards
	Stderr io.Writer // nil discards

	// Started is told of the process, which began. Nil is nobody.
	Started func(*os.Process)

	// Grace is the time between asking the group to end and killing it, when the context ends, and how long what the program
	// left behind may hold its output. Default 2 s; negative kills at once.
	Grace time.Duration

	// NoLinger ends the output with the program: processes that it left behind are killed at once, even if they hold the output.
	NoLinger bool

	guard    *Guard // nil is none
	survives bool   // the end of this process: a guard's own
}

const (
	usualGrace = 2 * time.Second
	drainTime  = time.Second // that the output of what was killed may still come in
)

// Result is how a command ended.
type Result struct {
	ExitCode int           // -1: it did not exit by itself
	Signal   string        // that ended it; "" is none
	Asked    bool          // it was asked to end, or killed, before it did: exit code 0 says little then
	CPU      time.Duration // of it and of what it waited for, in programs and in the kernel

	// MaxRSS is the most bytes of memory that it, or one process that it waited for, had at once; 0 is not known. On Linux it is
	// never less than what this process had: a command begins in our memory, and the kernel counts that.
	MaxRSS int64
}

// Run runs a command and waits for its end. When ctx ends, it is asked to end (TERM), and killed after the grace, with all in
// its group; what it leaves behind in its group is killed in any case, and with a Guard, on Linux, what left the group too.
// Where this process ends first, the program is killed on Linux, and all of it with a Guard. The error is that of ctx then, a
// *NotStartedError for a command that could not be started, or an *exec.ExitError.
func Run(ctx context.Context, s Spec) (Result, error) {
	if len(s.Args) == 0 || s.Args[0] == "" {
		return Result{ExitCode: -1}, &NotStartedError{Err: errors.New("the command is empty")}
	}
	if ctx.Err() != nil {
		return Result{ExitCode: -1}, context.Cause(ctx)
	}
	r, err := start(ctx, s)
	if err != nil {
		return Result{ExitCode: -1}, &NotStartedError{Name: s.Args[0], Err: err}
	}
	if s.Started != nil {
		s.Started(r.cmd.Process)
	}
	return r.wait(ctx)
}

// Find returns where the program of a command is, or an error that names it.
func Find(args []string) (string, error) {
	if len(args) == 0 || args[0] == "" {
		return "", &NotStartedError{Err: errors.New("the command is empty")}
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return "", &NotStartedError{Name: args[0], Err: err}
	}
	return path, nil
}

// NotStartedError is why a command was not started.
type NotStartedError struct {
	Name string
	Err  error
}

// Hint says what can be done.
func (e *NotStartedError) Hint() string {
	if _, missing := errors.AsType[*exec.Error](e.Err); missing {
		return "name an executable in PATH or by its path, or run a shell command with sh -c"
	}
	return ""
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *NotStartedError) FaultCode() string { return fault.Program }

// Error names the command.
func (e *NotStartedError) Error() string {
	if errors.Is(e.Err, exec.ErrNotFound) {
		return e.Name + " is not a program in PATH"
	}
	if exec, ok := errors.AsType[*exec.Error](e.Err); ok {
		return fmt.Sprintf("%s: %v", e.Name, exec.Err)
	}
	if e.Name == "" {
		return e.Err.Error()
	}
	if path, ok := errors.AsType[*fs.PathError](e.Err); ok && path.Op == "fork/exec" {
		return fmt.Sprintf("%s: %v%s", e.Name, path.Err, explained(path.Err))
	}
	return fmt.Sprintf("%s: %v", e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *NotStartedError) Unwrap() error { return e.Err }

// Is reports whether no program of the name was found, which is an fs.ErrNotExist too.
func (e *NotStartedError) Is(target error) bool {
	return target == fs.ErrNotExist && errors.Is(e.Err, exec.ErrNotFound)
}

// explained is what a system's word means of a program that was found.
func explained(err error) string {
	switch {
	case errors.Is(err, syscall.ENOEXEC):
		return ": the file is not a program for this computer, or is a script without a first line such as #!/bin/sh"
	case errors.Is(err, fs.ErrNotExist):
		return ": the file is missing, or its first line names a missing program"
	}
	return ""
}
