//go:build linux

package proc_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
)

// model is a run of commands as it should be: items that change and grow, some of which fail for now, and the results that several
// runs must leave, of which many are cut short.
type model struct {
	*course
	luck *rand.Rand

	items   []modelItem
	failing map[string]bool
	log     map[string]int // how often commands began and ended
	stages  bool
	held    map[string]proc.Result // the results after the previous run
	made    map[string]int         // of which versions they are
	retried bool                   // the previous run was to retry failed items
	torn    string                 // the item whose line was torn since
	begun   map[string]int         // how often each item had begun by then
	rerun   string                 // the stage whose rerun was cut short
	since   map[string]int         // how often its items had begun when that began
	told    []string               // the steps, for a test that fails
}

type modelItem struct {
	id      string
	stage   int
	version int
}

func (it modelItem) stageName() string { return fmt.Sprintf("T%d", it.stage) }

// TestExecAgainstModel runs random sequences of runs.
func TestExecAgainstModel(t *testing.T) {
	for seed := range uint64(suite.Size(10, 100)) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			bubble(t, 0, func(t *testing.T, c *course) {
				m := &model{course: c, luck: rand.New(rand.NewPCG(seed, 7)), failing: map[string]bool{}, log: map[string]int{}, begun: map[string]int{}, made: map[string]int{}}
				m.stages = m.luck.IntN(2) == 0
				m.cfg.Items.Path, m.cfg.Command.Args, m.limits.Attempts = m.path("items.jsonl"), []string{"/bin/sh", "{id}", "{v}"}, 1
				m.play(m.answer)
				m.grow(6)
				for range 7 {
					m.step()
					if t.Failed() {
						t.Fatalf("after:\n%s", strings.Join(m.told, "\n"))
					}
				}
			})
		})
	}
}

func (m *model) tell(format string, args ...any) {
	m.told = append(m.told, fmt.Sprintf(format, args...))
}

// note counts an event of an item.
func (m *model) note(events ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, event := range events {
		m.log[event]++
	}
}

// answer takes up to five seconds.
func (m *model) answer(ctx context.Context, k call) int {
	id := k.Args[1]
	m.note("begin " + id)
	m.mu.Lock()
	took := time.Duration(m.luck.IntN(5000)) * time.Millisecond
	m.mu.Unlock()
	rest(ctx, took)
	if ctx.Err() != nil || m.failing[id] {
		return 1
	}
	m.note("end "+id, "end "+id+" "+k.last)
	return 0
}

// grow adds items and writes the file. Some fail for now.
func (m *model) grow(n int) {
	for range n {
		it := modelItem{id: fmt.Sprintf("n%d", len(m.items)), stage: len(m.items) % 3}
		m.items = append(m.items, it)
		if m.luck.IntN(4) == 0 {
			m.failing[it.id] = true
		}
	}
	m.save()
}

func (m *model) save() {
	var text strings.Builder
	for _, it := range m.items {
		extra := ""
		if m.stages {
			extra = fmt.Sprintf(`,"stage":%q`, it.stageName())
			if it.stage == 2 {
				extra += `,"needs":"T1"`
			}
		}
		fmt.Fprintf(&text, "{\"id\":%q,\"v\":%d%s}\n", it.id, it.version, extra)
	}
	m.write("items.jsonl", text.String())
}

// step changes something, runs, perhaps cuts that short, checks the results, and perhaps damages them.
func (m *model) step() {
	if m.luck.IntN(3) == 0 {
		m.grow(m.luck.IntN(3))
	}
	if m.luck.IntN(3) == 0 {
		for _, id := range slices.Sorted(maps.Keys(m.failing)) {
			if m.luck.IntN(2) == 0 {
				delete(m.failing, id)
			}
		}
	}
	if m.luck.IntN(4) == 0 {
		m.items[m.luck.IntN(len(m.items))].version++
	}
	m.save()
	m.cfg.Items.Changed = rows.ChangedKeep
	if m.luck.IntN(4) > 0 {
		m.cfg.Items.Changed = rows.ChangedRedo
	}
	m.cfg.Items.RetryFailed = m.luck.IntN(3) == 0 || m.retried && m.luck.IntN(3) > 0
	m.retried = m.cfg.Items.RetryFailed
	only := ""
	if m.rerun != "" && m.luck.IntN(3) > 0 {
		only = m.rerun
	} else if m.stages && m.luck.IntN(4) == 0 {
		only = fmt.Sprintf("T%d", m.luck.IntN(2))
	}
	m.cfg.Items.Only = nil
	if only != "" {
		m.cfg.Items.Only = []string{only}
		if only != m.rerun {
			m.since = maps.Clone(m.begun)
		}
		m.rerun = only
	}
	time.Sleep(time.Second) // a rerun is of results from before it
	rep, cut, err := m.cutRun()
	m.tell("changed %v, retry %v, only %q: cut by %s, error %v", m.cfg.Items.Changed, m.retried, only, cut, err)
	whole := m.check(rep, err, only)
	if whole {
		m.rerun = ""
	}
	m.damage()
}

