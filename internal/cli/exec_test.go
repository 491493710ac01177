package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/suite"
)

// bed is a place where sluice exec runs, and where what it starts can be found.
type bed struct {
	t     testing.TB
	dir   string // of the run's state, below
	token string // in the environment of all that it starts
}

func newBed(t testing.TB) *bed {
	if runtime.GOOS != "linux" {
		t.Skip("what is left of commands is found in /proc")
	}
	b := &bed{t: t, dir: t.TempDir(), token: fmt.Sprintf("EXEC_TEST=%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), rand.Uint64())}
	t.Cleanup(func() { b.awaitNothing() })
	return b
}

func (b *bed) path(name string) string { return filepath.Join(b.dir, name) }

func (b *bed) write(name, text string) string {
	b.t.Helper()
	if err := os.WriteFile(b.path(name), []byte(text), 0o644); err != nil {
		b.t.Fatal(err)
	}
	return b.path(name)
}

// items writes plain items item1 to itemN.
func (b *bed) items(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, "item%d\n", i+1)
	}
	return b.write("items.txt", text.String())
}

// command is sluice exec with its state in state below the bed.
func (b *bed) command(args ...string) *run {
	r := &run{Cmd: exec.Command("sluice", append([]string{"exec", "--state", b.path("state"), "--progress", "none"}, args...)...)}
	r.Env = append(os.Environ(), b.token, "XDG_STATE_HOME="+b.path("home"), "TZ=UTC")
	r.Stdout, r.Stderr = &r.out, &r.out
	return r
}

// exec runs it and returns its exit code and what it printed.
func (b *bed) exec(args ...string) (code int, out string) {
	b.t.Helper()
	r := b.command(args...)
	done := time.AfterFunc(2*time.Minute, func() { r.Process.Signal(syscall.SIGQUIT) })
	defer done.Stop()
	err := r.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		b.t.Fatal(err)
	} else if ok {
		code = exit.ExitCode()
	}
	return code, r.out.String()
}

// results reads the results by id; an id that stands twice is an error.
func (b *bed) results() map[string]proc.Result {
	b.t.Helper()
	all := make(map[string]proc.Result)
	data, err := os.ReadFile(proc.ResultsPath(b.path("state")))
	if err != nil {
		return all
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	for _, line := range lines {
		if !bytes.HasSuffix(line, []byte("\n")) { // torn by a kill, or the end
			continue
		}
		var r proc.Result
		if err := json.Unmarshal(line, &r); err != nil {
			b.t.Fatalf("%s: %v", line, err)
		}
		if _, twice := all[r.ID]; twice {
			b.t.Errorf("%s is recorded twice", r.ID)
		}
		all[r.ID] = r
	}
	return all
}

// only runs one item and returns its result.
func (b *bed) only(args ...string) proc.Result {
	b.t.Helper()
	items := b.items(1)
	code, out := b.exec(append([]string{"--items", items}, args...)...)
	r, ok := b.results()["1"]
	if !ok {
		b.t.Fatalf("exit code %d and no result: %s", code, out)
	}
	return r
}

// alive returns what lives of all that was started here.
func (b *bed) alive() []string {
	var found []string
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(env, []byte(b.token)) {
			continue
		}
		words, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		found = append(found, filepath.Base(dir)+" "+string(bytes.ReplaceAll(words, []byte{0}, []byte{' '})))
	}
	return found
}

// awaitNothing fails if something still lives after a while.
func (b *bed) awaitNothing() {
	b.t.Helper()
	var left []string
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if left = b.alive(); len(left) == 0 {
			return
		}
	}
	b.t.Errorf("still there: %q", left)
}

// counts counts the lines of a file.
func (b *bed) counts(name string) map[string]int {
	n := make(map[string]int)
	f, err := os.Open(b.path(name))
	if err != nil {
		return n
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		n[lines.Text()]++
	}
	return n
}

