package agents_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/proc/agents"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func known(t testing.TB, name string) *agents.CLI {
	t.Helper()
	if name == "" {
		return nil
	}
	c, ok := agents.Known(name)
	if !ok {
		t.Fatalf("no CLI is called %s", name)
	}
	return c
}

func text(s string) []byte { return []byte(s) }

// claudeResult is the last line of claude -p --output-format stream-json.
func claudeResult(isError bool, status int, result string) string {
	b, _ := json.Marshal(result)
	of := "null"
	if status > 0 {
		of = strconv.Itoa(status)
	}
	return fmt.Sprintf(`{"type":"result","subtype":"success","is_error":%v,"api_error_status":`+of+`,"num_turns":3,"result":%s,`+
		`"total_cost_usd":0.25,"usage":{"input_tokens":4,"cache_creation_input_tokens":100,"cache_read_input_tokens":900,"output_tokens":50}}`,
		isError, b)
}

// sample is a line of the corpora of package provider.
type sample struct {
	ID, Channel, Text, Label string
	Status                   int
	Wait                     *float64 `json:"retry_after_s"`
	Until                    string   `json:"reset_at"`
	Now                      string
}

func corpus(t testing.TB, file string) (list []sample) {
	t.Helper()
	f, err := os.Open("../../../provider/testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var s sample
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		if s.Channel == "cli" {
			list = append(list, s)
		}
	}
	return list
}

// bare are texts whose label rests on the HTTP status that came with them: their words alone are no error's.
var bare = map[string]bool{"e020": true, "e174": true, "e189": true}

// Every text of the corpus that a command wrote, on each channel on which a command may write it.
func TestErrorsOfCommandsMeanWhatTheyAreLabelled(t *testing.T) {
	for _, file := range []string{"errors.jsonl", "published.jsonl"} {
		for _, s := range corpus(t, file) {
			now := noon
			if s.Now != "" {
				now, _ = time.Parse(time.RFC3339, s.Now)
			}
			want := s.Label
			if want == "not_error" {
				want = "command_failed"
			}
			long := len(s.Text) > 8<<10 || strings.Count(s.Text, "\n") >= 40
			for source, end := range map[string]agents.End{
				"stderr":         {ExitCode: 1, Stderr: text(s.Text), Stdout: text("An answer that talks of a rate limit.\n")},
				"stdout":         {ExitCode: 1, Stdout: text(s.Text)},
				"json":           {ExitCode: 1, Stdout: text(claudeResult(true, s.Status, s.Text))},
				"json, exit 0":   {Stdout: text(claudeResult(true, s.Status, s.Text))},
				"stream":         {ExitCode: 1, Stdout: text(`{"type":"system","subtype":"init"}` + "\n" + claudeResult(true, s.Status, s.Text) + "\n")},
				".failed":        {ExitCode: 1, Records: []agents.Record{{Name: "x", Body: text(s.Text)}}},
				"record, exit 0": {Records: []agents.Record{{Name: "x", Body: failedRecord(s.Text)}}},
			} {
				if long && source == "stdout" || bare[s.ID] && !strings.Contains(source, "json") && source != "stream" {
					continue
				}
				var c *agents.CLI
				m := c.Read(end, now)
				if m.Kind.String() != want {
					t.Errorf("%s on %s: %v, want %s (%s): %.200q", s.ID, source, m.Kind, want, m.Text, s.Text)
					continue
				}
				if s.Wait != nil && *s.Wait >= 0 && m.Kind.Throttle() && math.Abs(m.Wait.Seconds()-*s.Wait) > 0.01**s.Wait+1e-9 {
					t.Errorf("%s on %s: waits %v, want %vs: %.200q", s.ID, source, m.Wait, *s.Wait, s.Text)
				}
				if at, _ := time.Parse(time.RFC3339, s.Until); s.Until != "" && m.Kind.Throttle() && !m.Until.Equal(at) {
					t.Errorf("%s on %s: until %v, want %s: %.200q", s.ID, source, m.Until, s.Until, s.Text)
				}
			}
			for source, end := range map[string]agents.End{
				"stderr":        {Stderr: text(s.Text), Stdout: text("42\n")},
				"json":          {Stdout: text(claudeResult(false, 0, s.Text))},
				"a long answer": {Stdout: text("The log says:\n\n" + s.Text + "\n\nwhich means that the account is used up.\n")},
			} {
				if m := (*agents.CLI)(nil).Read(end, now); m.Kind != sluice.OK {
					t.Errorf("%s on %s of a command that succeeded: %v: %.200q", s.ID, source, m.Kind, s.Text)
				}
			}
		}
	}
}

// failedRecord is agent/result.json as a harness writes it beside a run that failed.
func failedRecord(stderr string) []byte {
	b, _ := json.Marshal(map[string]any{"exit_code": -1, "stderr": stderr})
	return b
}
