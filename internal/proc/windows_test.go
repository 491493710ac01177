package proc_test

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/proc/agents"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// ledger is a Windows of an account of claude, in a file that is not there yet.
func ledger(t testing.TB) (*proc.Windows, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "windows.json")
	w, err := proc.ReadWindows(path, agents.Recognise("claude"))
	if err != nil {
		t.Fatal(err)
	}
	return w, path
}

// done is a command that went well and used so many tokens.
func done(tokens int) *agents.Meaning {
	return &agents.Meaning{Usage: sluice.Usage{Input: tokens * 4 / 5, Output: tokens - tokens*4/5}, HasUsage: true}
}

// figure is a command that went well, whose CLI said how much of a window is used.
func figure(tokens int, window string, used float64, resets time.Time) *agents.Meaning {
	m := done(tokens)
	m.Windows = []agents.WindowUse{{Name: window, Used: used, HasUsed: true, Resets: resets}}
	return m
}

// refused is a command that was refused because a window is used up.
func refused(window string, resets time.Time) *agents.Meaning {
	return &agents.Meaning{Kind: sluice.UsageWindow, Until: resets,
		Windows: []agents.WindowUse{{Name: window, Used: 1, HasUsed: true, Resets: resets}}}
}

// windowOf returns the forecast of a window.
func windowOf(t testing.TB, w *proc.Windows, name string, now time.Time) proc.Forecast {
	t.Helper()
	for _, f := range w.Forecasts(now) {
		if f.Window == name {
			return f
		}
	}
	t.Fatalf("no forecast of the %s window: %v", name, w.Forecasts(now))
	return proc.Forecast{}
}

// close5 has a window of five hours take 100 commands of 1,000 tokens, one a minute, and then be refused.
func close5(w *proc.Windows, begin time.Time) (reset time.Time) {
	for i := range 100 {
		w.Note(begin.Add(time.Duration(i)*time.Minute), done(1000))
	}
	reset = begin.Add(5 * time.Hour)
	w.Note(begin.Add(100*time.Minute), refused("5-hour", reset))
	return reset
}

func near(got, want time.Time, by time.Duration) bool { return got.Sub(want).Abs() <= by }

func TestEarlierWindowsTellHowLongThisOneLasts(t *testing.T) {
	w, _ := ledger(t)
	if list := w.Forecasts(noon); len(list) != 0 || w.PaceEvery(noon) != 0 {
		t.Fatalf("nothing is known, and yet: %v, one every %v", list, w.PaceEvery(noon))
	}
	reset := close5(w, noon)
	if f := windowOf(t, w, "5-hour", noon.Add(2*time.Hour)); f.Used != 1 || !f.Resets.Equal(reset) || !strings.Contains(f.String(), "is used up until") {
		t.Errorf("a window that was refused: %+v, %v", f, f)
	}
	begin := reset.Add(10 * time.Minute)
	for i := range 41 { // two a minute
		w.Note(begin.Add(time.Duration(i)*30*time.Second), done(1000))
	}
	now := begin.Add(20 * time.Minute)
	f := windowOf(t, w, "5-hour", now)
	if math.Abs(f.Used-0.41) > 0.001 || f.Basis != "of 1 earlier window" || !f.Guess {
		t.Errorf("%+v", f)
	}
	if want := now.Add(30 * time.Minute); !near(f.EndsAt, want, 2*time.Minute) || !near(f.Resets, begin.Add(5*time.Hour), time.Minute) {
		t.Errorf("ends %v, want about %v; resets %v", f.EndsAt, want, f.Resets)
	}
	for i := range 60 {
		w.Note(now.Add(time.Duration(i)*time.Second), done(1000))
	}
	if f := windowOf(t, w, "5-hour", now.Add(time.Minute)); f.Used != 1 || !strings.Contains(f.String(), "has taken what earlier ones had") {
		t.Errorf("a window that has taken as much as the one before, and goes on: %+v, %v", f, f)
	}
	if want := "at this pace the 5-hour window ends " + f.EndsAt.Local().Format("15:04"); f.String() != want {
		t.Errorf("%q, want %q", f, want)
	}
	if f.Detail() != "41 % used, of 1 earlier window" {
		t.Error(f.Detail())
	}
}

func TestASlowPaceLastsUntilTheReset(t *testing.T) {
	w, _ := ledger(t)
	begin := close5(w, noon)
	for i := range 5 {
		w.Note(begin.Add(time.Duration(i)*10*time.Minute), done(1000))
	}
	f := windowOf(t, w, "5-hour", begin.Add(45*time.Minute))
	if !f.EndsAt.IsZero() || !strings.HasPrefix(f.String(), "at this pace the 5-hour window lasts until its reset at ") {
		t.Errorf("%+v: %v", f, f)
	}
}

