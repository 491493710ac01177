package work_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

func TestJournalIsCutAtATornLine(t *testing.T) {
	const whole = "first\nsecond\nthird line\n"
	for n := range len(whole) + 1 {
		path := journalPath(t)
		if err := os.WriteFile(path, []byte(whole[:n]), 0o644); err != nil {
			t.Fatal(err)
		}
		j := openJournal(t, path, work.JournalConfig{})
		want := whole[:strings.LastIndexByte(whole[:n], '\n')+1]
		if _, err := j.Append([]byte("next\n")); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(path); string(got) != want+"next\n" {
			t.Errorf("torn at %d: %q, want %q", n, got, want+"next\n")
		}
	}
}

func TestJournalKeepsAWholeLastLineWithoutNewline(t *testing.T) {
	path := journalPath(t)
	if err := os.WriteFile(path, []byte("{a}\n{b}"), 0o600); err != nil {
		t.Fatal(err)
	}
	whole := func(line []byte) bool { return bytes.HasSuffix(line, []byte("}")) }
	j := openJournal(t, path, work.JournalConfig{Whole: whole})
	if _, err := j.Append([]byte("{c}\n")); err != nil {
		t.Fatal(err)
	}
	if got := linesOf(t, j); len(got) != 3 || got[1] != "{b}" {
		t.Errorf("lines %q", got)
	}
}

func TestJournalDoesNotCutWhatIsNoneOfIts(t *testing.T) {
	for text, ok := range map[string]bool{"a line\nDear diary": false, "Dear": false, "{\"i": true, "x\n{\"id\":4,": true, "{\"ix": false} {
		path := journalPath(t)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		j, err := work.OpenJournal(path, work.JournalConfig{Prefix: `{"id":`})
		if (err == nil) != ok {
			t.Errorf("%q: error %v", text, err)
		}
		if err == nil {
			j.Close()
		} else if b, _ := os.ReadFile(path); string(b) != text {
			t.Errorf("%q became %q", text, b)
		}
	}
}

func TestJournalCutsALongTornTail(t *testing.T) {
	path := journalPath(t)
	if err := os.WriteFile(path, []byte("ok\n"+strings.Repeat("x", 300_000)), 0o644); err != nil {
		t.Fatal(err)
	}
	j := openJournal(t, path, work.JournalConfig{})
	if got := linesOf(t, j); len(got) != 1 || got[0] != "ok" {
		t.Errorf("%d lines", len(got))
	}
}

func TestJournalAppendsWholeLinesAtOnce(t *testing.T) {
	for _, mode := range []work.SyncMode{work.SyncInterval, work.SyncEach} {
		j := openJournal(t, journalPath(t), work.JournalConfig{Sync: mode})
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				for k := range 20 {
					if _, err := j.Append(fmt.Appendf(nil, "%d-%d %s\n", i, k, strings.Repeat("x", i*100))); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		seen := make(map[string]bool)
		for _, line := range linesOf(t, j) {
			id, rest, _ := strings.Cut(line, " ")
			i, _, _ := strings.Cut(id, "-")
			if n, err := strconv.Atoi(i); err != nil || len(rest) != n*100 || seen[id] {
				t.Fatalf("line %q", line)
			}
			seen[id] = true
		}
		if len(seen) != 400 {
			t.Errorf("mode %d: %d lines, want 400", mode, len(seen))
		}
	}
}

func TestJournalSyncsOnceAnInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := openJournal(t, journalPath(t), work.JournalConfig{})
		for range 10 {
			if _, err := j.Append([]byte("x\n")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Hour) // an idle journal wakes nobody
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if _, err := j.Append([]byte("x\n")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Append after Close: %v", err)
		}
	})
}

