package command

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"
)

// running is a command that has begun.
type running struct {
	cmd      *exec.Cmd
	group    *group
	out      output
	guard    *Guard // nil is none
	entry    entry  // at the guard
	grace    time.Duration
	began    time.Time
	noLinger bool
	asked    atomic.Int64 // ns after began that it was asked to end; 0: it was not
	ended    atomic.Bool  // the program has; it may be unknown to us still
}

// start starts a command. A program that is not there is an error.
func start(ctx context.Context, s Spec) (*running, error) {
	cmd := exec.CommandContext(ctx, s.Args[0], s.Args[1:]...)
	cmd.Stdin, cmd.Env = s.Stdin, s.Env
	if cmd.Env == nil {
		cmd.Env = []string{} // to exec, nil is ours
	}
	r := &running{cmd: cmd, group: newGroup(cmd, s.survives), guard: s.guard, grace: cmp.Or(s.Grace, usualGrace), noLinger: s.NoLinger}
	cmd.Cancel, cmd.WaitDelay = r.ask, r.grace // after which the program itself is killed
	if r.grace < 0 {
		cmd.WaitDelay = drainTime
	}
	if err := r.out.connect(cmd, s.Stdout, s.Stderr); err != nil {
		return nil, err
	}
	if err := r.begin(); err != nil {
		r.out.close()
		return nil, err
	}
	r.out.copy()
	return r, nil
}

// begin starts the process and tells the guard of it.
func (r *running) begin() error {
	if r.guard != nil {
		var err error
		if r.entry, err = r.guard.admit(r.cmd); err != nil {
			return err
		}
	}
	r.began = time.Now()
	if err := ours.start(r.cmd); err != nil {
		if r.guard != nil {
			r.guard.dismiss(r.entry)
		}
		return err
	}
	r.group.started()
	if r.guard != nil && !r.guard.add(r.cmd.Process.Pid) {
		r.group.kill() // the guard was closed meanwhile: nobody else would
	}
	return nil
}

// ask asks the group to end, or ends it where no grace is given.
func (r *running) ask() error {
	if r.ended.Load() {
		return os.ErrProcessDone // what it left behind has its own time to end
	}
	r.asked.Store(int64(max(1, time.Since(r.began))))
	if r.grace < 0 {
		return r.group.kill()
	}
	return r.group.ask()
}

// wait waits for the end of the program, for what it left behind to let go of its output, and ends the rest.
//
// The number of a group belongs to nobody else while one of it lives or has not been waited for. So the program is waited for
// last: then what is killed is ours, and a guard never knows a number that may stand for somebody else by now. Where a process
// cannot be seen to end without waiting for it, there is a gap, until the group is killed: for the numbers of all processes to
// come round again in that time is not likely.
func (r *running) wait(ctx context.Context) (Result, error) {
	reap := sync.OnceValue(func() error { return ours.wait(r.cmd) })
	if !r.group.awaitEnd() {
		reap()
	}
	r.ended.Store(true)
	if !r.noLinger {
		r.out.await(r.hold())
	}
	r.group.kill() // what is left of it; nothing, mostly
	if r.guard != nil {
		r.guard.dismiss(r.entry)
		r.guard.sweep(false)
		r.guard.remove(r.cmd.Process.Pid)
	}
	err := reap()
	r.group.close()
	if !r.noLinger {
		r.out.await(drainTime)
	}
	outErr := r.out.close()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil // it did well; what it left behind held its input
	}
	if err = cmp.Or(err, outErr); err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	res := Result{ExitCode: r.cmd.ProcessState.ExitCode(), Signal: signalOf(r.cmd.ProcessState)}
	res.Asked = r.asked.Load() != 0
	res.CPU = r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime()
	res.MaxRSS = maxRSS(r.cmd.ProcessState)
	return res, err
}

// hold is how long what the program left behind may still hold its output.
func (r *running) hold() time.Duration {
	asked := r.asked.Load()
	switch {
	case asked != 0:
		return r.grace - (time.Since(r.began) - time.Duration(asked))
	case r.grace < 0:
		return drainTime
	default:
		return r.grace
	}
}
