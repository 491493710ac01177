package cli

// The texts of this file's subjects depend on clocks, terminals and luck when they are seen from outside: their tests
// are in the package.

import (
	"errors"
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

func TestStatusNamesWhatBinds(t *testing.T) {
	now := time.Date(2026, 3, 4, 12, 0, 0, 0, time.Local)
	budgets := []limits.BucketSnapshot{
		{Dimension: limits.Requests, Limit: 600, Spent: 100}, {Dimension: limits.Tokens, Limit: 30000, Spent: 5000},
	}
	lane := func(change func(*limits.LaneSnapshot)) []limits.LaneSnapshot {
		l := limits.LaneSnapshot{Lane: "m", InFlight: 3, Waiting: 9, Slots: 8, Granted: 100, Budgets: budgets}
		change(&l)
		return []limits.LaneSnapshot{{Lane: "idle"}, l}
	}
	tests := []struct {
		name, binding string
		eta           time.Duration // for 300 items that are left, at 60 a minute of late
		lanes         []limits.LaneSnapshot
	}{
		{"nothing yet", "", 5 * time.Minute, nil},
		{"requests", "limited by 600 requests/min", 30 * time.Second, lane(func(l *limits.LaneSnapshot) { l.Binding = limits.Requests })},
		{"tokens, 50 a call", "limited by 30,000 tokens/min", 30 * time.Second, lane(func(l *limits.LaneSnapshot) { l.Binding = limits.Tokens })},
		{"slots", "limited by 8 concurrent requests", 5 * time.Minute, lane(func(l *limits.LaneSnapshot) { l.Binding = limits.Concurrency })},
		{"nobody waits", "", 5 * time.Minute, lane(func(l *limits.LaneSnapshot) { l.Waiting, l.Binding = 0, limits.Requests })},
		{"a cooldown", "cooldown until 12:03:10", 5*time.Minute + 190*time.Second,
			lane(func(l *limits.LaneSnapshot) { l.Until = now.Add(190 * time.Second) })},
		{"a usage window", "usage window: paused until 2026-03-05 16:00 (28 h 00 min left)", 28*time.Hour + 5*time.Minute,
			lane(func(l *limits.LaneSnapshot) { l.Until, l.Pause = now.Add(28*time.Hour), sluice.UsageWindow })},
		{"a provider that fails", "provider keeps failing: paused until 12:00:30", 5*time.Minute + 30*time.Second,
			lane(func(l *limits.LaneSnapshot) { l.Until, l.Pause = now.Add(30*time.Second), sluice.ServerError })},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			st := status{now: now, total: 400, done: 100, perMin: 60, lanes: tt.lanes}
			if got := st.binding(); got != tt.binding {
				t.Errorf("%q, want %q", got, tt.binding)
			}
			if eta, ok := st.eta(); !ok || eta.Round(time.Second) != tt.eta {
				t.Errorf("ETA %v, %v, want %v", eta, ok, tt.eta)
			}
		})
	}
}

func TestStatusShowsNoRateAboveTheLimitThatBinds(t *testing.T) {
	lane := limits.LaneSnapshot{Lane: "m", Waiting: 9, Binding: limits.Requests, Budgets: []limits.BucketSnapshot{{Dimension: limits.Requests, Limit: 900}}}
	for perMin, want := range map[float64]string{1678: "limited by 900 requests/min", 900: "900/min · limited by 900 requests/min"} {
		st := status{now: time.Now(), perMin: perMin, lanes: []limits.LaneSnapshot{lane}}
		if got := st.speed(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestStatusSaysThatAllWaitForAnotherTry(t *testing.T) {
	st := status{now: time.Now(), total: 9, retrying: 3, lanes: []limits.LaneSnapshot{{Lane: "m"}}}
	if st.binding() == "" || st.line().Retrying != 3 {
		t.Errorf("%q, %+v", st.binding(), st.line())
	}
	st.lanes[0].InFlight = 1 // one goes on
	if got := st.binding(); got != "" {
		t.Errorf("%q", got)
	}
}

func TestStatusNeverWrapsATerminalLine(t *testing.T) {
	st := status{now: time.Now(), total: 1e9, done: 5e8, failed: 12345, perMin: 1e6, draining: true,
		lanes: []limits.LaneSnapshot{{InFlight: 2, Oldest: time.Now().Add(-41 * time.Second)}}}
	st.parts = &partFigures{All: 12, ByState: map[string]int{"in_progress": 3, "merged": 2, "waiting": 7}, Submitted: 6000, Done: 1234,
		Expires: st.now.Add(24 * time.Hour)}
	for width := 2; width < 200; width++ {
		for _, line := range st.block(width) {
			if n := utf8.RuneCountInString(line); n >= width {
				t.Fatalf("a line of %d characters on a terminal of %d", n, width)
			}
		}
	}
}

func TestTheHintOfARefusedKeyNamesThatProvidersVariable(t *testing.T) {
	for name, key := range map[string]string{"OPENAI_API_KEY": "", "ANTHROPIC_API_KEY": "a", "MISTRAL_API_KEY": "b"} {
		t.Setenv(name, key)
	}
	keys := openAccounts(t)
	for name, want := range map[string]string{
		"mistral":           "check the key in MISTRAL_API_KEY, then resume",
		"anthropic":         "check the key in ANTHROPIC_API_KEY, then resume",
		"openai-compatible": "name the variable of the key with --key-env, or check the key in --header, then resume",
	} {
		p, _ := provider.Lookup(name)
		if _, err := keys.Key(p); err != nil {
			t.Fatal(err)
		}
		refused := &work.StoppedError{Kind: sluice.Auth, Err: &provider.Error{Provider: name, Status: 401}}
		if e := explain(refused, &runOptions{}, keys); !strings.HasPrefix(e.Hint, want) {
			t.Errorf("%s: hint %q, want %q", name, e.Hint, want)
		}
	}
}

func TestNoNextTryIsAnnouncedOfAHostThatNothingReached(t *testing.T) {
	var out strings.Builder
	r := &batchRun{s: term.New(nil, nil, io.Discard, &out), accounts: openAccounts(t), o: &runOptions{}}
	refused := sluice.Outcome{Kind: sluice.Network, Unsent: true, Err: errors.New("connection refused")}
	r.lastErr = map[string]string{}
	for _, o := range []sluice.Outcome{refused, {Unsent: true}} { // the second had its permit when the run ended
		r.warn(sluice.Event{Type: limits.EventSlotReleased, Lane: "m", Outcome: o})
	}
	r.warn(sluice.Event{Type: limits.EventBreaker, Lane: "m", At: time.Now(), Until: time.Now().Add(time.Minute)})
	if out.String() != "" {
		t.Errorf("got %q", out.String())
	}
}

// openAccounts opens accounts without flags.
func openAccounts(t *testing.T) *account.Accounts {
	t.Helper()
	a, err := (&accountFlags{}).open(term.New(nil, nil, io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	return a
}