func TestTheCLIsOwnFiguresComeFirst(t *testing.T) {
	w, _ := ledger(t)
	begin := close5(w, noon)
	reset := begin.Add(5 * time.Hour)
	// Somebody else has used half of the window. Of the rest, a command takes a hundredth.
	for i := range 21 {
		w.Note(begin.Add(time.Duration(i)*time.Minute), figure(1000, "5-hour", 0.5+float64(i)/100, reset))
	}
	now := begin.Add(21 * time.Minute)
	f := windowOf(t, w, "5-hour", now)
	if math.Abs(f.Used-0.7) > 0.001 || f.Basis != "of the CLI's own figures" || !f.Resets.Equal(reset) {
		t.Errorf("%+v", f)
	}
	if want := now.Add(30 * time.Minute); !near(f.EndsAt, want, 3*time.Minute) {
		t.Errorf("ends %v, want about %v", f.EndsAt, want)
	}
}

func TestOneFigureIsEnough(t *testing.T) {
	w, _ := ledger(t)
	reset := noon.Add(5 * time.Hour)
	for i := range 30 {
		w.Note(noon.Add(time.Duration(i)*time.Minute), done(1000))
	}
	w.Note(noon.Add(29*time.Minute), figure(0, "5-hour", 0.3, reset))
	f := windowOf(t, w, "5-hour", noon.Add(30*time.Minute))
	if want := noon.Add(100 * time.Minute); math.Abs(f.Used-0.3) > 0.01 || !near(f.EndsAt, want, 5*time.Minute) {
		t.Errorf("%+v, want about %v", f, want)
	}
}

func TestTheMedianOfTheLastEightWindowsCounts(t *testing.T) {
	w, _ := ledger(t)
	at := noon
	for i := range 12 { // of 1, 2, 3 … commands, of which the last eight are 5 to 12
		for range i + 1 {
			w.Note(at, done(1000))
		}
		w.Note(at.Add(time.Minute), refused("5-hour", at.Add(5*time.Hour)))
		at = at.Add(5 * time.Hour)
	}
	w.Note(at, done(1000))
	f := windowOf(t, w, "5-hour", at.Add(time.Minute))
	if math.Abs(f.Used-1/8.5) > 0.001 || f.Basis != "of 8 earlier windows" {
		t.Errorf("%+v", f)
	}
}

// Thirty commands are in flight when the window closes: each tells of the same closing. Then the reset moves.
func TestOneClosingIsToldByManyAndItsResetMayMove(t *testing.T) {
	w, _ := ledger(t)
	reset := close5(w, noon)
	for i := range 30 {
		w.Note(noon.Add(101*time.Minute+time.Duration(i)*time.Second), refused("5-hour", reset))
	}
	for _, moved := range []time.Time{reset.Add(40 * time.Minute), reset.Add(-20 * time.Minute)} {
		w.Note(noon.Add(2*time.Hour), refused("5-hour", moved))
		if f := windowOf(t, w, "5-hour", noon.Add(2*time.Hour)); !f.Resets.Equal(moved) {
			t.Errorf("a reset that moves to %v is not followed: %+v", moved, f)
		}
	}
	begin := reset.Add(-19 * time.Minute) // less than five hours after the first command
	w.Note(begin, done(1000))
	if f := windowOf(t, w, "5-hour", begin.Add(time.Minute)); f.Basis != "of 1 earlier window" || math.Abs(f.Used-0.01) > 1e-6 {
		t.Errorf("%+v", f)
	}
}

func TestAWindowThatIsUsedUpOpensAgainByTheCLIsWord(t *testing.T) {
	w, _ := ledger(t)
	reset := close5(w, noon)
	at := noon.Add(2 * time.Hour) // the plan was changed
	w.Note(at, figure(1000, "5-hour", 0.2, reset))
	if f := windowOf(t, w, "5-hour", at.Add(time.Minute)); f.Used > 0.5 {
		t.Errorf("%+v", f)
	}
}

func TestTheWeeklyWindowIsForecastBesides(t *testing.T) {
	w, _ := ledger(t)
	reset := noon.Add(3 * 24 * time.Hour)
	for i := range 11 {
		w.Note(noon.Add(time.Duration(i)*time.Minute), figure(1000, "weekly", 0.80+float64(i)/100, reset))
	}
	f := windowOf(t, w, "weekly", noon.Add(11*time.Minute))
	if f.EndsAt.IsZero() || !f.EndsAt.Before(noon.Add(time.Hour)) {
		t.Errorf("%+v", f)
	}
	later := noon.Add(4 * time.Hour) // nothing since
	if f := windowOf(t, w, "weekly", later); !f.EndsAt.IsZero() || f.Resets != reset {
		t.Errorf("%+v", f)
	}
	if day := reset.Local().Format("2006-01-02 15:04"); !strings.HasSuffix(windowOf(t, w, "weekly", later).String(), day) {
		t.Errorf("%v: another day's time needs its date", windowOf(t, w, "weekly", later))
	}
}

