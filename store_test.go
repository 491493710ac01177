package sluice_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/limits"
)

// callOnce makes one call with the given outcome.
func callOnce(t *testing.T, s *sluice.Scheduler, o sluice.Outcome) {
	t.Helper()
	p, err := s.Acquire(context.Background(), sluice.Call{Lane: "m"})
	if err != nil {
		t.Fatal(err)
	}
	p.Release(o)
}

func startWith(t *testing.T, cfg sluice.Config) *sluice.Scheduler {
	t.Helper()
	s, err := sluice.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func budgetOf(t *testing.T, s *sluice.Scheduler, d limits.Dimension) limits.BucketSnapshot {
	t.Helper()
	for _, l := range s.Snapshot().Lanes {
		for _, b := range l.Budgets {
			if b.Dimension == d {
				return b
			}
		}
	}
	t.Fatalf("no %v budget", d)
	return limits.BucketSnapshot{}
}

func TestADayCounterOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := sluice.Config{Name: "a", Limits: sluice.Limits{RPD: 100}, StateDir: t.TempDir()}
		s := startWith(t, cfg)
		for range 40 {
			callOnce(t, s, sluice.Outcome{})
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = startWith(t, cfg)
		defer s.Close()
		callOnce(t, s, sluice.Outcome{})
		if b := budgetOf(t, s, limits.RequestsPerDay); b.Level < 58.9 || b.Level > 59.1 {
			t.Errorf("%v requests left of the day, want 59", b.Level)
		}
	})
}

func TestALearnedLimitIsTheStartOfTheNextProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := sluice.Config{Name: "a", StateDir: t.TempDir()}
		s := startWith(t, cfg)
		callOnce(t, s, sluice.Outcome{Readings: []limits.Reading{{Dimension: limits.Requests, Limit: 600, Remaining: 599, Reset: 100 * time.Millisecond}}})
		s.Close()

		s = startWith(t, cfg)
		callOnce(t, s, sluice.Outcome{})
		if b := budgetOf(t, s, limits.Requests); b.Limit != 600 || b.Source != limits.SourceHeader {
			t.Errorf("limit %d from %q, want 600 from a header of the earlier process", b.Limit, b.Source)
		}
		s.Close()

		time.Sleep(25 * time.Hour)
		s = startWith(t, cfg)
		defer s.Close()
		callOnce(t, s, sluice.Outcome{})
		if n := len(s.Snapshot().Lanes[0].Budgets); n != 0 {
			t.Errorf("%d budgets are believed after more than a day, want none", n)
		}
	})
}

func TestMain(m *testing.M) {
	suite.InMemory()
	m.Run()
}

func TestAUsageWindowOutlivesTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := sluice.Config{Name: "a", StateDir: t.TempDir()}
		s := startWith(t, cfg)
		until := time.Now().Add(3 * time.Hour)
		callOnce(t, s, sluice.Outcome{Kind: sluice.UsageWindow, Until: until})
		s.Close()

		s = startWith(t, cfg)
		defer s.Close()
		callOnce(t, s, sluice.Outcome{}) // waits
		if now := time.Now(); now.Before(until) || now.After(until.Add(time.Minute)) {
			t.Errorf("sent at %v, want at %v", now, until)
		}
	})
}

// A kill right after a usage window was met does not forget it.
func TestAUsageWindowIsKeptAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := sluice.Config{Name: "a", StateDir: t.TempDir(), Observer: sluice.ObserverFunc(func(sluice.Event) {})}
		s := startWith(t, cfg)
		defer s.Close()
		until := time.Now().Add(3 * time.Hour)
		callOnce(t, s, sluice.Outcome{Kind: sluice.UsageWindow, Until: until})
		synctest.Wait()
		left := t.TempDir()
		if err := os.CopyFS(left, os.DirFS(cfg.StateDir)); err != nil {
			t.Fatal(err)
		}
		cfg.StateDir = left
		next := startWith(t, cfg)
		defer next.Close()
		if callOnce(t, next, sluice.Outcome{}); time.Now().Before(until) {
			t.Errorf("sent %v before the reset", time.Until(until))
		}
	})
}

