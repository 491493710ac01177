package command

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

const (
	endWithin = 5 * time.Second       // all with the mark have to be gone
	endPause  = 10 * time.Millisecond // between two looks
)

// ServeGuard is the process of a Guard. It reads which groups begin (+N) and end (-N), a line each, and at the end of its input
// kills those that are open and, on Linux, what carries the mark of the run. The error says that something may be left, or that
// the input made no sense, which also is its end.
//
// A group is killed once, at that instant. It has not been told the end of, so its program has not been waited for by who told
// us, who lived until now: the number cannot be another's, unless all numbers came round within that instant. Where a program
// cannot be seen to end without waiting for it (see running.wait), there are at most the grace of a command and that instant.
func ServeGuard(stdin io.Reader, run string) error {
	if run == "" {
		return errors.New("the guard process needs the ID of its run")
	}
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP) // they are for the run, which ends us
	groups := map[int]struct{}{}
	lines := bufio.NewScanner(stdin)
	var wrong error
	for wrong == nil && lines.Scan() {
		wrong = note(groups, lines.Text())
	}
	return errors.Join(wrong, lines.Err(), endAll(groups, run))
}

func note(groups map[int]struct{}, line string) error {
	var sign string
	if line != "" {
		sign = line[:1]
	}
	group, err := strconv.Atoi(line[len(sign):])
	switch {
	case err != nil || group <= 1:
	case sign == "+":
		groups[group] = struct{}{}
		return nil
	case sign == "-":
		delete(groups, group)
		return nil
	}
	return fmt.Errorf("line %q: want +N or -N", line)
}

// endAll kills groups, and then what has the mark, until two looks have found nothing: one may miss what was just started.
func endAll(groups map[int]struct{}, run string) error {
	for group := range groups {
		killGroup(group)
	}
	clean := 0
	for end := time.Now().Add(endWithin); clean < 2; time.Sleep(endPause) {
		clean++
		found, maybe := endMarked(run)
		if found || maybe {
			clean = 0
		}
		switch late := time.Now().After(end); {
		case late && maybe && !found:
			return nil // it hangs on its way to be another program, and hardly is one of ours
		case late:
			return fmt.Errorf("processes with the variable %s=%s still run after %v", runVariable, run, endWithin)
		}
	}
	return nil
}
