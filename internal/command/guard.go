package command

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// What a command with a guard has in its environment: which run it is of, and which command of it.
const (
	runVariable     = "SLUICE_RUN"
	commandVariable = "SLUICE_COMMAND"
)

// mark is what these say.
type mark struct{ run, command string }

// entry is a command at its guard.
type entry = string

const (
	tellWithin  = 5 * time.Second  // a guard has to read, or it is taken for dead
	closeWithin = 15 * time.Second // it has to end
	soonest     = time.Second      // between two starts of a guard
)

// Guard owns every process that the commands of a run start, so that none is left when the run ends, however it ends. It tells
// a small process, which outlives this one, of the groups that are open; at the end of its input, that one kills them. On Linux,
// commands also carry a mark in their environment, by which those are found that left their group, and this process becomes the
// parent of orphans, which end with their command. What left its group and its environment is ended by Close once it is an
// orphan; it stays only where this process is killed. On Windows the commands' jobs end with this process, and that is all
// there is. A Guard is safe for concurrent use.
type Guard struct {
	args    []string
	run     string // the mark
	lost    func(error)
	next    atomic.Int64
	running sync.Map           // by entry: the commands that are not over
	cancel  context.CancelFunc // ends the process
	closing chan struct{}
	ended   chan struct{} // closed when the process has, and no other will be started

	mu      sync.Mutex
	groups  map[int]struct{} // open, whether the process knows them or not
	process *os.Process
	input   *os.File // of the process; nil: there is none
	closed  bool
}

// StartGuard starts a guard. Args is a command that calls ServeGuard with its standard input and its last argument, which is
// added to them. If its process ends before Close, lost is told why, but only the first time, and another takes its place. Nil
// is nobody.
func StartGuard(args []string, lost func(error)) (*Guard, error) {
	if lost == nil {
		lost = func(error) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	g := &Guard{
		args: args, run: rand.Text(), lost: lost, cancel: cancel, groups: map[int]struct{}{},
		closing: make(chan struct{}), ended: make(chan struct{}),
	}
	if endsWithUs {
		close(g.ended)
		return g, nil
	}
	began := make(chan error, 1)
	go g.keep(ctx, began)
	if err := <-began; err != nil {
		cancel()
		<-g.ended
		return nil, err
	}
	ours.adopt()
	return g, nil
}

// Run runs a command like the function Run. The guard ends all that it started. A nil Guard ends only its group.
func (g *Guard) Run(ctx context.Context, s Spec) (Result, error) {
	s.guard = g
	return Run(ctx, s)
}

// Close ends what is left of the run, commands that still run included, and the guard. The error says that something may be left.
func (g *Guard) Close() error {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		<-g.ended
		return nil
	}
	g.closed = true
	close(g.closing)
	input, groups := g.input, maps.Clone(g.groups)
	g.input = nil
	g.mu.Unlock()
	defer g.cancel()
	if endsWithUs {
		return nil
	}
	var err error
	if input != nil {
		input.Close()
		late := time.AfterFunc(closeWithin, g.cancel)
		<-g.ended
		if !late.Stop() {
			err = fmt.Errorf("the guard process did not exit within %v: look for processes with the variable %s=%s", closeWithin, runVariable, g.run)
		}
	} else {
		<-g.ended
		err = endAll(groups, g.run)
	}
	g.sweep(true)
	ours.disown()
	return err
}

// keep has a process until Close. It says on began whether the first one was started.
func (g *Guard) keep(ctx context.Context, began chan<- error) {
	defer close(g.ended)
	for first := true; ; first = false {
		start, started := time.Now(), false
		err := g.serve(ctx, func() {
			if started = true; first {
				began <- nil
			}
		})
		switch {
		case g.isClosing():
			return
		case first && !started:
			began <- err
			return
		case first:
			g.lost(err)
		}
		pause := time.NewTimer(soonest - time.Since(start))
		select {
		case <-pause.C:
		case <-g.closing:
			pause.Stop()
			return
		}
	}
}

func (g *Guard) isClosing() bool {
	select {
	case <-g.closing:
		return true
	default:
		return false
	}
}

// serve has one process, until it ends.
func (g *Guard) serve(ctx context.Context, began func()) error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close() // not before it has ended: the end of its input is an order to it
	defer g.disconnect(w)
	_, err = Run(ctx, Spec{
		Args: slices.Concat(g.args, []string{g.run}), Stdin: r, survives: true,
		Started: func(p *os.Process) {
			r.Close()
			g.connect(w, p)
			began()
		},
	})
	return cmp.Or(err, errors.New("the guard process exited unexpectedly"))
}

// connect makes a process the one that is told, of what is open first.
func (g *Guard) connect(w *os.File, p *os.Process) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		w.Close()
		return
	}
	g.input, g.process = w, p
	for group := range g.groups {
		g.tellLocked('+', group)
	}
}

func (g *Guard) disconnect(w *os.File) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.input == w {
		g.input = nil
	}
}

// admit gives a command that is about to start its mark.
func (g *Guard) admit(cmd *exec.Cmd) (entry, error) {
	if g.isClosing() {
		return "", errors.New("the guard process is closed")
	}
	e := strconv.FormatInt(g.next.Add(1), 10)
	g.running.Store(e, struct{}{})
	cmd.Env = append(slices.Clip(cmd.Env), runVariable+"="+g.run, commandVariable+"="+e)
	return e, nil
}

// dismiss makes orphans of a command fair game: it is over.
func (g *Guard) dismiss(e entry) { g.running.Delete(e) }

func (g *Guard) over(e entry) bool {
	_, on := g.running.Load(e)
	return !on
}

// add makes a group one that the process kills if we do not live to do it. It reports whether it could. If we are killed before,
// the kernel ends the program, and its mark the rest.
func (g *Guard) add(group int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.groups[group] = struct{}{}
	g.tellLocked('+', group)
	return !g.closed
}

func (g *Guard) remove(group int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.groups, group)
	g.tellLocked('-', group)
}

// tellLocked writes under the lock because the order counts: a group that is opened after its end would be killed when its number
// is somebody else's. The pipe takes thousands of lines before it makes us wait.
func (g *Guard) tellLocked(sign byte, group int) {
	if g.input == nil {
		return
	}
	_ = g.input.SetWriteDeadline(time.Now().Add(tellWithin))
	if _, err := fmt.Fprintf(g.input, "%c%d\n", sign, group); err != nil {
		_ = g.process.Kill() // it is dead, or hangs; to close its input would make it kill what runs, once it reads on
		g.input = nil
	}
}
