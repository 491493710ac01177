package cli

// The texts of this file's subjects depend on clocks, terminals and luck when they are seen from outside: their tests
// are in the package.

import (
	"io"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

func TestProgressNeverWrapsATerminalLine(t *testing.T) {
	lane := limits.LaneSnapshot{InFlight: 2, Oldest: time.Now().Add(-41 * time.Second)}
	st := runinfo.New(work.Report{Total: 1e9, Already: 5e8, AlreadyFailed: 12345}, sluice.Snapshot{Lanes: []limits.LaneSnapshot{lane}})
	st.Parts = &runinfo.Parts{All: 12, ByState: map[string]int{"in_progress": 3, "merged": 2, "waiting": 7}, Submitted: 6000, Done: 1234,
		Expires: time.Now().Add(24 * time.Hour)}
	var meter runinfo.Meter
	meter.Drain()
	st = meter.Measure(st)
	for width := 2; width < 200; width++ {
		for _, line := range progressBlock(&st, width) {
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
