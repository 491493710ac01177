package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	sweepTime  = 2 * time.Second // in which a killed process has to end, and an environment to appear
	looksAtOne = 4               // reads of the list in a row, while a process on it had ended and left us its children
)

// orphans are those of our children that Run did not start: what left the group of its command and lost its parent becomes a
// child of ours while there is a Guard. It is found in the list of children of our first thread, to which the kernel gives
// orphans as long as it lives, and Go lets it live as long as the process. What Run starts is in the list of the thread that
// started it.
type orphans struct {
	guards int
	list   *os.File        // nil: the kernel has none, and a guard finds orphans by their mark at the end
	group  int             // ours: nothing of a command is in it
	before map[int]bool    // children that were there before the first guard: they are not of a command
	seen   map[int]*orphan // by process number, which stays its own until look waits for it
}

type orphan struct {
	mark
	read   bool // the mark is all that there will be
	found  time.Time
	killed time.Time // zero: it was not
}

// adopt makes us the parent of orphans from now on.
func (c *children) adopt() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.guards++; c.guards > 1 {
		return
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // it fails on old kernels: see list
	pid := strconv.Itoa(os.Getpid())
	c.list, _ = os.Open(filepath.Join("/proc", pid, "task", pid, "children"))
	c.group, c.before, c.seen = syscall.Getpgrp(), map[int]bool{}, map[int]*orphan{}
	for _, pid := range c.now() {
		if !c.known(pid) {
			c.before[pid] = true
		}
	}
}

// disown leaves orphans to others again, once there is no guard: nobody would wait for them here.
func (c *children) disown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.guards--; c.guards > 0 {
		return
	}
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
	if c.list != nil {
		c.list.Close()
		c.list = nil
	}
}

// sweep ends the orphans of commands that are over, and what they leave in turn. With all, it ends those of no command too.
func (g *Guard) sweep(all bool) {
	for end := time.Now().Add(sweepTime); ours.look(g, all) && time.Now().Before(end); {
		time.Sleep(time.Millisecond) // until what was killed is gone
	}
}

// look kills orphans, waits for those that have ended, and reports whether there is a reason to look again soon.
func (c *children) look(g *Guard, all bool) (again bool) {
	if !c.strange() {
		return false
	}
	// Nothing is started now. What was, is known, and what ends is still known when it has been waited for.
	c.mu.Lock()
	defer c.mu.Unlock()
	for range looksAtOne {
		again = false
		anyEnded := false
		for _, pid := range c.now() {
			if c.known(pid) || c.before[pid] {
				continue
			}
			ended, soon := c.handle(pid, g, all)
			anyEnded, again = anyEnded || ended, again || soon
		}
		if !anyEnded {
			break
		}
	}
	return again
}

// strange reports whether there is a child that Run did not start, without holding up those that start. Mostly there is none.
func (c *children) strange() bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	for _, pid := range c.now() {
		if !c.known(pid) && !c.before[pid] {
			return true
		}
	}
	return false
}

// handle does what is to be done with an orphan.
func (c *children) handle(pid int, g *Guard, all bool) (ended, again bool) {
	group, err := syscall.Getpgid(pid)
	if err != nil || group == c.group {
		return false, false
	}
	if got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); got == pid || err != nil {
		delete(c.seen, pid)
		return err == nil, false
	}
	o := c.seen[pid]
	if o == nil {
		o = &orphan{found: time.Now()}
		c.seen[pid] = o
	}
	if !o.read {
		var becoming, ending bool // what ends leaves its children to us in a moment
		o.mark, becoming, ending = markOf(pid)
		o.read = !becoming && !ending || time.Since(o.found) > sweepTime
		again = !o.read
	}
	theirs := o.run == g.run && g.over(o.command)
	if all && c.guards == 1 && len(c.before) == 0 {
		theirs = true // it is of a command, as there was nothing else that could leave it
	}
	switch {
	case !theirs:
		return false, again
	case o.killed.IsZero():
		o.killed = time.Now()
	case time.Since(o.killed) > sweepTime:
		return false, false // something holds it in the kernel: a later look waits for it
	}
	if group > 1 && !c.known(group) {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	return false, true
}

// now lists our children, but for those on the lists of other threads. One may be missing while others end: the next look has it.
func (c *children) now() (pids []int) {
	if c.list == nil {
		return nil
	}
	text, err := io.ReadAll(io.NewSectionReader(c.list, 0, 1<<30))
	if err != nil {
		return nil
	}
	for field := range bytes.FieldsSeq(text) {
		if pid, err := strconv.Atoi(string(field)); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// markOf returns the mark in the environment that a process started with. A process that ends, or may not be looked at, has none.
// While one becomes another program it has no environment, and on a busy machine it may stay so for long.
func markOf(pid int) (m mark, becoming, ending bool) {
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	text, err := os.ReadFile(filepath.Join(dir, "environ"))
	switch {
	case errors.Is(err, syscall.ESRCH): // it has given up its memory, and can't be waited for yet
		return mark{}, false, true
	case err == nil && len(text) == 0:
		stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
		becoming = unfinished(stat)
		return mark{}, becoming, !becoming
	}
	for variable := range bytes.SplitSeq(text, []byte{0}) {
		switch name, value, _ := bytes.Cut(variable, []byte("=")); string(name) {
		case runVariable:
			m.run = string(value)
		case commandVariable:
			m.command = string(value)
		}
	}
	return m, false, false
}

// unfinished reports whether what showed no environment is on its way to have one, by the kernel's line on it.
func unfinished(stat []byte) bool {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the 2nd, before it, may hold any character
	if len(fields) < 49 {
		return false
	}
	memory, code := string(fields[20]), string(fields[23]) // the 23rd and 26th
	start, end := string(fields[47]), string(fields[48])   // of the environment
	// What has ended, or is the kernel's, has no memory. The address of the code is the last thing that a program is given.
	return memory != "0" && (code == "0" || start != end)
}

// endMarked kills every process with the mark of a run. It reports whether there was one, or may be one in a moment.
func endMarked(run string) (found, maybe bool) {
	dirs, err := os.ReadDir("/proc")
	if err != nil {
		return false, false
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// The handle is of whoever had the number before we looked: if that has ended meanwhile, it is not killed twice.
		process, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		of, becoming, _ := markOf(pid)
		maybe = maybe || becoming
		if of.run == run {
			found = !errors.Is(process.Kill(), os.ErrProcessDone) || found
		}
		process.Release()
	}
	return found, maybe
}