func TestJournalRewriteKeepsWhatIsWanted(t *testing.T) {
	path := journalPath(t)
	const before = "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n"
	if err := os.WriteFile(path, []byte(before), 0o644); err != nil {
		t.Fatal(err)
	}
	j := openJournal(t, path, work.JournalConfig{})
	j.Rewrite(func(l work.Line) bool { return l.Number%2 == 1 })
	if b, _ := os.ReadFile(path); string(b) != before {
		t.Errorf("with no new line, the file is %q", b)
	}
	if _, err := j.Append([]byte("new\n")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(linesOf(t, j), " "); got != "0 2 4 6 8 new" {
		t.Errorf("lines %q", got)
	}
	if _, err := j.Append([]byte("newer\n")); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "0\n2\n4\n6\n8\nnew\nnewer\n" {
		t.Errorf("file %q", b)
	}
	if _, err := work.OpenJournal(path, work.JournalConfig{}); err == nil {
		t.Error("the lock was lost by rewriting")
	}
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.tmp"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestJournalSortKeepsLinesOfARankInTheirOrder(t *testing.T) {
	path := journalPath(t)
	if err := os.WriteFile(path, []byte("\ufeff3a\n1a\n\n3b\n2a\r\n1b\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	j := openJournal(t, path, work.JournalConfig{})
	rank := func(line []byte) uint32 {
		if len(line) == 0 {
			return 9
		}
		return uint32(line[0])
	}
	var before os.FileInfo
	for i, want := range []string{"\n1a\n1b\n2a\r\n3a\n3b\n", "\n1a\n1b\n2a\r\n3a\n3b\n"} {
		if err := j.Sort(rank); err != nil {
			t.Fatal(err)
		}
		if b, _ := os.ReadFile(path); string(b) != want {
			t.Errorf("file %q", b)
		}
		after, err := os.Stat(path)
		if err != nil || after.Mode().Perm() != 0o640 || i > 0 && !os.SameFile(before, after) {
			t.Errorf("%v, %v: sorted again although it was sorted", after.Mode(), err)
		}
		before = after
	}
	if _, err := j.Append([]byte("new\n")); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(linesOf(t, j), " "); !strings.HasSuffix(got, " 3b new") {
		t.Errorf("lines %q", got)
	}
	if _, err := work.OpenJournal(path, work.JournalConfig{}); err == nil {
		t.Error("the lock was lost")
	}
}

func TestASortThatFailsLeavesTheJournalAsItWas(t *testing.T) {
	path := journalPath(t)
	if err := os.MkdirAll(filepath.Join(path+".rewrite.tmp", "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	j := openJournal(t, path, work.JournalConfig{})
	if _, err := j.Append([]byte("b\na\n")); err != nil {
		t.Fatal(err)
	}
	if err := j.Sort(func(line []byte) uint32 { return uint32(line[0]) }); err == nil {
		t.Error("no error")
	}
	if _, err := j.Append([]byte("c\n")); err != nil {
		t.Error(err)
	}
	if b, _ := os.ReadFile(path); string(b) != "b\na\nc\n" {
		t.Errorf("file %q", b)
	}
}

// Who can write to the directory must not choose which file the run writes over.
func TestARewriteFollowsNoLink(t *testing.T) {
	path := journalPath(t)
	other := filepath.Join(t.TempDir(), "other")
	for name, text := range map[string]string{path: "a\nb\n", other: "precious"} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(other, path+".rewrite.tmp"); err != nil {
		t.Skip(err)
	}
	j := openJournal(t, path, work.JournalConfig{})
	j.Rewrite(func(l work.Line) bool { return string(l.Bytes) == "b" })
	if _, err := j.Append([]byte("c\n")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{path: "b\nc\n", other: "precious"} {
		if b, err := os.ReadFile(name); string(b) != want {
			t.Errorf("%s holds %q, %v", name, b, err)
		}
	}
}

func TestARewriteThatFailsLeavesTheJournalAsItWas(t *testing.T) {
	path := journalPath(t)
	if err := os.WriteFile(path, []byte("a\nb\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path+".rewrite.tmp", "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	j := openJournal(t, path, work.JournalConfig{})
	j.Rewrite(func(work.Line) bool { return false })
	for range 2 {
		_, err := j.Append([]byte("c\n"))
		if _, ok := errors.AsType[*work.JournalError](err); !ok {
			t.Errorf("error %v, want a *JournalError", err)
		}
	}
	if b, _ := os.ReadFile(path); string(b) != "a\nb\n" {
		t.Errorf("file %q", b)
	}
}

func TestJournalFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("a\nb\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, link); err != nil {
		t.Fatal(err)
	}
	j := openJournal(t, link, work.JournalConfig{})
	if _, err := work.OpenJournal(target, work.JournalConfig{}); err == nil {
		t.Error("the same file was opened twice, by two names")
	}
	j.Rewrite(func(l work.Line) bool { return l.Number == 2 })
	if _, err := j.Append([]byte("c\n")); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(target); string(b) != "b\nc\n" {
		t.Errorf("target %q", b)
	}
	if info, _ := os.Lstat(link); info.Mode()&os.ModeSymlink == 0 {
		t.Error("the link was replaced")
	}
}

func TestUnusedJournalLeavesNothing(t *testing.T) {
	path := journalPath(t)
	if err := openJournal(t, path, work.JournalConfig{}).Close(); err != nil {
		t.Fatal(err)
	}
	if left, _ := filepath.Glob(path + "*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if _, err := work.OpenJournal(t.TempDir(), work.JournalConfig{}); err == nil {
		t.Error("a directory was opened")
	}
	if _, err := work.OpenJournal(os.DevNull, work.JournalConfig{}); err == nil {
		t.Error("a device was opened")
	}
}

func TestSyncModesHaveNames(t *testing.T) {
	var m work.SyncMode
	for name, want := range map[string]work.SyncMode{"each": work.SyncEach, "interval": work.SyncInterval} {
		if err := m.UnmarshalText([]byte(name)); err != nil || m != want {
			t.Errorf("%s: mode %d, error %v", name, m, err)
		}
	}
	if err := m.UnmarshalText([]byte("often")); err == nil {
		t.Error("a mode that there is not was read")
	}
}

func TestStateFileIsReplacedWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := journalPath(t)
		state := work.StatePath(path)
		var pauses work.Pauses
		run := func(fail bool) {
			j := openJournal(t, path, work.JournalConfig{})
			defer j.Close()
			r := newRunner(t, work.Config{Journal: j, Encode: encode, Pauses: &pauses, Handler: &fake{took: 90 * time.Second}})
			add(t, r, numbered(2)...)
			time.AfterFunc(10*time.Second, func() {
				now := time.Now()
				for range 2 { // told twice, the second time longer: one pause
					now = now.Add(time.Minute)
					pauses.Observe(sluice.Event{Type: limits.EventCooldownStarted, Lane: "m", At: time.Now(), Until: now})
				}
				synctest.Wait()
				time.Sleep(time.Millisecond) // for the file, which is outside the bubble's time
				s, err := work.LoadState(state)
				if err != nil || s.Status != work.Paused || !s.RateLimitUntil.Equal(now) || s.PID != os.Getpid() {
					t.Errorf("paused: %+v, error %v", s, err)
				}
			})
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
			defer cancel()
			if _, err := r.Run(ctx); err != nil {
				t.Error(err)
			}
		}
		run(false)
		s, err := work.LoadState(state)
		if err != nil || s.Status != work.Completed || s.PauseCount != 1 || s.Total != 2 || s.Done != 2 {
			t.Errorf("state %+v, error %v", s, err)
		}
		first := s.StartedAt
		pauses = work.Pauses{}
		run(false)
		if s, err = work.LoadState(state); err != nil || s.PauseCount != 2 || !s.StartedAt.Equal(first) {
			t.Errorf("second run: state %+v, error %v", s, err)
		}
		for n := range 20 { // torn anywhere
			b, _ := os.ReadFile(state)
			if err := os.WriteFile(state, b[:len(b)*n/20], 0o644); err != nil {
				t.Fatal(err)
			}
			if s, err = work.LoadState(state); err == nil || s.Status != "" {
				t.Errorf("torn at %d of 20: state %+v, error %v", n, s, err)
			}
			_ = os.WriteFile(state, b, 0o644)
		}
		os.WriteFile(state, nil, 0o644)
		openJournal(t, path, work.JournalConfig{}).Close()
		if _, err = work.LoadState(state); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("after a run that did nothing: %v", err)
		}
	})
}

func TestAWithdrawnRunLeavesTheStateOfTheOneBefore(t *testing.T) {
	path := journalPath(t)
	state := work.StatePath(path)
	run := func(withdraw bool, items ...work.Item) {
		j := openJournal(t, path, work.JournalConfig{})
		r := newRunner(t, work.Config{Journal: j, Encode: encode, Handler: &fake{}})
		add(t, r, items...)
		if _, err := r.Run(t.Context()); err != nil {
			t.Error(err)
		}
		if withdraw {
			j.Withdraw()
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
	run(true)
	if _, err := work.LoadState(state); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a state of the only run, which was withdrawn: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its journal: %v", err)
	}
	run(false) // all that there was to do is done
	if info, err := os.Stat(path); err != nil || info.Size() > 0 {
		t.Errorf("the journal of a run that had nothing to do: %v", err)
	}
	run(false, numbered(2)...)
	run(true)
	if s, err := work.LoadState(state); err != nil || s.Total != 2 || s.Done != 2 {
		t.Errorf("%+v, error %v", s, err)
	}
}

// A pause lasts until a request succeeds, over resumes too: it is counted once, and keeps when its limit was first met.
func TestAPauseOfAnEarlierRunContinues(t *testing.T) {
	first := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	old := work.RateLimit{Kind: sluice.RateLimit, Lane: "m", Source: "stdout", Text: "slow down", Until: first.Add(time.Minute), Stated: true, SeenAt: first}
	later := first.Add(time.Hour)
	met := sluice.Event{Type: limits.EventCooldownStarted, Lane: "m", At: later, Until: later.Add(time.Minute), Outcome: sluice.Outcome{Kind: sluice.RateLimit, Err: errors.New("again")}}
	good := sluice.Event{Type: limits.EventSlotReleased, Lane: "m", At: later}
	for _, tt := range []struct {
		name   string
		ignore bool
		events []sluice.Event
		count  int
		want   work.RateLimit
	}{
		{"at once", false, nil, 0, old},
		{"the limit is met again", false, []sluice.Event{met}, 0, work.RateLimit{Kind: sluice.RateLimit, Lane: "m", Text: "again", Until: met.Until, SeenAt: first}},
		{"a request succeeds before", false, []sluice.Event{good, met}, 1, work.RateLimit{Kind: sluice.RateLimit, Lane: "m", Text: "again", Until: met.Until, SeenAt: later}},
		{"it is ignored", true, []sluice.Event{met}, 1, work.RateLimit{Kind: sluice.RateLimit, Lane: "m", Text: "again", Until: met.Until, SeenAt: later}},
	} {
		p := work.Pauses{IgnoreEarlier: tt.ignore}
		p.Recall(work.State{RateLimit: old})
		for _, e := range tt.events {
			p.Observe(e)
		}
		if got := p.Limit("m"); p.Count() != tt.count || got != tt.want {
			t.Errorf("%s: %d pauses, %+v, want %d, %+v", tt.name, p.Count(), got, tt.count, tt.want)
		}
	}
}
