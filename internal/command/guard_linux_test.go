package command_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/suite"
)

func startGuard(t *testing.T) *command.Guard {
	t.Helper()
	g, err := command.StartGuard([]string{os.Args[0], "guard"}, func(err error) { t.Errorf("the guard was lost: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		if left := marked(g.Mark()); len(left) > 0 {
			t.Errorf("left after Close: %q", left)
		}
		if left := childrenLeft(t); left != "" {
			t.Errorf("children left after Close: %s", left)
		}
	})
	return g
}

// marked are the processes whose environment says that they are of a run.
func marked(run string) (found []string) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		variables, _ := os.ReadFile(filepath.Join(dir, "environ"))
		if bytes.Contains(variables, []byte("SLUICE_RUN="+run)) {
			line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
			found = append(found, fmt.Sprintf("%s %q", filepath.Base(dir), line))
		}
	}
	return found
}

// awaitMarked waits until a run has so many processes, and none that is still to become another.
func awaitMarked(t *testing.T, run string, want int) {
	t.Helper()
	var found []string
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if found = marked(run); len(found) == want && !strings.Contains(fmt.Sprint(found), `test\x00leave`) {
			return
		}
	}
	t.Errorf("%d processes of the run, want %d: %q", len(found), want, found)
}

// childrenLeft lists our children, ended or not.
func childrenLeft(t *testing.T) string {
	lists, _ := filepath.Glob("/proc/self/task/*/children")
	if len(lists) == 0 {
		t.Skip("the kernel lists no children")
	}
	var all []byte
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		all = append(all, b...)
	}
	return string(all)
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func TestWhatLeavesItsGroupEndsWithItsCommand(t *testing.T) {
	childrenLeft(t)
	g := startGuard(t)
	for name, script := range map[string]string{
		"forks and exits":                `sleep 60 & :`,
		"a session of its own":           os.Args[0] + ` leave 1`,
		"three sessions":                 os.Args[0] + ` leave 3`,
		"a session below a child":        `sh -c '` + os.Args[0] + ` leave 1 & wait; sleep 60' & sleep 0.2`,
		"a session whose child stays":    `setsid sh -c 'setsid sleep 60 & sleep 60' & sleep 0.1`,
		"away at once":                   `setsid sleep 60 &`,
		"that holds the output":          os.Args[0] + ` leave 2; echo said`,
		"that holds the output and asks": `trap '' TERM; ` + os.Args[0] + ` leave 2; kill -TERM 0; echo said`,
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			res, err := g.Run(t.Context(), command.Spec{Args: sh(script), Env: env, Stdout: &out, Grace: 100 * time.Millisecond})
			if err != nil {
				t.Errorf("%+v, %v", res, err)
			}
			if left := marked(g.Mark()); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
			if strings.Contains(script, "echo") && out.String() != "said\n" {
				t.Errorf("it said %q", out.String())
			}
		})
	}
}

func TestOrphansOfACommandThatRunsAreLeftAlone(t *testing.T) {
	childrenLeft(t)
	g := startGuard(t)
	done := make(chan error, 1)
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	go func() {
		_, err := g.Run(ctx, command.Spec{Args: sh(os.Args[0] + " leave 2; trap 'exit 0' TERM; sleep 60 & wait"), Env: env})
		done <- err
	}()
	awaitMarked(t, g.Mark(), 3) // the shell, its sleep, and the one that left
	for range 20 {
		if _, err := g.Run(t.Context(), command.Spec{Args: sh("(exit 3 & exit 4) & :"), Env: env}); err != nil {
			t.Error(err)
		}
	}
	if left := marked(g.Mark()); len(left) != 3 {
		t.Errorf("of the one that runs: %q, want 3", left)
	}
	cancel(errors.New("enough"))
	if err := <-done; err == nil || err.Error() != "enough" {
		t.Error(err)
	}
	if left := marked(g.Mark()); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}

func TestALookForOrphansLeavesCommandsAlone(t *testing.T) {
	t.Parallel()
	if out, err := exec.Command(os.Args[0], "first").CombinedOutput(); err != nil || string(out) != "7 exit status 7\n" {
		t.Errorf("%v: %s", err, out)
	}
}

