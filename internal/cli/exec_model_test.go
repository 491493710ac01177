package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/proc"
)

// execModel is a run of commands as it should be: items that change and grow, some of which fail for now, and what must
// stand in the results after each of several runs, of which many are cut short.
type execModel struct {
	*bed
	luck *rand.Rand

	items   []modelItem
	failing map[string]bool
	tiers   bool
	held    map[string]proc.Result // the results after the run before
	made    map[string]int         // of which versions they are
	retried bool                   // the run before was to try failed items again
	torn    string                 // the item whose line was torn since
	begun   map[string]int         // how often each item had begun by then
	rerun   string                 // the tier whose rerun was cut short
	since   map[string]int         // how often its items had begun when that began
	told    []string               // what was done, for whom it fails
}

type modelItem struct {
	id      string
	tier    int
	version int
}

// TestExecAgainstModel runs random sequences of runs.
func TestExecAgainstModel(t *testing.T) {
	for seed := 1; seed <= suite.Size(2, 30); seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			t.Parallel()
			m := &execModel{bed: newBed(t), luck: rand.New(rand.NewPCG(uint64(seed), 7)), failing: map[string]bool{}, begun: map[string]int{}, made: map[string]int{}}
			m.tiers = m.luck.IntN(2) == 0
			m.grow(6)
			for range 7 {
				m.step()
				if t.Failed() {
					t.Fatalf("after:\n%s", strings.Join(m.told, "\n"))
				}
			}
		})
	}
}

func (m *execModel) tell(format string, args ...any) {
	m.told = append(m.told, fmt.Sprintf(format, args...))
}

// grow adds items and writes the file. Some fail until they are mended.
func (m *execModel) grow(n int) {
	for range n {
		it := modelItem{id: fmt.Sprintf("n%d", len(m.items)), tier: len(m.items) % 3}
		m.items = append(m.items, it)
		if m.luck.IntN(4) == 0 {
			m.failing[it.id] = true
		}
	}
	m.save()
}

func (m *execModel) save() {
	var text strings.Builder
	for _, it := range m.items {
		extra := ""
		if m.tiers {
			extra = fmt.Sprintf(`,"tier":"T%d"`, it.tier)
			if it.tier == 2 {
				extra += `,"needs":"T1"`
			}
		}
		fmt.Fprintf(&text, "{\"id\":%q,\"v\":%d%s}\n", it.id, it.version, extra)
	}
	m.write("items.jsonl", text.String())
	os.RemoveAll(m.path("fail"))
	os.Mkdir(m.path("fail"), 0o700)
	for id := range m.failing {
		m.write("fail/"+id, "")
	}
}

// step changes something, runs, perhaps cuts that short, looks at what came of it, and perhaps damages it.
func (m *execModel) step() {
	if m.luck.IntN(3) == 0 {
		m.grow(m.luck.IntN(3))
	}
	if m.luck.IntN(3) == 0 {
		for id := range maps.Clone(m.failing) {
			if m.luck.IntN(2) == 0 {
				delete(m.failing, id)
			}
		}
	}
	var flags []string
	if m.luck.IntN(4) == 0 {
		m.items[m.luck.IntN(len(m.items))].version++
	}
	m.save()
	redo := m.luck.IntN(4) > 0
	flags = append(flags, "--changed", map[bool]string{true: "redo", false: "keep"}[redo])
	retry := m.luck.IntN(3) == 0 || m.retried && m.luck.IntN(3) > 0
	m.retried = retry
	if retry {
		flags = append(flags, "--retry-failed")
	}
	only := ""
	if m.rerun != "" && m.luck.IntN(3) > 0 {
		only = m.rerun
	} else if m.tiers && m.luck.IntN(4) == 0 {
		only = fmt.Sprintf("T%d", m.luck.IntN(2))
	}
	if only != "" && !slices.ContainsFunc(m.items, func(it modelItem) bool { return fmt.Sprintf("T%d", it.tier) == only }) {
		only = ""
	}
	if only != "" {
		flags = append(flags, "--only", only)
		if only != m.rerun {
			m.since = maps.Clone(m.begun)
		}
	}
	if only != "" {
		m.rerun = only
	}
	code, cut, out := m.cutRun(flags)
	m.tell("%v: code %d, cut by %s", flags, code, cut)
	m.check(code, redo, retry, only, out)
	if code == 0 || code == 3 {
		m.rerun = ""
	}
	m.damage()
}

