//go:build unix

package work_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
)

const (
	diskLimit = 10_000 // bytes that a file may have in the child that runs out of them
	lineSize  = 300
)

// TestMain makes the test binary its own child: with WORK_CHILD it does one thing and ends.
func TestMain(m *testing.M) {
	if role := os.Getenv("WORK_CHILD"); role != "" {
		path := os.Args[len(os.Args)-1]
		if err := map[string]func(string) error{"hold": hold, "full": full}[role](path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	suite.InMemory()
	os.Exit(m.Run())
}

func TestJournalRefusesASecondProcess(t *testing.T) {
	path := journalPath(t)
	child := startChild(t, "hold", path)
	_, err := work.OpenJournal(path, work.JournalConfig{})
	locked, ok := errors.AsType[*work.LockedError](err)
	if !ok || locked.PID != child.Process.Pid || !strings.Contains(err.Error(), strconv.Itoa(child.Process.Pid)) {
		t.Errorf("error %v, want a *LockedError of process %d", err, child.Process.Pid)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()
	j := openJournal(t, path, work.JournalConfig{}) // a killed process holds nothing
	if got := linesOf(t, j); len(got) != 1 || got[0] != "held" {
		t.Errorf("lines %q", got)
	}
}

func TestFullDiskStopsTheRunAndLeavesNoPartialLine(t *testing.T) {
	path := journalPath(t)
	out, err := child("full", path).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "journal "+path) || !strings.Contains(string(out), "too large") {
		t.Errorf("error %q, want one that names the journal and the reason", out)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Count(string(b), "\n")
	if lines != diskLimit/lineSize || len(b) != lines*lineSize {
		t.Errorf("%d bytes, %d lines: want %d whole lines", len(b), lines, diskLimit/lineSize)
	}
	// Nothing further was sent: those that were open then, and no more.
	var sent int
	if _, err := fmt.Sscanf(string(out[strings.LastIndex(string(out), "sent "):]), "sent %d", &sent); err != nil || sent > lines+2*4 {
		t.Errorf("%q after %d recorded", out, lines)
	}
	state, err := work.LoadState(work.StatePath(path))
	if err != nil || state.Status != work.Failed || state.Reason == "" {
		t.Errorf("state %+v, error %v", state, err)
	}
	// With room again, the run goes on.
	j := openJournal(t, path, work.JournalConfig{})
	if _, err := j.Append([]byte("more\n")); err != nil {
		t.Error(err)
	}
}

func child(role, path string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], path)
	cmd.Env = append(os.Environ(), "WORK_CHILD="+role)
	return cmd
}

// startChild starts a child and waits for its first line.
func startChild(t *testing.T, role, path string) *exec.Cmd {
	t.Helper()
	cmd := child(role, path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cmd.StdinPipe(); err != nil { // it ends when this does
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// hold has a journal open until its standard input ends.
func hold(path string) error {
	j, err := work.OpenJournal(path, work.JournalConfig{})
	if err != nil {
		return err
	}
	if _, err := j.Append([]byte("held\n")); err != nil {
		return err
	}
	fmt.Println("ready")
	_, err = os.Stdin.Read(make([]byte, 1))
	return err
}

// full runs items until the journal cannot grow, and prints what the run said.
func full(path string) error {
	limit := syscall.Rlimit{Cur: diskLimit, Max: diskLimit}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	j, err := work.OpenJournal(path, work.JournalConfig{})
	if err != nil {
		return err
	}
	var sent atomic.Int32
	r, err := work.New(work.Config{
		Journal: j, Workers: 4, Feed: feedOf(numbered(1000)...),
		Encode: func(dst []byte, r *work.Result) []byte {
			return append(append(dst, strings.Repeat("x", lineSize-1)...), '\n')
		},
		Handler: work.HandlerFunc(func(context.Context, work.Item) (work.Result, error) {
			sent.Add(1)
			return work.Result{}, nil
		}),
	})
	if err != nil {
		return err
	}
	rep, err := r.Run(context.Background())
	if err == nil {
		return fmt.Errorf("the run recorded %d items", rep.Done)
	}
	fmt.Println(err)
	fmt.Println("sent", sent.Load())
	j.Close()
	return nil
}