func TestWhatHasNoMarkEndsWithTheRun(t *testing.T) {
	childrenLeft(t)
	g := startGuard(t)
	dir := t.TempDir()
	_, err := g.Run(t.Context(), command.Spec{Args: sh("cd " + dir + "; env -i setsid sh -c 'echo $$ >pid; sleep 60; :' & sleep 0.2"), Env: env})
	if err != nil {
		t.Error(err)
	}
	pid := awaitPID(t, dir)
	if gone(pid) {
		t.Error("it ended with its command, though nothing said that it was of it")
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if !gone(pid) {
		t.Error("it outlives the run")
	}
}

func TestCloseEndsWhatStillRuns(t *testing.T) {
	g := startGuard(t)
	done := make(chan command.Result, 1)
	go func() {
		res, _ := g.Run(t.Context(), command.Spec{Args: sh(familyOfSix()), Env: env})
		done <- res
	}()
	awaitMarked(t, g.Mark(), 6)
	if err := errors.Join(g.Close(), g.Close()); err != nil {
		t.Error(err)
	}
	if res := <-done; res.Signal != "SIGKILL" {
		t.Errorf("%+v", res)
	}
	if _, err := g.Run(t.Context(), command.Spec{Args: sh("exit"), Env: env}); err == nil {
		t.Error("a closed guard took a command")
	}
}

func TestNothingOutlivesARunThatIsKilled(t *testing.T) {
	t.Parallel()
	child, lines := startRun(t)
	run := strings.TrimPrefix(await(t, lines, "mark "), "mark ")
	groups := []int{number(t, lines, "group "), number(t, lines, "group ")}
	awaitMarked(t, run, 12)
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitMarked(t, run, 0)
	awaitNoGroup(t, groups)
}

func TestAGuardThatIsKilledIsReplacedAndToldOfWhatIsOpen(t *testing.T) {
	t.Parallel()
	child, lines := startRun(t)
	run := strings.TrimPrefix(await(t, lines, "mark "), "mark ")
	guard := number(t, lines, "guard ")
	groups := []int{number(t, lines, "group "), number(t, lines, "group ")}
	awaitMarked(t, run, 12)
	for i := range suite.Size(1, 2) {
		syscall.Kill(guard, syscall.SIGTERM) // which it does not heed
		syscall.Kill(guard, syscall.SIGKILL)
		if i == 0 {
			if line := await(t, lines, "lost "); !strings.Contains(line, "signal: killed") {
				t.Error(line)
			}
		}
		guard = number(t, lines, "guard ")
	}
	if left := marked(run); len(left) != 12 {
		t.Errorf("%d processes, want all 12: %q", len(left), left)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	awaitMarked(t, run, 0)
	awaitNoGroup(t, groups)
	for line := range lines {
		t.Errorf("it said %q", line) // that a guard was lost is said once
	}
}

func TestCloseWithoutItsProcessEndsWhatStillRuns(t *testing.T) {
	lost := make(chan error, 1)
	g, err := command.StartGuard([]string{os.Args[0], "guard"}, func(err error) { lost <- err })
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.Run(t.Context(), command.Spec{Args: sh(familyOfSix()), Env: env})
	}()
	awaitMarked(t, g.Mark(), 6)
	syscall.Kill(g.Process(), syscall.SIGKILL)
	<-lost // and no other is there for a second
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	<-done
	if left := marked(g.Mark()); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

func startRun(t *testing.T) (*exec.Cmd, <-chan string) {
	child := exec.Command(os.Args[0], "run")
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		child.Process.Kill()
		child.Wait()
	})
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(out); in.Scan(); {
			lines <- in.Text()
		}
	}()
	return child, lines
}

func await(t *testing.T, lines <-chan string, prefix string) string {
	t.Helper()
	late := time.After(time.Minute)
	for {
		select {
		case line, ok := <-lines:
			switch {
			case strings.HasPrefix(line, prefix):
				return line
			case !ok:
				t.Fatalf("it ended without %q", prefix)
			case strings.HasPrefix(line, "lost "):
				t.Error("it said again that a guard was lost") // the first time somebody waits for it
			}
		case <-late:
			t.Fatalf("it did not say %q", prefix)
		}
	}
}

func number(t *testing.T, lines <-chan string, prefix string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimPrefix(await(t, lines, prefix), prefix))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// awaitNoGroup waits until nothing is in groups, marked or not.
func awaitNoGroup(t *testing.T, groups []int) {
	t.Helper()
	for _, group := range groups {
		for end := time.Now().Add(5 * time.Minute); !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("something is in group %d", group)
				break
			}
		}
	}
}

