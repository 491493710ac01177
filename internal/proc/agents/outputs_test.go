package agents_test

import (
	"encoding/json"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/proc/agents"
)

// output is what a program left when it ended, written after what agents and scripts are reported to print. Kind is what it
// means; one of several where more than one is right.
type output struct {
	ID, CLI, Stdout, Stderr string
	Exit                    int
	Kind                    string
	Until                   time.Time
	Wait                    float64 `json:"wait_s"`
	Now                     time.Time
}

func outputs(t testing.TB) (list []output) {
	t.Helper()
	b, err := os.ReadFile("testdata/outputs.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var o output
		if err := json.Unmarshal(text(line), &o); err != nil {
			t.Fatal(err)
		}
		if o.Now.IsZero() {
			o.Now = noon
		}
		list = append(list, o)
	}
	return list
}

// missed are outputs that are read otherwise, and why that is left.
var missed = map[string]string{
	"claude-org-access": "no word of it is one of a refusal",
	"gemini-auth-1":     "versions before exit code 41; no word of it is one of a refusal",
	"copilot-402-words": "its lines are joined, as a terminal breaks them, and the status is lost",
}

func TestOutputsMeanWhatTheyAreLabelled(t *testing.T) {
	for _, o := range outputs(t) {
		m := known(t, o.CLI).Read(agents.End{ExitCode: o.Exit, Stdout: text(o.Stdout), Stderr: text(o.Stderr)}, o.Now)
		if why, ok := missed[o.ID]; ok {
			if slices.Contains(strings.Split(o.Kind, "|"), m.Kind.String()) {
				t.Errorf("%s is read well now, though %s", o.ID, why)
			}
			continue
		}
		if !slices.Contains(strings.Split(o.Kind, "|"), m.Kind.String()) {
			t.Errorf("%s: %v from %q, want %s (%s)", o.ID, m.Kind, m.Source, o.Kind, m.Text)
			continue
		}
		if !o.Until.IsZero() && !m.Until.Equal(o.Until) {
			t.Errorf("%s: until %v, want %v", o.ID, m.Until, o.Until)
		}
		wait := m.Wait
		if wait == 0 && !m.Until.IsZero() {
			wait = m.Until.Sub(o.Now)
		}
		if o.Wait > 0 && math.Abs(wait.Seconds()-o.Wait) > 0.01*o.Wait {
			t.Errorf("%s: waits %v, want %v s", o.ID, wait, o.Wait)
		}
	}
}
