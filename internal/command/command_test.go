//go:build unix

package command_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
)

// env is what the commands of tests have. The race detector sleeps for a second at the end of a program if it is not told otherwise.
var env = []string{"PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}

func TestACommandGetsItsInputAndItsEnvironmentAlone(t *testing.T) {
	t.Setenv("SECRET", "hidden")
	var out bytes.Buffer
	res, err := command.Run(t.Context(), command.Spec{
		Args: []string{"sh", "-c", "cat; echo; env"}, Env: append(env, "SAID=yes"), Stdin: strings.NewReader("input"), Stdout: &out,
	})
	if err != nil || res.ExitCode != 0 || res.Signal != "" {
		t.Fatalf("%+v, %v", res, err)
	}
	if text := out.String(); !strings.HasPrefix(text, "input\n") || !strings.Contains(text, "SAID=yes") || strings.Contains(text, "hidden") {
		t.Errorf("it said %q", text)
	}
	out.Reset()
	if _, err := command.Run(t.Context(), command.Spec{Args: []string{"env"}, Stdout: &out}); err != nil || strings.Contains(out.String(), "SECRET") {
		t.Errorf("without an environment: %q, %v", out.String(), err)
	}
}

func TestHowACommandEnded(t *testing.T) {
	res, err := command.Run(t.Context(), command.Spec{Args: []string{"sh", "-c", "exit 7"}, Env: env})
	if _, ok := errors.AsType[*exec.ExitError](err); !ok || res.ExitCode != 7 {
		t.Errorf("exit: %+v, %v", res, err)
	}
	res, err = command.Run(t.Context(), command.Spec{Args: []string{"sh", "-c", "kill -SEGV $$"}, Env: env})
	if err == nil || res.ExitCode != -1 || res.Signal != "SIGSEGV" {
		t.Errorf("signal: %+v, %v", res, err)
	}
	for _, args := range [][]string{nil, {""}, {"/no/such/program"}, {"/"}} {
		if _, err := command.Run(t.Context(), command.Spec{Args: args}); err == nil {
			t.Errorf("%q was started", args)
		} else if _, ok := errors.AsType[*command.NotStartedError](err); !ok {
			t.Errorf("%q: %v", args, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("too late"))
	if _, err := command.Run(ctx, command.Spec{Args: []string{"true"}, Env: env}); err == nil || err.Error() != "too late" {
		t.Errorf("after the end: %v", err)
	}
}

func TestTheWholeGroupEndsWithTheContext(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"that ends when asked":   `sleep 100 & echo $! >pid; wait`,
		"that will not be asked": `trap '' TERM; sleep 100 & echo $! >pid; while :; do sleep 1; done`,
		"that leaves a child":    `sh -c 'trap "" TERM; while :; do sleep 1; done' & echo $! >pid; trap 'exit 0' TERM; wait`,
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ctx, cancel := context.WithCancelCause(t.Context())
			go func() {
				awaitPID(t, dir)
				cancel(errors.New("enough"))
			}()
			_, err := command.Run(ctx, command.Spec{Args: []string{"sh", "-c", "cd " + dir + "; " + script}, Env: env, Stdout: new(bytes.Buffer), Grace: 200 * time.Millisecond})
			if err != nil && err.Error() != "enough" {
				t.Errorf("error %v", err)
			}
			awaitGone(t, awaitPID(t, dir))
		})
	}
}

func TestWhatACommandLeavesBehindEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out bytes.Buffer
	_, err := command.Run(t.Context(), command.Spec{
		Args: []string{"sh", "-c", "cd " + dir + "; sleep 100 & echo $! >pid; echo said"}, Env: env, Stdout: &out, Grace: 100 * time.Millisecond,
	})
	if err != nil || out.String() != "said\n" {
		t.Errorf("%q, %v", out.String(), err)
	}
	awaitGone(t, awaitPID(t, dir))
}

// awaitPID waits for the file that a script writes the number of its child to.
func awaitPID(t *testing.T, dir string) int {
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		b, _ := os.ReadFile(filepath.Join(dir, "pid"))
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil {
			return pid
		}
	}
	t.Error("the script did not start its child")
	return 0
}

func awaitGone(t *testing.T, pid int) {
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if gone(pid) {
			return
		}
	}
	t.Errorf("process %d still lives", pid)
	syscall.Kill(pid, syscall.SIGKILL)
}

// gone reports whether a process has ended: one that nobody has waited for counts.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err == nil && strings.Contains(string(b), ") Z ")
}

func TestACommandThatWasStartedCanBeStoppedAndGoesOn(t *testing.T) {
	res, err := command.Run(t.Context(), command.Spec{Args: []string{"sh", "-c", "exit 3"}, Env: env, Started: func(p *os.Process) {
		if err := errors.Join(p.Signal(syscall.SIGSTOP), p.Signal(syscall.SIGCONT)); err != nil {
			t.Error(err)
		}
	}})
	if err == nil || res.ExitCode != 3 {
		t.Errorf("%+v, %v", res, err)
	}
}