// TestAllWaitForOneWindow has several agents meet a limit at once that ends in two seconds.
func TestAllWaitForOneWindow(t *testing.T) {
	t.Parallel()
	b, n := newBed(t), suite.Size(5, 15)
	code, out := b.exec("--items", b.items(n), "--jobs", strconv.Itoa(n), "--", "agent", "window", b.dir, "2", "{}", strconv.Itoa(n))
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	results, done, tries := b.results(), b.counts("done"), b.counts("tries")
	if len(results) != n || len(done) != n {
		t.Errorf("%d results of %d items that were done, want %d", len(results), len(done), n)
	}
	limited := 0
	for id, r := range results {
		item := "item" + id
		if r.State != proc.Succeeded || done[item] != 1 {
			t.Errorf("%s: %s, done %d times", id, r.State, done[item])
		}
		if r.Throttles != tries[item]-1 || r.Attempts != 1 {
			t.Errorf("%s: %d throttles and %d attempts recorded, of %d tries", id, r.Throttles, r.Attempts, tries[item])
		}
		limited += r.Throttles
	}
	if limited < n {
		t.Errorf("only %d tries met the limit", limited)
	}
	state, err := os.ReadFile(proc.StatePath(b.path("state")))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(state, []byte(`"pause_count": 1,`)) {
		t.Errorf("not one pause: %s\n%s", state, out)
	}
	if want := strconv.Itoa(n) + " items wait because of a limit reached at"; !strings.Contains(out, want) {
		t.Errorf("the output lacks %q: %s", want, out)
	}
	first, err := os.ReadFile(filepath.Join(b.path("state"), "1-1", ".failed", "1", "result.json"))
	if err != nil || !bytes.Contains(first, []byte(`"state":"rate_limited"`)) {
		t.Errorf("the first try is not kept as rate_limited: %s %v", first, err)
	}
}

// TestExecIsKilled kills runs at instants spread over them, with commands and their children running.
func TestExecIsKilled(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel()
	items, kills := suite.Size(30, 120), suite.Size(3, 20)
	b := newBed(t)
	list := b.items(items)
	args := []string{"--items", list, "--jobs", "6", "--", "agent", "work", b.path("log"), "{}", "40ms"}
	luck := rand.New(rand.NewPCG(3, 4))
	begun := make(map[string]int) // how often items that are recorded had begun then
	busy := 0
	for kill := range kills {
		r := b.command(args...)
		r.start(t)
		want := kill * items / (kills + 4)
		await(t, "results", func() bool { return len(b.results()) >= want }, &r.out)
		time.Sleep(time.Duration(luck.IntN(120)) * time.Millisecond)
		// Every fourth kill comes at any instant, the others when commands run, which takes its time on a busy machine.
		runs := false
		await(t, "commands", func() bool {
			runs = len(b.alive()) > 2 // more than itself and its guard
			return runs || kill%4 == 0 || len(b.results()) == items
		}, &r.out)
		if runs {
			busy++
		}
		if err := r.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		r.Wait()
		b.awaitNothing()
		log, results := b.counts("log"), b.results()
		for id := range begun {
			if _, ok := results[id]; !ok {
				t.Errorf("kill %d: the result of item %s is gone", kill+1, id)
			}
		}
		for id, result := range results {
			if result.State != proc.Succeeded || log["end item"+id] < 1 {
				t.Errorf("kill %d: item %s is recorded as %s, and ended %d times", kill+1, id, result.State, log["end item"+id])
			}
			if _, ok := begun[id]; !ok {
				begun[id] = log["begin item"+id]
			}
		}
	}
	if busy < kills*3/4 {
		t.Errorf("only %d of %d kills met commands that ran", busy, kills)
	}
	if code, out := b.exec(args...); code != 0 {
		t.Fatalf("last run: exit code %d: %s", code, out)
	}
	log := b.counts("log")
	twice := 0
	for i := range items {
		if log[fmt.Sprintf("end item%d", i+1)] > 1 {
			twice++
		}
	}
	for id, n := range begun {
		if log["begin item"+id] != n {
			t.Errorf("item %s ran again after its success was recorded", id)
		}
	}
	if results := b.results(); len(results) != items {
		t.Errorf("%d of %d items are recorded", len(results), items)
	}
	t.Logf("%d kills, %d with commands running; %d items ended twice: a kill came between their end and its record", kills, busy, twice)
}

