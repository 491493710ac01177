//go:build unix

package cli_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/suite"
)

// replay is a text of the corpus as a command leaves it.
type replay struct {
	ID     string `json:"id"`
	Stdout string `json:"stdout"`
	Stderr string `json:"stderr"`
	Exit   int    `json:"exit"`

	kinds []string // it may mean
}

// TestTheCorpusIsReplayed has real processes write every text of the corpus that came from a command, on standard error and,
// some, on standard output and with an exit code of 0; package proc tries all of them on all. They end at once, so that none
// waits for the limits of the others.
func TestTheCorpusIsReplayed(t *testing.T) {
	t.Parallel()
	const together = 230
	var replays []replay
	for i, s := range corpusOfCommands(t) {
		if i%suite.Size(15, 1) != 0 {
			continue
		}
		label := s.Label
		if label == "not_error" {
			label = "command_failed"
		}
		labels := []string{label}
		if label == "usage_window" && time.Now().Minute()%30 < 7 {
			labels = append(labels, "rate_limit") // the hour that it states for the reset may just have passed
		}
		if !s.bare() {
			replays = append(replays, replay{s.ID + "-stderr", "An answer that talks of a rate limit.\n", s.Text, 1, labels})
		}
		switch {
		case i%2 == 0: // nothing is an error of a command that succeeded, but for a notice that is all of its output
			replays = append(replays, replay{s.ID + "-answer", s.Text, "", 0, append([]string{"ok", s.Label}, labels...)})
		case i%4 == 1:
			replays = append(replays, replay{s.ID + "-aside", "42\n", s.Text, 0, []string{"ok"}})
		case !s.bare() && !s.long():
			replays = append(replays, replay{s.ID + "-stdout", s.Text, "", 1, labels})
		}
	}
	for at := 0; at < len(replays); at += together {
		replayAll(t, replays[at:min(at+together, len(replays))])
	}
}

// TestTheEndsOfAgentsAreRead has real processes end as claude is seen to, in forms of all kinds. Package agents has more.
func TestTheEndsOfAgentsAreRead(t *testing.T) {
	t.Parallel()
	notice := "You've hit your session limit · resets 11:59pm (UTC)\n"
	node := "(node:17) [DEP0040] DeprecationWarning: The `punycode` module is deprecated.\n(Use `node --trace-deprecation ...` to show where)\n"
	init := `{"type":"system","subtype":"init"}` + "\n"
	event := fmt.Sprintf(`{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":%d,"rateLimitType":"five_hour"}}`, time.Now().Unix()+9000)
	result := func(more string) string { return `{"type":"result","subtype":"success",` + more + "}\n" }
	limited, failed := []string{"usage_window"}, []string{"command_failed"}
	replayAll(t, []replay{
		{"coloured", "\x1b[31m" + strings.TrimSpace(notice) + "\x1b[0m\n", "", 0, limited},
		{"stderr", "", notice, 0, limited},
		{"stderr, failed", "", "\x1b[1m" + notice, 1, limited},
		{"paragraph", notice + "\nUpgrade to Max for more usage.\n", "", 0, limited},
		{"twice", notice + notice, "", 0, limited},
		{"node", node + notice, "", 0, limited},
		{"node, failed", "", node + notice, 1, limited},
		{"cap", "Spending cap reached resets 6pm\n", "", 0, limited},
		{"extra", "You're out of extra usage · resets 6pm\n", "", 1, limited},
		{"blocking", result(`"is_error":true,"terminal_reason":"blocking_limit","result":"Prompt is too long"`), "", 1, []string{"context_length"}},
		{"blocked", event + "\n" + result(`"is_error":false,"terminal_reason":"blocking_limit","result":"stopped"`), "", 0, limited},
		{"event", init + event + "\n", "", 0, limited},
		{"words", "", "rate limit: try again in 600 seconds\n", 1, []string{"rate_limit"}},
		{"header", "", "Retry-After: 600\nError: 429 Too Many Requests\n", 1, []string{"rate_limit"}},
		{"error", result(`"is_error":true,"result":"API Error: 500 Internal server error"`), "", 0, []string{"server_error"}},
		{"empty", "", "", 0, failed},
		{"object", "{}\n", "", 0, failed},
		{"cut", init + `{"type":"result","subtype":"success","is_err`, "", 0, failed},
		{"cut, alone", `{"type":"result","is_error":false,"result":"4`, "", 0, failed},
		{"answer", result(`"is_error":false,"result":"4"`), node + notice, 0, []string{"ok"}},
		{"text", "It says: " + notice, "", 0, []string{"ok"}},
	}, "--agent", "claude")
}

