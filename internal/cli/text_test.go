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
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

func TestKeyFileYieldsTheNamedVariableAlone(t *testing.T) {
	tests := []struct{ name, file, want string }{
		{"a plain line", "A=1\nKEY=abc\n", "abc"},
		{"export and quotes", "export KEY=\"a b\"\n", "a b"},
		{"single quotes and a comment", "KEY='abc' # mine\n", "abc"},
		{"a comment behind a bare value", "KEY=abc # mine\n", "abc"},
		{"a hash inside a value", "KEY=ab#c\n", "ab#c"},
		{"the last one holds", "KEY=old\nKEY=new\n", "new"},
		{"a longer name is another", "MY_KEY=abc\nKEY2=abc\n", ""},
		{"a commented line is none", "# KEY=abc\n", ""},
		{"an equals sign in the value", "KEY=a=b==\n", "a=b=="},
		{"a long line before it", strings.Repeat("x", 70_000) + "\nKEY=abc\n", "abc"},
		{"a byte order mark and CRLF", "\ufeffKEY=abc\r\n", "abc"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := keyIn(tt.file, "KEY"); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func FuzzKeyFile(f *testing.F) {
	f.Add("export KEY='abc' # x\nKEY=\"\n=\nKEY")
	f.Fuzz(func(t *testing.T, file string) {
		if key := keyIn(file, "KEY"); !strings.Contains(file, key) {
			t.Errorf("key %q is not in the file %q", key, file)
		}
	})
}

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
	keys := &accounts{keys: map[string]provider.Key{
		"openai": {From: "MY_OPENAI_KEY", Value: "a"}, "anthropic": {From: "MY_ANTHROPIC_KEY", Value: "b"}, "openai-compatible": {},
	}}
	for name, want := range map[string]string{
		"openai":            "check the key in MY_OPENAI_KEY, then resume",
		"anthropic":         "check the key in MY_ANTHROPIC_KEY, then resume",
		"openai-compatible": "name the variable of the key with --key-env, or check the key in --header, then resume",
	} {
		refused := &work.StoppedError{Kind: sluice.Auth, Err: &provider.Error{Provider: name, Status: 401}}
		if e := explain(refused, &runOptions{}, keys); !strings.HasPrefix(e.Hint, want) {
			t.Errorf("%s: hint %q, want %q", name, e.Hint, want)
		}
	}
}

func TestNoNextTryIsAnnouncedOfAHostThatNothingReached(t *testing.T) {
	var out strings.Builder
	r := &batchRun{s: term.New(nil, nil, io.Discard, &out), accounts: &accounts{settings: &settings{}}, o: &runOptions{}}
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
