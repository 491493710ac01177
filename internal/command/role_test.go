//go:build unix

package command_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/command"
)

// TestMain makes the test binary the programs that tests need: `guard MARK`, `leave N`, `stay`, `run`, `bare`, `first`.
func TestMain(m *testing.M) {
	roles := map[string]func(args []string) error{
		"guard": func(args []string) error { return command.ServeGuard(os.Stdin, args[0]) },
		"leave": leave, "stay": stay, "run": runAndStay, "bare": bare, "first": onTheFirst,
	}
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// stay ends when it is killed, or after a minute.
func stay([]string) error {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	time.Sleep(time.Minute)
	return nil
}

// leave starts a process in a session of its own, which does the same N-1 times and in the end stays, and ends when it has begun.
func leave(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	next := exec.Command(os.Args[0], "leave", strconv.Itoa(n-1))
	if n == 1 {
		next = exec.Command(os.Args[0], "stay")
	}
	next.Stdout, next.SysProcAttr = os.Stdout, &syscall.SysProcAttr{Setsid: true}
	return next.Start()
}

// familyOfSix is a script that starts processes in its group and outside of it, five with it that have a mark, and stays.
func familyOfSix() string {
	return fmt.Sprintf(`env -i sleep 60 & %[1]s leave 1 >/dev/null; %[1]s leave 2 >/dev/null; sleep 60 & sh -c 'trap "" TERM; sleep 60; :'`, os.Args[0])
}

// runAndStay has a guard and runs two families until it is killed, one line about each thing that happens.
func runAndStay([]string) error {
	g, err := command.StartGuard([]string{os.Args[0], "guard"}, func(err error) { fmt.Println("lost", err) })
	if err != nil {
		return err
	}
	fmt.Println("mark", g.Mark())
	first := g.Process()
	fmt.Println("guard", first)
	go func() {
		for last := first; ; time.Sleep(time.Millisecond) {
			if pid := g.Process(); pid != 0 && pid != last {
				fmt.Println("guard", pid)
				last = pid
			}
		}
	}()
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			_, err := g.Run(context.Background(), command.Spec{
				Args: []string{"sh", "-c", familyOfSix()}, Env: env, Started: func(p *os.Process) { fmt.Println("group", p.Pid) },
			})
			fmt.Println("ended", err)
		})
	}
	wg.Wait()
	return nil
}

// bare runs a command without a guard, until it is killed.
func bare([]string) error {
	_, err := command.Run(context.Background(), command.Spec{Args: []string{os.Args[0], "stay"}, Env: env, Started: func(p *os.Process) {
		fmt.Println("pid", p.Pid)
	}})
	return err
}

// The first thread is that of main as long as nothing lets go of it, which can be said only before main begins.
var _ = func() struct{} {
	if len(os.Args) > 1 && os.Args[1] == "first" {
		runtime.LockOSThread()
	}
	return struct{}{}
}()

// onTheFirst starts a command on the first thread, to which orphans come as well, and looks for orphans after its end, while what
// it left holds its output.
func onTheFirst([]string) error {
	g, err := command.StartGuard([]string{os.Args[0], "guard"}, nil)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			script := "setsid sleep 60 & (sleep 60 & exit) ; exit"
			if _, err := g.Run(context.Background(), command.Spec{Args: []string{"sh", "-c", script}, Env: env}); err != nil {
				fmt.Println(err)
			}
		}
	})
	res, err := g.Run(context.Background(), command.Spec{
		Args: []string{"sh", "-c", "sleep 60 & exit 7"}, Env: env, Stdout: new(bytes.Buffer), Grace: 200 * time.Millisecond,
	})
	fmt.Println(res.ExitCode, err)
	cancel()
	wg.Wait()
	return g.Close()
}