func TestAProcessThatIgnoresPausesStartsAfresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := sluice.Config{Name: "a", Limits: sluice.Limits{RPD: 100}, StateDir: t.TempDir()}
		s := startWith(t, cfg)
		callOnce(t, s, sluice.Outcome{Readings: []limits.Reading{{Dimension: limits.Tokens, Limit: 600, Remaining: 599, Reset: 100 * time.Millisecond}}})
		callOnce(t, s, sluice.Outcome{Kind: sluice.UsageWindow, Until: time.Now().Add(3 * time.Hour)})
		s.Close()

		cfg.IgnorePauses = true
		s = startWith(t, cfg)
		began := time.Now()
		callOnce(t, s, sluice.Outcome{})
		b := s.Snapshot().Lanes[0].Budgets
		if time.Since(began) > time.Second || len(b) != 1 || b[0].Dimension != limits.RequestsPerDay || b[0].Level > 98 {
			t.Errorf("sent after %v, with %+v", time.Since(began), b)
		}
		s.Close()

		cfg.IgnorePauses = false
		s = startWith(t, cfg)
		defer s.Close()
		callOnce(t, s, sluice.Outcome{})
		if time.Since(began) > time.Second {
			t.Error("the pause that was ignored is still in the file")
		}
	})
}

func TestASecondProcessOnALaneIsTold(t *testing.T) {
	dir := t.TempDir()
	var events []sluice.Event
	first := startWith(t, sluice.Config{Name: "a", StateDir: dir})
	defer first.Close()
	callOnce(t, first, sluice.Outcome{})
	second := startWith(t, sluice.Config{Name: "a", StateDir: dir,
		Observer: sluice.ObserverFunc(func(e sluice.Event) { events = append(events, e) })})
	defer second.Close()
	callOnce(t, second, sluice.Outcome{})
	if len(events) < 2 || events[1].Type != limits.EventShared || events[1].Lane != "m" {
		t.Errorf("events of the second process are %v, want shared behind its start", events)
	}
}

func TestALaneThatIsForgottenHasNoOpenFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared := 0
		cfg := sluice.Config{Name: "a", StateDir: t.TempDir()}
		s := startWith(t, cfg)
		defer s.Close()
		limit := sluice.Outcome{Readings: []limits.Reading{{Dimension: limits.Requests, Limit: 600, Remaining: 599, Reset: 100 * time.Millisecond}}}
		callOnce(t, s, limit)
		time.Sleep(24 * time.Hour)
		p, err := s.Acquire(t.Context(), sluice.Call{Lane: "another"})
		if err != nil {
			t.Fatal(err)
		}
		p.Release(sluice.Outcome{})
		time.Sleep(10 * time.Second)
		if n := len(s.Snapshot().Lanes); n != 1 {
			t.Errorf("%d lanes, want 1", n)
		}
		cfg.Observer = sluice.ObserverFunc(func(e sluice.Event) {
			if e.Type == limits.EventShared {
				shared++
			}
		})
		second := startWith(t, cfg)
		callOnce(t, second, sluice.Outcome{})
		second.Close()
		if shared > 0 {
			t.Error("the file of the lane is still in use")
		}
		callOnce(t, s, sluice.Outcome{})
		if n := len(s.Snapshot().Lanes[1].Budgets); n != 0 {
			t.Errorf("%d budgets are believed after more than a day, want none", n)
		}
	})
}

func TestProcessesOnALaneCountTheDayTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := sluice.Config{Name: "a", Limits: sluice.Limits{RPD: 100}, StateDir: t.TempDir()}
		first, second := startWith(t, cfg), (*sluice.Scheduler)(nil)
		callOnce(t, first, sluice.Outcome{})
		time.Sleep(6 * time.Second) // it has written
		second = startWith(t, cfg)
		for range 50 {
			callOnce(t, second, sluice.Outcome{})
		}
		time.Sleep(6 * time.Second) // both have written
		for range 10 {
			callOnce(t, first, sluice.Outcome{})
		}
		time.Sleep(12 * time.Second)
		for name, s := range map[string]*sluice.Scheduler{"first": first, "second": second} {
			if b := budgetOf(t, s, limits.RequestsPerDay); b.Level < 38.9 || b.Level > 39.2 {
				t.Errorf("the %s process believes that %v of 100 are left, want 39", name, b.Level)
			}
		}
		second.Close()
		first.Close()
		third := startWith(t, cfg)
		defer third.Close()
		callOnce(t, third, sluice.Outcome{})
		if b := budgetOf(t, third, limits.RequestsPerDay); b.Level < 37.9 || b.Level > 38.2 {
			t.Errorf("the next process finds %v left, want 38", b.Level)
		}
	})
}

func TestTheStateIsWrittenWhileTheProcessLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := startWith(t, sluice.Config{Name: "a", Limits: sluice.Limits{RPD: 100}, StateDir: dir})
		defer s.Close()
		callOnce(t, s, sluice.Outcome{})
		time.Sleep(6 * time.Second)
		if found, _ := filepath.Glob(filepath.Join(dir, "*.json")); len(found) != 1 {
			t.Errorf("%v is there after six seconds, want one file: a kill forgets the day", found)
		}
	})
}

func TestOtherAccountsAndDamagedFilesAreNotRead(t *testing.T) {
	dir := t.TempDir()
	s := startWith(t, sluice.Config{Name: "a", Limits: sluice.Limits{RPD: 100}, StateDir: dir})
	callOnce(t, s, sluice.Outcome{})
	s.Close()
	other := startWith(t, sluice.Config{Name: "b", Limits: sluice.Limits{RPD: 100}, StateDir: dir})
	callOnce(t, other, sluice.Outcome{})
	if b := budgetOf(t, other, limits.RequestsPerDay); b.Level < 98.9 {
		t.Errorf("another account's day counter was read: %v left", b.Level)
	}
	other.Close()

	files, _ := filepath.Glob(filepath.Join(dir, "*.json"))
	for _, f := range files {
		if err := os.WriteFile(f, []byte(`{"lane":"m","budg`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s = startWith(t, sluice.Config{Name: "a", Limits: sluice.Limits{RPD: 100}, StateDir: dir})
	defer s.Close()
	callOnce(t, s, sluice.Outcome{})
	if b := budgetOf(t, s, limits.RequestsPerDay); b.Level < 98.9 {
		t.Errorf("%v left after a damaged file, want a fresh day", b.Level)
	}
}

func TestAnObserverMayUseTheSchedulerWhenItIsToldThatALaneIsShared(t *testing.T) {
	dir := t.TempDir()
	first := startWith(t, sluice.Config{Name: "a", StateDir: dir})
	defer first.Close()
	callOnce(t, first, sluice.Outcome{})

	var second *sluice.Scheduler
	granted := false
	second = startWith(t, sluice.Config{Name: "a", StateDir: dir, Observer: sluice.ObserverFunc(func(e sluice.Event) {
		if e.Type != limits.EventShared {
			return
		}
		if p := second.TryAcquire(sluice.Call{Lane: "other"}); p != nil {
			granted = true
			p.Release(sluice.Outcome{})
		}
	})})
	defer second.Close()
	callOnce(t, second, sluice.Outcome{})
	if !granted {
		t.Error("the Observer got no permit")
	}
}

func TestANewThatFailsLeavesNothingBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // which fails if a goroutine is left
		file := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := sluice.New(sluice.Config{Ledger: newLedgerDouble(1), StateDir: file}); err == nil {
			t.Error("a file is no directory")
		}
	})
}