func TestCommandsAreCountedWhereNothingElseIsKnown(t *testing.T) {
	w, _ := ledger(t)
	for i := range 10 {
		w.Note(noon.Add(time.Duration(i)*time.Minute), new(agents.Meaning))
	}
	begin := noon.Add(5 * time.Hour)
	for range 3 { // none of which was one
		w.Note(noon.Add(10*time.Minute), refused("5-hour", begin))
	}
	for i := range 5 {
		w.Note(begin.Add(time.Duration(i)*time.Minute), new(agents.Meaning))
	}
	if f := windowOf(t, w, "5-hour", begin.Add(5*time.Minute)); f.Used != 0.5 {
		t.Errorf("%+v", f)
	}
}

func TestAWindowBeginsAtTheFirstCommandAfterTheLast(t *testing.T) {
	w, _ := ledger(t)
	begin := close5(w, noon).Add(10 * time.Minute)
	w.Note(begin, done(1000))
	w.Note(begin.Add(4*time.Hour), done(1000))
	next := begin.Add(5*time.Hour + 10*time.Minute)
	w.Note(next, done(1000))
	if f := windowOf(t, w, "5-hour", next.Add(time.Minute)); !f.Resets.Equal(next.Add(5*time.Hour)) || math.Abs(f.Used-0.01) > 1e-6 {
		t.Errorf("%+v, want a window from %v", f, next)
	}
	if list := w.Forecasts(next.Add(6 * time.Hour)); len(list) != 0 {
		t.Errorf("a window that no command has begun: %+v", list)
	}
}

func TestFiguresOfTheWindowBeforeSayNothingOfThisOne(t *testing.T) {
	w, _ := ledger(t)
	reset := noon.Add(5 * time.Hour)
	for i := range 11 {
		w.Note(noon.Add(time.Duration(i)*time.Minute), figure(1000, "5-hour", 0.1+float64(i)/100, reset))
	}
	for i := range 11 { // now a command takes a tenth of that; somebody else has used more
		w.Note(reset.Add(time.Duration(i)*time.Minute), figure(1000, "5-hour", 0.3+float64(i)/1000, reset.Add(5*time.Hour)))
	}
	for i := range 20 {
		w.Note(reset.Add(time.Duration(11+i)*time.Minute), figure(1000, "5-hour", 0.311+float64(i)/1000, reset.Add(5*time.Hour)))
	}
	if f := windowOf(t, w, "5-hour", reset.Add(31*time.Minute)); !f.EndsAt.IsZero() {
		t.Errorf("a thousandth of the window a minute ends it: %+v", f)
	}
}

// One in a hundred is too coarse a figure to tell the whole by.
func TestASmallFigureDoesNotTellTheWhole(t *testing.T) {
	w, _ := ledger(t)
	begin := close5(w, noon)
	for i := range 10 {
		w.Note(begin.Add(time.Duration(i)*time.Minute), figure(1000, "5-hour", 0.01, begin.Add(5*time.Hour)))
	}
	if f := windowOf(t, w, "5-hour", begin.Add(10*time.Minute)); math.Abs(f.Used-0.01) > 1e-6 || f.Basis != "of 1 earlier window" {
		t.Errorf("%+v", f)
	}
}

func TestTheTightestWindowSetsThePace(t *testing.T) {
	for _, tt := range []struct {
		week  float64 // used of it; a command takes a hundredth, as of the five hours
		reset time.Duration
		want  time.Duration
	}{
		{0.98, 48 * time.Hour, 24 * time.Hour},
		{0.10, time.Hour, 5 * time.Hour / 96},
	} {
		w, _ := ledger(t)
		begin := close5(w, noon)
		for i := range 4 {
			w.Note(begin.Add(time.Duration(i)*time.Minute), figure(1000, "weekly", tt.week-float64(3-i)/100, begin.Add(tt.reset)))
		}
		if got := w.PaceEvery(begin.Add(4 * time.Minute)); got < tt.want*95/100 || got > tt.want*105/100 {
			t.Errorf("with %v of the week used: one every %v, want %v", tt.week, got, tt.want)
		}
	}
}