func TestACommandEndsWithThisProcess(t *testing.T) {
	child := exec.Command(os.Args[0], "bare")
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscanf(out, "pid %d\n", &pid); err != nil {
		t.Fatal(err)
	}
	child.Process.Kill()
	child.Wait()
	awaitGone(t, pid)
}

// TestTheNumberOfAGroupStaysTakenWhileItIsOpen: else it could be another's by the time that it is killed.
func TestTheNumberOfAGroupStaysTakenWhileItIsOpen(t *testing.T) {
	t.Parallel()
	started, dir := make(chan int, 1), t.TempDir()
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(done)
		_, err := command.Run(ctx, command.Spec{
			Args: sh("cd " + dir + "; until test -e go; do sleep 0.02; done &"), Env: env, Stdout: new(bytes.Buffer), Grace: 5 * time.Minute, Started: func(p *os.Process) { started <- p.Pid },
		})
		if err != nil {
			t.Error(err)
		}
	}()
	stat := filepath.Join("/proc", strconv.Itoa(<-started), "stat")
	for state := "it runs"; !strings.Contains(state, ") Z "); time.Sleep(time.Millisecond) { // until it has ended; its child holds its output
		b, err := os.ReadFile(stat)
		if state = string(b); err != nil {
			t.Fatal("it was waited for")
		}
	}
	time.Sleep(time.Second) // until it is known here too; the end of the context comes too late for it then
	cancel()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-done
	if _, err := os.Stat(stat); err == nil {
		t.Error("it was not waited for")
	}
}

func TestAGuardKillsWhatItWasNotToldTheEndOf(t *testing.T) {
	var groups []*exec.Cmd
	for range 3 {
		cmd := exec.Command("sleep", "60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			cmd.Process.Kill()
			cmd.Wait()
		})
		groups = append(groups, cmd)
	}
	for input, want := range map[string]string{
		fmt.Sprintf("+%d\n+%d\n-%d\n", groups[0].Process.Pid, groups[1].Process.Pid, groups[1].Process.Pid): "",
		fmt.Sprintf("+%d\nnonsense\n+%d\n", groups[2].Process.Pid, groups[1].Process.Pid):                   `line "nonsense"`,
		"+1\n": `line "+1"`, "+-1\n": "want +N", "\n": `line ""`, "5\n": `line "5"`,
	} {
		guard := exec.Command(os.Args[0], "guard", "no-such-run")
		guard.Stdin = strings.NewReader(input)
		if out, err := guard.CombinedOutput(); (err != nil) != (want != "") || !strings.Contains(string(out), want) {
			t.Errorf("%q: %v: %s", input, err, out)
		}
	}
	awaitGone(t, groups[0].Process.Pid)
	awaitGone(t, groups[2].Process.Pid)
	if gone(groups[1].Process.Pid) {
		t.Error("it killed the one that it was told the end of")
	}
	if err := command.ServeGuard(strings.NewReader(""), ""); err == nil {
		t.Error("no mark is no error")
	}
}

func TestAGuardThatCannotBeStarted(t *testing.T) {
	_, err := command.StartGuard([]string{"/no/such/program"}, nil)
	if _, ok := errors.AsType[*command.NotStartedError](err); !ok {
		t.Error(err)
	}
}

func TestManyShortCommands(t *testing.T) {
	childrenLeft(t)
	g := startGuard(t)
	work := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for i := range work {
				script := "exit " + strconv.Itoa(i%5)
				if i%10 == 0 {
					script = "setsid sleep 60 & (sleep 60 &) ; " + script
				}
				res, err := g.Run(t.Context(), command.Spec{Args: sh(script), Env: env})
				if res.ExitCode != i%5 || (err != nil) != (i%5 != 0) {
					t.Errorf("%d: %+v, %v", i, res, err)
				}
			}
		})
	}
	for i := range suite.Size(100, 1000) {
		work <- i
	}
	close(work)
	wg.Wait()
	// While others end, a look may miss one on the kernel's list. It goes with the next command.
	if _, err := g.Run(t.Context(), command.Spec{Args: sh("exit 0"), Env: env}); err != nil {
		t.Error(err)
	}
	if left := marked(g.Mark()); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