// cutRun runs, and perhaps drains, cancels or crashes that. The directory of a run that crashed is that of one instant.
func (m *model) cutRun() (rep proc.Report, cut string, err error) {
	m.limits.Limits.Concurrency = 1 + m.luck.IntN(4)
	s, err := sluice.New(m.limits)
	if err != nil {
		m.t.Fatal(err)
	}
	m.cfg.Limits.Scheduler = s
	x, err := proc.Open(m.cfg)
	if err != nil {
		m.t.Fatal(err, m.told)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	how, after := m.luck.IntN(5), time.Duration(m.luck.IntN(20_000))*time.Millisecond
	r := m.start(ctx, x)
	snapshot := m.path("snapshot")
	if how < 4 {
		select {
		case <-r.done:
		case <-time.After(after):
			switch cut = []string{"drain", "cancel", "crash", "crash"}[how]; cut {
			case "drain":
				x.Drain()
			case "crash":
				synctest.Wait() // nothing is half written
				if err := os.CopyFS(snapshot, os.DirFS(m.cfg.Dir)); err != nil {
					m.t.Fatal(err)
				}
				cancel()
			default:
				cancel()
			}
		}
	}
	rep, err = r.ended()
	if wrong := errors.Join(x.Close(), s.Close()); wrong != nil {
		m.t.Error(wrong)
	}
	if cut == "crash" {
		if wrong := errors.Join(os.RemoveAll(m.cfg.Dir), os.Rename(snapshot, m.cfg.Dir)); wrong != nil {
			m.t.Error(wrong)
		}
	}
	return rep, cut, err
}

// recorded are the results by id.
func (m *model) recorded() map[string]proc.Result {
	all := map[string]proc.Result{}
	list, err := proc.Results(m.cfg.Dir)
	if err != nil {
		m.t.Error(err)
	}
	for _, r := range list {
		if _, twice := all[r.ID]; twice {
			m.t.Errorf("%s is recorded twice", r.ID)
		}
		all[r.ID] = *r
	}
	return all
}

// check compares the results with those that must be there, and reports whether the run was not cut short.
func (m *model) check(rep proc.Report, err error, only string) (whole bool) {
	t, redo := m.t, m.cfg.Items.Changed == rows.ChangedRedo
	block, isBlocked := errors.AsType[*proc.BlockedError](err)
	whole = err == nil || isBlocked
	if !whole && !errors.Is(err, work.ErrDrained) && !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	now, log, begun := m.recorded(), m.log, map[string]int{}
	done, failed := 0, 0
	for _, it := range m.items {
		begun[it.id] = log["begin "+it.id]
		before, had := m.held[it.id]
		r, has := now[it.id]
		ran := begun[it.id] - m.begun[it.id]
		selected := only == "" || only == it.stageName()
		stale := redo && m.made[it.id] != it.version
		again := selected && had && (stale || m.retried && before.State != proc.Succeeded || only != "")
		switch {
		case !selected && ran > 0:
			t.Errorf("%s ran, and was not chosen", it.id)
		case ran > 1:
			t.Errorf("%s ran %d times in one run", it.id, ran)
		case had && !again && !has:
			t.Errorf("the result of %s is gone", it.id)
		case had && !again && (ran > 0 || r.Ended != before.Ended):
			t.Errorf("%s ran %d times, and had its result: %v, now %v", it.id, ran, before.Ended, r.Ended)
		case it.id == m.torn && m.made[it.id] == it.version && only == "" && ran > 0:
			t.Errorf("%s ran again because its line was torn", it.id)
		case has && r.State == proc.Succeeded && log["end "+it.id] == 0:
			t.Errorf("%s succeeded, and never ended", it.id)
		case has && ran > 0 && r.Ended != before.Ended && (r.State == proc.Succeeded) == m.failing[it.id]:
			t.Errorf("%s: %s, and failing is %v", it.id, r.State, m.failing[it.id])
		}
		if whole && selected {
			blocked := isBlocked && it.stage == 2
			switch {
			case !has && !blocked:
				t.Errorf("%s has no result: %+v", it.id, block)
			case only != "" && !blocked && begun[it.id] <= m.since[it.id]:
				t.Errorf("%s did not run again by Only: %d, %d before", it.id, begun[it.id], m.since[it.id])
			case has && redo && r.State == proc.Succeeded && log[fmt.Sprintf("end %s %d", it.id, it.version)] == 0:
				t.Errorf("%s changed, and did not run again", it.id)
			case m.retried && !blocked && has && r.State != proc.Succeeded && !m.failing[it.id]:
				t.Errorf("%s was not retried", it.id)
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
	if whole && (rep.Items != len(m.items) || rep.Succeeded != done || rep.Failed != failed) {
		t.Errorf("report %+v, want %d done and %d failed of %d", rep.Summary, done, failed, len(m.items))
	}
	m.held, m.begun, m.torn = now, begun, ""
	return whole
}

// damage does to the files what a crash or an editor may.
func (m *model) damage() {
	state := proc.StatePath(m.cfg.Dir)
	switch m.luck.IntN(5) {
	case 0:
		path := proc.ResultsPath(m.cfg.Dir)
		data, err := os.ReadFile(path)
		if err != nil || len(data) < 40 {
			return
		}
		os.Truncate(path, int64(len(data)-1-m.luck.IntN(30)))
		left := m.recorded()
		for id, r := range m.held {
			if _, ok := left[id]; !ok {
				delete(m.held, id)
				if m.tell("the line of %s is torn", id); r.State == proc.Succeeded {
					m.torn = id
				}
			}
		}
	case 1:
		os.WriteFile(state, []byte("{"), 0o600)
		m.tell("the state is broken")
	}
}
