//go:build linux

package proc_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/work"
)

// course is a place where commands run over items, and leave marks that tests look at.
type course struct {
	t      testing.TB
	cfg    proc.Config
	limits sluice.Config

	mu    sync.Mutex
	calls []call // that play answered
}

// call is a command that a test answers in place of a process.
type call struct {
	command.Spec
	at   time.Time
	last string // its last word
	nth  int    // of the commands with this last word
}

// say writes to the command's standard output. The exit code that it returns is that of a failure.
func (k call) say(format string, args ...any) int {
	fmt.Fprintf(k.Stdout, format, args...)
	return 1
}

// limited tells of a usage window that is used up until an instant.
func (k call) limited(until time.Time) int {
	return k.say("Claude AI usage limit reached|%d\n", until.Unix())
}

// itemDir is the directory of the call's item.
func (k call) itemDir() string {
	for _, variable := range k.Env {
		if dir, ok := strings.CutPrefix(variable, "SLUICE_ITEM_DIR="); ok {
			return dir
		}
	}
	return ""
}

// play has a function answer in place of commands, with their exit code.
func (c *course) play(answer func(ctx context.Context, k call) int) {
	c.cfg.Command.Run = func(ctx context.Context, s command.Spec) (command.Result, error) {
		k := call{Spec: s, at: time.Now(), last: s.Args[len(s.Args)-1], nth: 1}
		c.mu.Lock()
		for _, before := range c.calls {
			if before.last == k.last {
				k.nth++
			}
		}
		c.calls = append(c.calls, k)
		c.mu.Unlock()
		res := command.Result{ExitCode: answer(ctx, k)}
		switch {
		case ctx.Err() != nil:
			res.Asked = true
			return res, context.Cause(ctx)
		case res.ExitCode != 0:
			return res, fmt.Errorf("exit status %d", res.ExitCode)
		}
		return res, nil
	}
}

// began returns when the commands began whose last word begins with a prefix.
func (c *course) began(prefix string) (all []time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, k := range c.calls {
		if strings.HasPrefix(k.last, prefix) {
			all = append(all, k.at)
		}
	}
	return all
}

// bubble runs a course in virtual time. Its commands succeed at once, if the test does not play them.
func bubble(t *testing.T, items int, test func(t *testing.T, c *course)) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(noon)) // the resets of CLIs have ten digits
		c := newCourse(t, items, "")
		c.play(func(context.Context, call) int { return 0 })
		test(t, c)
	})
}

// newCourse has sh run a script for each of some items, which it gets as $1. $D is a directory for what it notes.
func newCourse(t testing.TB, items int, script string) *course {
	c := &course{t: t, limits: sluice.Config{
		Limits: sluice.Limits{Concurrency: 1}, Attempts: 3, MaxThrottles: math.MaxInt32,
	}}
	dir := t.TempDir()
	var list strings.Builder
	for i := range items {
		fmt.Fprintf(&list, "item%d\n", i+1)
	}
	c.cfg = proc.Config{
		Items: proc.Items{Path: filepath.Join(dir, "items.txt")}, Dir: filepath.Join(dir, "state"), Limits: proc.Limits{Lane: "lane"},
		Pauses: &work.Pauses{},
		Command: proc.Command{
			Args: []string{"/bin/sh", "-c", script, "sh", "{}"}, Env: []string{"PATH=" + os.Getenv("PATH"), "D=" + dir},
		},
	}
	c.write("items.txt", list.String())
	return c
}

func (c *course) path(name string) string { return filepath.Join(filepath.Dir(c.cfg.Items.Path), name) }

func (c *course) write(name, text string) {
	c.t.Helper()
	if err := os.WriteFile(c.path(name), []byte(text), 0o755); err != nil {
		c.t.Fatal(err)
	}
}

// noted is how many lines a file has that commands noted something in.
func (c *course) noted(name string) int {
	b, _ := os.ReadFile(c.path(name))
	return strings.Count(string(b), "\n")
}

// await waits until a file has so many lines.
func (c *course) await(name string, lines int) {
	c.t.Helper()
	for end := time.Now().Add(5 * time.Minute); c.noted(name) < lines; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("%s has %d lines, want %d", name, c.noted(name), lines)
		}
	}
}

// open opens the run. It is closed with the test.
func (c *course) open() *proc.Exec {
	c.t.Helper()
	c.limits.Observer = c.cfg.Pauses
	s, err := sluice.New(c.limits)
	if err != nil {
		c.t.Fatal(err)
	}
	c.cfg.Limits.Scheduler = s
	x, err := proc.Open(c.cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		if err := errors.Join(x.Close(), s.Close()); err != nil {
			c.t.Error(err)
		}
	})
	return x
}

// running is a run that goes on.
type running struct {
	done chan struct{}
	rep  proc.Report
	err  error
}

func (c *course) start(ctx context.Context, x *proc.Exec) *running {
	r := &running{done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.rep, r.err = x.Run(ctx)
	}()
	return r
}

// ended waits for the end.
func (r *running) ended() (proc.Report, error) {
	<-r.done
	return r.rep, r.err
}

// run runs all.
func (c *course) run() (proc.Report, error) {
	c.t.Helper()
	return c.start(context.Background(), c.open()).ended()
}

// succeed runs all n items, which must succeed.
func (c *course) succeed(n int) proc.Report {
	c.t.Helper()
	rep, err := c.run()
	if err != nil || rep.Succeeded != n {
		c.t.Fatalf("%+v, error %v", rep.Summary, err)
	}
	return rep
}

// drained runs for a time, and is drained then.
func (c *course) drained(after time.Duration) proc.Report {
	c.t.Helper()
	x := c.open()
	r := c.start(context.Background(), x)
	time.Sleep(after)
	x.Drain()
	x.Drain()
	rep, err := r.ended()
	if wrong := x.Close(); !errors.Is(err, work.ErrDrained) || wrong != nil {
		c.t.Errorf("error %v, %v", err, wrong)
	}
	return rep
}

// results are the lines of the results.
func (c *course) results() (all []proc.Result) {
	c.t.Helper()
	b, err := os.ReadFile(proc.ResultsPath(c.cfg.Dir))
	if err != nil && !os.IsNotExist(err) { // without a result, there is no file after Close
		c.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var r proc.Result
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			c.t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}