// said is a line of a corpus of package provider.
type said struct{ ID, Channel, Text, Label string }

// bare reports whether the label rests on an HTTP status that came with the text: its words alone are no error's.
func (s *said) bare() bool { return s.ID == "e020" || s.ID == "e174" || s.ID == "e189" }

// long reports whether it is so long that only its last paragraph is read on standard output.
func (s *said) long() bool { return len(s.Text) > 8<<10 || strings.Count(s.Text, "\n") >= 40 }

func corpusOfCommands(t *testing.T) (list []said) {
	t.Helper()
	for _, name := range []string{"errors.jsonl", "published.jsonl"} {
		f, err := os.Open("../../provider/testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Buffer(nil, 1<<22); lines.Scan(); {
			var s said
			if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
				t.Fatal(err)
			}
			if s.Channel == "cli" {
				list = append(list, s)
			}
		}
	}
	return list
}

// replayAll replays texts in one run, with more flags, and looks at what became of each.
func replayAll(t *testing.T, replays []replay, flags ...string) {
	t.Helper()
	b := newBed(t)
	var items bytes.Buffer
	lines := json.NewEncoder(&items)
	for _, r := range replays {
		if err := lines.Encode(r); err != nil {
			t.Fatal(err)
		}
	}
	gate := b.path("gate")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	// A command waits at the gate until all have begun; one that is tried again finds the gate gone.
	script := `cd "$1"; echo begun >>begun; [ -e open ] || read _ <gate; printf %s "$2"; printf %s "$3" >&2; exit "$4"`
	n := strconv.Itoa(len(replays))
	run := b.command(append(flags, "--items", b.write("items.jsonl", items.String()), "--jobs", n, "--max-attempts", "1", "--",
		"sh", "-c", script, "--", b.dir, "{stdout}", "{stderr}", "{exit}")...)
	run.start(t)
	ended := make(chan error, 1)
	go func() { ended <- run.Wait() }()
	await(t, "the run", func() bool { return b.counts("begun")["begun"] >= len(replays) }, &run.out)
	b.write("open", "")
	w, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range replays {
		fmt.Fprintln(w)
	}
	await(t, "the run", func() bool { return len(ends(b)) >= len(replays) }, &run.out)
	run.Process.Signal(os.Interrupt)
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the run does not end")
	}
	w.Close()
	b.judge(replays, ends(b))
}

// ends returns how the last try of each item ended.
func ends(b *bed) map[string]proc.Result {
	all := make(map[string]proc.Result)
	names, _ := filepath.Glob(filepath.Join(b.path("state"), "*", "result.json"))
	for _, name := range names {
		var r proc.Result
		if body, err := os.ReadFile(name); err == nil && json.Unmarshal(body, &r) == nil {
			all[r.ID] = r
		}
	}
	return all
}

// judge compares how commands ended with what their texts mean, and looks that nothing of a limit is recorded.
func (b *bed) judge(replays []replay, all map[string]proc.Result) {
	b.t.Helper()
	recorded := b.results()
	for _, r := range replays {
		end, ok := all[r.ID]
		kind := end.Kind.String()
		if !ok || !slices.Contains(r.kinds, kind) {
			text := ""
			if end.Fault != nil {
				text = end.Fault.Message
			}
			b.t.Errorf("%s: %s, want %s (%s): %.200q", r.ID, kind, r.kinds, text, r.Stdout+r.Stderr)
		}
		_, isRecorded := recorded[r.ID]
		switch limit := end.Kind.Throttle() || end.Kind.Fatal(); {
		case limit && isRecorded:
			b.t.Errorf("%s: a %s is recorded as a result", r.ID, kind)
		case !limit && !isRecorded:
			b.t.Errorf("%s: a %s is not recorded", r.ID, kind)
		case end.Kind.Throttle() && end.State != proc.RateLimited:
			b.t.Errorf("%s: a %s is kept as %s", r.ID, kind, end.State)
		}
	}
}
