package proc_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/proc/agents"
)

func TestAFileKeepsWhatIsKnown(t *testing.T) {
	w, path := ledger(t)
	begin := close5(w, noon)
	for i := range 30 {
		w.Note(begin.Add(time.Duration(i)*time.Minute), figure(1000, "weekly", 0.1+float64(i)/500, noon.Add(5*24*time.Hour)))
	}
	if err := w.Save(); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	again, err := proc.ReadWindows(path, agents.Recognise("claude"))
	if err != nil {
		t.Fatal(err)
	}
	now := begin.Add(30 * time.Minute)
	a, b := w.Forecasts(now), again.Forecasts(now)
	if len(a) != 2 || len(b) != 2 || a[0] != b[0] || a[1] != b[1] || w.PaceEvery(now) != again.PaceEvery(now) {
		t.Errorf("forecasts differ:\n%+v\n%+v", a, b)
	}
	if left, _ := filepath.Glob(path + "*"); len(left) != 2 { // with its lock
		t.Errorf("%v", left)
	}
}

// Two runs of one account write in turns: none loses what the other one learned.
func TestRunsAtOnceKeepWhatAllLearned(t *testing.T) {
	a, path := ledger(t)
	b, err := proc.ReadWindows(path, agents.Recognise("claude"))
	if err != nil {
		t.Fatal(err)
	}
	reset := close5(a, noon)
	b.Note(noon.Add(time.Minute), figure(1000, "weekly", 0.25, noon.Add(5*24*time.Hour)))
	b.Note(noon.Add(2*time.Minute), figure(1000, "weekly", 0.5, noon.Add(5*24*time.Hour)))
	for _, w := range []*proc.Windows{a, b, a} {
		if err := w.Save(); err != nil {
			t.Fatal(err)
		}
	}
	c, err := proc.ReadWindows(path, agents.Recognise("claude"))
	if err != nil {
		t.Fatal(err)
	}
	for name, w := range map[string]*proc.Windows{"a run that saved last": a, "the next run": c} {
		now := noon.Add(2 * time.Hour)
		if f := windowOf(t, w, "5-hour", now); f.Used != 1 || !f.Resets.Equal(reset) {
			t.Errorf("%s: %+v", name, f)
		}
		if f := windowOf(t, w, "weekly", now); f.Used < 0.5 {
			t.Errorf("%s: %+v", name, f)
		}
	}

	// Many at once, each with as many commands: all are counted, and none twice.
	var all sync.WaitGroup
	for range 8 {
		w, err := proc.ReadWindows(path, agents.Recognise("claude"))
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			for i := range 10 {
				w.Note(reset.Add(time.Duration(i)*time.Minute), done(1000))
				if err := w.Save(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	c, _ = proc.ReadWindows(path, agents.Recognise("claude"))
	// The window before held 100 commands of as many tokens.
	if f := windowOf(t, c, "5-hour", reset.Add(10*time.Minute)); math.Abs(f.Used-0.8) > 1e-9 {
		t.Errorf("80 of 100 commands are %v of the window", f.Used)
	}
}

func TestADamagedFileIsBegunAnewAndSaidSo(t *testing.T) {
	w, path := ledger(t)
	close5(w, noon)
	if err := w.Save(); err != nil {
		t.Fatal(err)
	}
	good, _ := os.ReadFile(path)
	for name, content := range map[string]string{
		"half":            string(good[:len(good)/2]),
		"empty":           "",
		"of another CLI":  strings.Replace(string(good), `"claude"`, `"codex"`, 1),
		"of a version":    strings.Replace(string(good), `"version":1`, `"version":2`, 1),
		"negative":        strings.Replace(string(good), `"tokens":1000`, `"tokens":-1000`, 1),
		"too much":        strings.Replace(string(good), `"tokens":1000`, `"tokens":1e300`, 1),
		"a window of nil": `{"version":1,"cli":"claude","windows":{"5-hour":null}}`,
	} {
		if content == string(good) {
			t.Fatalf("%s: nothing was changed", name)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		w, err := proc.ReadWindows(path, agents.Recognise("claude"))
		if err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "learned anew") {
			t.Errorf("%s: %v", name, err)
		}
		if len(w.Forecasts(noon.Add(time.Hour))) != 0 {
			t.Errorf("%s: it is believed", name)
		}
		w.Note(noon, done(1))
		if err := w.Save(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Sixty days of a command every five minutes.
func TestAFileStaysSmall(t *testing.T) {
	w, path := ledger(t)
	at := noon
	for range 60 * 24 * 12 {
		w.Note(at, done(1000))
		at = at.Add(5 * time.Minute)
	}
	w.Note(at, figure(1000, "weekly", 0.5, at.Add(time.Hour)))
	if err := w.Save(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > 80<<10 {
		t.Errorf("%d bytes, %v", info.Size(), err)
	}
	// A week of commands is half of the window: twelve in the hour that is left do not end it.
	f := windowOf(t, w, "weekly", at)
	if math.Abs(f.Used-0.5) > 0.001 || !f.EndsAt.IsZero() {
		t.Errorf("%+v", f)
	}
}

func FuzzReadWindows(f *testing.F) {
	w, path := ledger(f)
	reset := close5(w, noon)
	w.Note(reset, figure(1000, "weekly", 0.4, reset.Add(time.Hour)))
	if err := w.Save(); err != nil {
		f.Fatal(err)
	}
	good, _ := os.ReadFile(path)
	f.Add(good)
	f.Add(good[:100])
	f.Add([]byte(`{"version":1,"cli":"claude","uses":[{"at":"0001-01-01T00:00:00Z","tokens":1}],"windows":{"weekly":{"resets":"9999-01-01T00:00:00Z"}}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		w, _ := proc.ReadWindows(path, agents.Recognise("claude"))
		w.Note(noon, refused("5-hour", reset))
		w.Note(noon, done(5))
		for _, f := range w.Forecasts(noon) {
			if f.Used < 0 || f.Used > 1 || !f.EndsAt.IsZero() && f.EndsAt.Before(noon) {
				t.Errorf("%+v", f)
			}
		}
		if w.PaceEvery(noon) < 0 {
			t.Error("a pace below zero")
		}
		if err := w.Save(); err != nil {
			t.Error(err)
		}
	})
}