// TestWhatCommandsDo runs commands that behave badly, one way each.
func TestWhatCommandsDo(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		check func(t *testing.T, b *bed, r proc.Result)
	}{
		"dies": {[]string{"--max-attempts", "1", "--", "agent", "die", "9"}, func(t *testing.T, _ *bed, r proc.Result) {
			if r.Signal != "SIGKILL" || r.ExitCode != nil || r.Kind.String() != "command_failed" {
				t.Errorf("%+v", r)
			}
		}},
		"hangs": {[]string{"--max-attempts", "2", "--timeout", "300ms", "--", "agent", "stay", "60s"}, func(t *testing.T, _ *bed, r proc.Result) {
			if r.Kind.String() != "timeout" || r.Attempts != 2 {
				t.Errorf("%+v", r)
			}
		}},
		// It has to come to where it takes no notice, on a busy machine too.
		"does not end when asked": {[]string{"--max-attempts", "1", "--timeout", "2s", "--", "agent", "resist"},
			func(t *testing.T, _ *bed, r proc.Result) {
				if r.Kind.String() != "timeout" || r.Signal != "SIGKILL" {
					t.Errorf("%+v", r)
				}
			}},
		"floods": {[]string{"--", "agent", "flood", "64"}, func(t *testing.T, b *bed, r proc.Result) {
			out, err := os.ReadFile(filepath.Join(b.path("state"), r.Dir, "stdout.log"))
			if err != nil || len(out) > 16<<20+100 {
				t.Fatalf("%d bytes kept of 64 MiB: %v", len(out), err)
			}
			if !bytes.HasPrefix(out, []byte("the first line\n")) || !bytes.HasSuffix(out, []byte("\nthe last line\n")) || !bytes.Contains(out, []byte("bytes omitted")) {
				t.Error("beginning, end or the mark between them is not there")
			}
		}},
		"leaves a child":                         {[]string{"--", "agent", "fork"}, wantWell},
		"leaves a child in a session of its own": {[]string{"--", "agent", "daemon"}, wantWell},
		"leaves a child that holds its streams":  {[]string{"--", "agent", "hold"}, wantWell},
		"takes memory": {[]string{"--", "agent", "hog", "100"}, func(t *testing.T, _ *bed, r proc.Result) {
			// Linux counts what we had when it was started, which is plenty under the race detector.
			if r.State != proc.Succeeded || r.MaxRSS < 100<<20 || r.MaxRSS > 1<<30 {
				t.Errorf("%d MiB, want 100 and some: %+v", r.MaxRSS>>20, r)
			}
		}},
		"burns": {[]string{"--max-attempts", "1", "--timeout", "2s", "--", "agent", "burn"}, func(t *testing.T, _ *bed, r proc.Result) {
			if r.State != proc.Failed || r.CPU < 100 || r.CPU > 4000 {
				t.Errorf("%+v", r)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			switch name {
			case "dies", "floods", "leaves a child in a session of its own":
			default:
				suite.FullOnly(t)
			}
			t.Parallel()
			b := newBed(t)
			c.check(t, b, b.only(c.args...))
			b.awaitNothing()
		})
	}
}

func wantWell(t *testing.T, _ *bed, r proc.Result) {
	t.Helper()
	if r.State != proc.Succeeded {
		t.Errorf("%+v", r)
	}
}

// TestCrowdsOfPersistentWorkersDie has a worker die with its item in hand at one item in five.
func TestCrowdsOfPersistentWorkersDie(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel()
	b := newBed(t)
	var text strings.Builder
	items := suite.Size(45, 300)
	for i := range items {
		die := ""
		switch {
		case i%5 == 0:
			die = "once"
		case i == 7 || i == 41:
			die = "always"
		}
		fmt.Fprintf(&text, "{\"custom_id\":\"w%d\",\"die\":%q}\n", i, die)
	}
	code, out := b.exec("--items", b.write("items.jsonl", text.String()), "--jobs", "4", "--persistent", "--max-attempts", "5", "--", "agent", "persist", b.path("log"))
	results := b.results()
	if code != 3 || len(results) != items {
		t.Fatalf("exit code %d, %d results of %d: %s", code, len(results), items, out)
	}
	for id, r := range results {
		n, _ := strconv.Atoi(id[1:])
		want := proc.Succeeded
		if n == 7 || n == 41 {
			want = proc.Quarantined
			if len(r.Fault.Tries) != 3 {
				t.Errorf("%s: %d ends of workers are told, want 3", id, len(r.Fault.Tries))
			}
		}
		if r.State != want {
			t.Errorf("%s: %s, want %s: %+v", id, r.State, want, r.Fault)
		}
	}
}
