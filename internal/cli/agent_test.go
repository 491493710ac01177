package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// agent is a program that behaves as the agents and scripts do that people run by sluice exec: well, or badly. Its first
// argument says how.
func agent() {
	args := os.Args[1:]
	roles := map[string]func(args []string) int{
		"say":     agentSays,
		"echo":    agentEchoes,
		"note":    agentNotes,
		"work":    agentWorks,
		"window":  agentMeetsWindow,
		"flood":   agentFloods,
		"die":     agentDies,
		"stay":    agentStays,
		"fork":    agentForks,
		"daemon":  agentLeaves,
		"hold":    agentHolds,
		"resist":  agentResists,
		"hog":     agentHogs,
		"burn":    agentBurns,
		"persist": agentPersists,
	}
	if len(args) == 0 || roles[args[0]] == nil {
		fmt.Fprintln(os.Stderr, "agent: what is wanted?")
		os.Exit(2)
	}
	os.Exit(roles[args[0]](args[1:]))
}

// agentSays writes what a JSON object says to the streams, and exits as it says: an entry of a corpus, replayed.
func agentSays(args []string) int {
	var what struct {
		Stdout, Stderr string
		Exit           int
	}
	if err := json.Unmarshal([]byte(args[0]), &what); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fmt.Print(what.Stdout)
	fmt.Fprint(os.Stderr, what.Stderr)
	return what.Exit
}

// agentEchoes writes its arguments, so that one sees where each begins and ends.
func agentEchoes(args []string) int {
	fmt.Printf("%s\n", bracketed(args))
	return 0
}

func bracketed(args []string) string {
	var b strings.Builder
	for i, arg := range args {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString("[" + arg + "]")
	}
	return b.String()
}

// agentNotes appends its last argument to the file of the first.
func agentNotes(args []string) int {
	note(args[0], args[len(args)-1])
	return 0
}

// note appends a line to a file, whole.
func note(path, line string) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteString(line + "\n"); err != nil {
		panic(err)
	}
}

// agentWorks takes some time, with a child that would outlive it, and notes when it begins and ends: LOG ID TIME.
func agentWorks(args []string) int {
	log, id := args[0], args[1]
	took, _ := time.ParseDuration(args[2])
	note(log, "begin "+id)
	child := exec.Command(os.Args[0], "stay", "60s")
	if err := child.Start(); err != nil {
		return 2
	}
	time.Sleep(took)
	note(log, "end "+id)
	fmt.Println("did", id)
	return 0
}

// agentMeetsWindow refuses, as an agent does, from the first call on until some seconds are over: DIR SECONDS ID. With a number
// behind that, the window begins when so many have called.
func agentMeetsWindow(args []string) int {
	dir, id := args[0], args[2]
	seconds, _ := strconv.Atoi(args[1])
	path, tries := filepath.Join(dir, "window"), filepath.Join(dir, "tries")
	note(tries, id)
	if len(args) > 3 {
		want, _ := strconv.Atoi(args[3])
		for called := 0; called < want; time.Sleep(5 * time.Millisecond) {
			b, _ := os.ReadFile(tries)
			called = strings.Count(string(b), "\n")
		}
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err == nil {
		fmt.Fprint(f, time.Now().Add(time.Duration(seconds)*time.Second).UnixMilli())
		f.Close()
	}
	var end int64
	for end == 0 { // who made it may not have written yet
		b, _ := os.ReadFile(path)
		end, _ = strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	}
	if time.Now().UnixMilli() < end {
		fmt.Printf("Claude AI usage limit reached|%d\n", (end+999)/1000)
		return 1
	}
	note(filepath.Join(dir, "done"), id)
	fmt.Println("answer to", id)
	return 0
}

// agentFloods writes so many MiB.
func agentFloods(args []string) int {
	mib, _ := strconv.Atoi(args[0])
	w := bufio.NewWriterSize(os.Stdout, 1<<20)
	line := []byte(strings.Repeat("x\x00y", 21) + "\n")
	fmt.Fprintln(w, "the first line")
	for n := 0; n < mib<<20; n += len(line) {
		w.Write(line)
	}
	fmt.Fprintln(w, "the last line")
	w.Flush()
	return 0
}

// agentDies ends by a signal.
func agentDies(args []string) int {
	n, _ := strconv.Atoi(args[0])
	die(syscall.Signal(n))
	return 0
}

// die ends the program by a signal.
func die(sig os.Signal) {
	self, err := os.FindProcess(os.Getpid())
	if err == nil {
		err = self.Signal(sig)
	}
	if err != nil {
		panic(err)
	}
	time.Sleep(time.Minute) // it may be a moment in coming
}

// agentStays does nothing for long.
func agentStays(args []string) int {
	d, _ := time.ParseDuration(args[0])
	time.Sleep(d)
	return 0
}

// agentForks leaves a child in its group, and ends.
func agentForks([]string) int { return leave(nil) }

// agentLeaves leaves a child in a session of its own, and ends.
func agentLeaves([]string) int { return leave(ownSession()) }

func leave(attr *syscall.SysProcAttr) int {
	child := exec.Command(os.Args[0], "stay", "60s")
	child.SysProcAttr = attr
	if err := child.Start(); err != nil {
		return 2
	}
	fmt.Println("left", child.Process.Pid)
	return 0
}

// agentHolds leaves a child that has its streams, and ends.
func agentHolds([]string) int {
	child := exec.Command(os.Args[0], "stay", "60s")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		return 2
	}
	fmt.Println("held")
	return 0
}

// agentResists does not end when it is asked to.
func agentResists([]string) int {
	signal.Ignore(syscall.SIGTERM, os.Interrupt)
	fmt.Println("never")
	time.Sleep(time.Minute)
	return 0
}

// agentHogs takes so many MiB of memory.
func agentHogs(args []string) int {
	mib, _ := strconv.Atoi(args[0])
	b := make([]byte, mib<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	fmt.Println("had", len(b))
	return 0
}

// agentBurns uses a processor.
func agentBurns([]string) int {
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); {
	}
	return 0
}

// agentPersists takes items as JSON lines. An item that says so ends it: at its first attempt, or at each.
func agentPersists(args []string) int {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err == io.EOF {
			return 0
		}
		var order struct {
			ID      string
			Attempt int
			Item    struct{ Die string }
		}
		if err := json.Unmarshal(line, &order); err != nil {
			return 2
		}
		if len(args) > 0 {
			note(args[0], order.ID)
		}
		if order.Item.Die == "always" || order.Item.Die == "once" && order.Attempt == 1 {
			die(os.Kill)
		}
		fmt.Printf("{\"id\":%q,\"ok\":true,\"result\":{\"pid\":%d}}\n", order.ID, os.Getpid())
	}
}