// cutRun runs, and perhaps interrupts or kills it.
func (m *execModel) cutRun(flags []string) (code int, cut, out string) {
	script := `echo "begin {id}" >> log; sleep 0.0$(( $$ % 5 )); test ! -e fail/{id} || exit 1; echo "end {id} {v}" >> log; echo "end {id}" >> log`
	args := append(flags, "--items", m.path("items.jsonl"), "--jobs", strconv.Itoa(1+m.luck.IntN(4)), "--attempts", "1", "--chdir", m.dir, "--", "sh", "-c", script)
	r := m.command(args...)
	if err := r.Start(); err != nil {
		m.t.Fatal(err)
	}
	wait := time.Duration(m.luck.IntN(200)) * time.Millisecond
	var done *time.Timer
	switch m.luck.IntN(5) {
	case 0:
		cut = "interrupt"
		done = time.AfterFunc(wait, func() { r.Process.Signal(os.Interrupt) })
	case 1:
		cut = "two interrupts"
		done = time.AfterFunc(wait, func() {
			r.Process.Signal(os.Interrupt)
			time.Sleep(5 * time.Millisecond)
			r.Process.Signal(os.Interrupt)
		})
	case 2, 3:
		cut = "kill"
		done = time.AfterFunc(wait, func() { r.Process.Kill() })
	default:
		done = time.AfterFunc(time.Minute, func() { r.Process.Signal(syscall.SIGQUIT) })
	}
	err := r.Wait()
	done.Stop()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		code = exit.ExitCode()
	}
	m.awaitNothing()
	return code, cut, r.out.String()
}

// check compares what is there with what must be.
func (m *execModel) check(code int, redo, retry bool, only, out string) {
	t := m.t
	now, log, begun := m.results(), m.counts("log"), map[string]int{}
	for _, it := range m.items {
		begun[it.id] = log["begin "+it.id]
	}
	done, failed := 0, 0
	for _, it := range m.items {
		before, had := m.held[it.id]
		r, has := now[it.id]
		ran := begun[it.id] - m.begun[it.id]
		selected := only == "" || only == fmt.Sprintf("T%d", it.tier)
		stale := redo && m.made[it.id] != it.version
		again := selected && had && (stale || retry && before.State != proc.Succeeded || only != "")
		switch {
		case !selected && ran > 0:
			t.Errorf("%s ran, and was not chosen", it.id)
		case ran > 1:
			t.Errorf("%s ran %d times in one run", it.id, ran)
		case had && !again && !has:
			t.Errorf("the result of %s is gone", it.id)
		case had && !again && (ran > 0 || r.Ended != before.Ended):
			t.Errorf("%s ran %d times, and had its result: %v, now %v", it.id, ran, before.Ended, r.Ended)
		case it.id == m.torn && !stale && only == "" && ran > 0:
			t.Errorf("%s ran again because its line was torn", it.id)
		case has && r.State == proc.Succeeded && log["end "+it.id] == 0:
			t.Errorf("%s succeeded, and never ended", it.id)
		case has && ran > 0 && r.Ended != before.Ended && (r.State == proc.Succeeded) == m.failing[it.id]:
			t.Errorf("%s: %s, and failing is %v", it.id, r.State, m.failing[it.id])
		}
		if whole := code == 0 || code == 3; whole && selected {
			blocked := strings.Contains(out, "T2 needs") && it.tier == 2
			switch {
			case !has && !blocked:
				t.Errorf("%s has no result: %s", it.id, out)
			case only != "" && !blocked && begun[it.id] <= m.since[it.id]:
				t.Errorf("%s did not run again by --only: %d, %d before", it.id, begun[it.id], m.since[it.id])
			case has && redo && r.State == proc.Succeeded && log[fmt.Sprintf("end %s %d", it.id, it.version)] == 0:
				t.Errorf("%s changed, and did not run again", it.id)
			case retry && !blocked && has && r.State != proc.Succeeded && !m.failing[it.id]:
				t.Errorf("%s was not tried again", it.id)
			}
		}
		if has && (!had || r.Ended != before.Ended) {
			m.made[it.id] = it.version
		}
		if has && r.State == proc.Succeeded {
			done++
		} else if has {
			failed++
		}
	}
	if code == 0 || code == 3 {
		report, _ := os.ReadFile(proc.ReportPath(m.path("state")))
		if want := fmt.Sprintf(`{"items":%d,"succeeded":%d,"failed":%d,`, len(m.items), done, failed); !bytes.HasPrefix(report, []byte(want)) {
			t.Errorf("report %s, want %s", report, want)
		}
		if redo && only == "" && code == 0 && (failed > 0 || done < len(m.items)) {
			t.Errorf("exit code 0 with %d failed and %d of %d done", failed, done, len(m.items))
		}
	} else if code != 130 && code != -1 {
		t.Errorf("exit code %d: %s", code, out)
	}
	m.held, m.begun, m.torn = now, begun, ""
}

// damage does to the files what a crash or an editor may.
func (m *execModel) damage() {
	path := proc.ResultsPath(m.path("state"))
	switch m.luck.IntN(6) {
	case 0:
		data, err := os.ReadFile(path)
		if err != nil || len(data) < 40 {
			return
		}
		os.Truncate(path, int64(len(data)-1-m.luck.IntN(30)))
		for id, r := range m.held {
			if _, left := m.results()[id]; !left {
				delete(m.held, id)
				if m.tell("the line of %s is torn", id); r.State == proc.Succeeded {
					m.torn = id
				}
			}
		}
	case 1:
		os.WriteFile(proc.StatePath(m.path("state")), []byte("{"), 0o600)
		m.tell("the state is broken")
	case 2:
		os.WriteFile(proc.StatePath(m.path("state")), nil, 0o600)
		os.Remove(proc.StatePath(m.path("state")) + ".bak")
		m.tell("the state and its backup are broken")
	}
}
