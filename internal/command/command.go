// Package command runs other programs, each with all that it starts in a group of its own that ends with it.
//
// Run alone starts commands. No shell reads them: Split parts a line into words, and a Spec's words are passed on as they are.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// Spec is a command to run. Args is what it needs.
type Spec struct {
	Args   []string  // the program and what it is told
	Dir    string    // where it runs; "" is here
	Env    []string  // its whole environment; nil is none
	Stdin  io.Reader // nil is empty
	Stdout io.Writer // nil discards
	Stderr io.Writer // nil discards

	// Started is told of the process, which began. Nil is nobody.
	Started func(*os.Process)

	// Grace is the time between asking the group to end and killing it, when the context ends, and how long what the program
	// left behind may hold its output. Default 2 s; negative kills at once.
	Grace time.Duration
}

const (
	usualGrace = 2 * time.Second
	drainTime  = time.Second // that the output of what was killed may still come in
)

// Result is how a command ended.
type Result struct {
	ExitCode int           // -1: it did not exit by itself
	Signal   string        // that ended it; "" is none
	Took     time.Duration // from its start
}

// Run runs a command and waits for its end. When ctx ends, it is asked to end (TERM), and killed after the grace, with all in
// its group; what it leaves behind in its group is killed in any case. The error is that of ctx then, a *NotStartedError for
// a command that could not be started, or an *exec.ExitError.
func Run(ctx context.Context, s Spec) (Result, error) {
	if len(s.Args) == 0 || s.Args[0] == "" {
		return Result{ExitCode: -1}, &NotStartedError{Err: errors.New("no command is there")}
	}
	if ctx.Err() != nil {
		return Result{ExitCode: -1}, context.Cause(ctx)
	}
	cmd := exec.CommandContext(ctx, s.Args[0], s.Args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = s.Dir, s.Env, s.Stdin, s.Stdout, s.Stderr
	if cmd.Env == nil {
		cmd.Env = []string{} // to exec, nil is ours
	}
	g := newGroup(cmd)
	grace := s.Grace
	if grace == 0 {
		grace = usualGrace
	}
	cmd.Cancel, cmd.WaitDelay = g.ask, grace // after which the program itself is killed
	if grace < 0 {
		cmd.Cancel, cmd.WaitDelay = g.kill, drainTime
	}
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return Result{ExitCode: -1}, &NotStartedError{Name: s.Args[0], Err: err}
	}
	g.started()
	if s.Started != nil {
		s.Started(cmd.Process)
	}
	err := cmd.Wait()
	g.kill() // what is left of it; nothing, mostly
	g.close()
	switch {
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay):
		err = nil // it did well; what it left behind held its output
	}
	return Result{ExitCode: cmd.ProcessState.ExitCode(), Signal: signalOf(cmd.ProcessState), Took: time.Since(start)}, err
}

// Find returns where the program of a command is, or an error that names it.
func Find(args []string) (string, error) {
	if len(args) == 0 || args[0] == "" {
		return "", &NotStartedError{Err: errors.New("no command is there")}
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

// Error names the command.
func (e *NotStartedError) Error() string {
	if exec, ok := errors.AsType[*exec.Error](e.Err); ok {
		return fmt.Sprintf("%s: %v", e.Name, exec.Err)
	}
	if e.Name == "" {
		return e.Err.Error()
	}
	return fmt.Sprintf("%s: %v", e.Name, e.Err)
}

// Unwrap returns the cause.
func (e *NotStartedError) Unwrap() error { return e.Err }