// Who begins commands as far apart as PaceEvery says comes to the reset with little left, and is not refused before.
func TestPaceEverySpreadsTheRestOverTheWindow(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, _ := ledger(t)
		begin := close5(w, noon) // 100 commands are a window
		at := begin
		for range rapid.IntRange(0, 90).Draw(rt, "burst") {
			w.Note(at, done(1000))
			at = at.Add(time.Duration(rapid.IntRange(1, 60).Draw(rt, "gap")) * time.Second)
		}
		reset := begin.Add(5 * time.Hour)
		for first := true; ; first = false {
			every := w.PaceEvery(at)
			if every <= 0 {
				rt.Fatalf("at %v there is no pace", at.Sub(begin))
			}
			if !first {
				at = at.Add(every)
			}
			if !at.Before(reset) {
				break
			}
			w.Note(at, done(1000))
			if f := windowOf(t, w, "5-hour", at); f.Used > 1.001 {
				rt.Fatalf("%+v", f)
			}
		}
		f := windowOf(t, w, "5-hour", reset.Add(-time.Minute))
		if f.Used < 0.95 || f.Used > 1 {
			rt.Fatalf("at its reset %v of the window is used", f.Used)
		}
	})
}

func TestForecastsAreNeverInThePastAndSharesAreShares(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w, path := ledger(t)
		c := agents.Recognise("claude")
		at := noon
		names := []string{"5-hour", "weekly", "weekly Opus", "", "other"}
		for range rapid.IntRange(1, 150).Draw(rt, "steps") {
			at = at.Add(time.Duration(rapid.Int64Range(-60, 8*3600).Draw(rt, "gap")) * time.Second)
			m := done(rapid.IntRange(0, 1<<40).Draw(rt, "tokens"))
			if rapid.Bool().Draw(rt, "cost") {
				m.Cost, m.HasCost = rapid.Float64Range(0, 10).Draw(rt, "usd"), true
			}
			name := rapid.SampledFrom(names).Draw(rt, "window")
			reset := at.Add(time.Duration(rapid.Int64Range(-3600, 8*24*3600).Draw(rt, "reset")) * time.Second)
			switch rapid.IntRange(0, 3).Draw(rt, "what") {
			case 1:
				m.Windows = figure(0, name, rapid.Float64Range(0, 1).Draw(rt, "used"), reset).Windows
			case 2:
				m = refused(name, reset)
			case 3:
				m = refused(name, time.Time{})
			}
			w.Note(at, m)
			for _, f := range w.Forecasts(at) {
				if f.Used < 0 || f.Used > 1 || !f.EndsAt.IsZero() && (f.EndsAt.Before(at) || f.EndsAt.After(f.Resets)) || !f.Resets.After(at) || f.Basis == "" {
					rt.Fatalf("at %v: %+v", at, f)
				}
			}
			if every := w.PaceEvery(at); every < 0 || every > 9*24*time.Hour {
				rt.Fatalf("one every %v", every)
			}
		}
		if err := w.Save(); err != nil {
			rt.Fatal(err)
		}
		again, err := proc.ReadWindows(path, c)
		if err != nil {
			rt.Fatal(err)
		}
		if a, b := w.PaceEvery(at), again.PaceEvery(at); a != b {
			rt.Fatalf("the file says %v, not %v", b, a)
		}
	})
}

func TestWindowsAreSafeForConcurrentUse(t *testing.T) {
	w, path := ledger(t)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 50 {
				at := noon.Add(time.Duration(50*i+n) * time.Second)
				w.Note(at, figure(1000, "5-hour", 0.5, noon.Add(time.Hour)))
				w.Forecasts(at)
				w.PaceEvery(at)
				if n%25 == 0 {
					if err := w.Save(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Wait()
	if err := w.Save(); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(path); !strings.Contains(string(b), `"total":{"commands":400,"tokens":400000}`) {
		t.Errorf("%.200s", b)
	}
}

// Its provider may refuse for some moments more, and state the reset that has passed: nothing of the next window is used up.
func TestARefusalAfterItsResetIsNoOtherClosing(t *testing.T) {
	w, _ := ledger(t)
	reset := close5(w, noon)
	for range 10 {
		w.Note(reset.Add(time.Second), done(1000))
	}
	w.Note(reset.Add(2*time.Second), refused("5-hour", reset))
	begin := reset.Add(time.Minute)
	for i := range 40 {
		w.Note(begin.Add(time.Duration(i)*time.Second), done(1000))
	}
	f := windowOf(t, w, "5-hour", begin.Add(time.Minute))
	if math.Abs(f.Used-0.5) > 1e-9 || f.Basis != "of 1 earlier window" {
		t.Errorf("50 of 100 commands are %v of the window, %s", f.Used, f.Basis)
	}
}
