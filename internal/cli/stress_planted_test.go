package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/suite"
)

// Each fault of package planted makes sluice stress miss one of its rows at least, and name it.
func TestStressNamesTheRowOfAPlantedFault(t *testing.T) {
	suite.FullOnly(t)
	program := filepath.Join(t.TempDir(), "sluice")
	if out, err := exec.Command("go", "build", "-tags", "planted", "-o", program, "../../cmd/sluice").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, c := range []struct{ fault, level, rows string }{
		{"permit leaked", "aggressive", "slot_leaks"},
		{"wake-up lost", "aggressive", "deadlocks"},
		{"wake-up late", "aggressive", "lost_wakeups"},
		{"one member in five held up", "aggressive", "jain_index"},
		{"long wait", "conservative", "max_wait"},
		{"checkpoint not saved", "chaos", "checkpoints_damaged"},
		{"slot too few", "aggressive", "slots_in_use slot_leaks"},
		{"slot too many", "aggressive", "calls_at_once"},
		{"release by a non-holder", "conservative", "foreign_releases"},
		{"cancelled waiter kept", "chaos", "slot_leaks"},
		{"waiter counted for ever", "chaos", "waiters_left"},
		{"call not counted", "hybrid", "metric_drift"},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel() // it mostly waits
			run := exec.CommandContext(t.Context(), program, "stress", "--level", c.level, "--duration", "4s", "--latency", "5ms", "--json")
			run.Dir, run.Env = t.TempDir(), append(os.Environ(), "SLUICE_PLANTED="+c.fault)
			var stdout, stderr bytes.Buffer
			run.Stdout, run.Stderr = &stdout, &stderr
			run.Run()
			if code := run.ProcessState.ExitCode(); code != 4 {
				t.Errorf("exit code %d\n%s", code, stdout.String())
			}
			var doc struct{ Missed []string }
			if err := json.Unmarshal(stdout.Bytes(), &doc); err != nil {
				t.Fatal(err)
			}
			for _, row := range strings.Fields(c.rows) {
				if !slices.Contains(doc.Missed, row) || !strings.Contains(stderr.String(), strings.ReplaceAll(row, "_", " ")) {
					t.Errorf("%s is not among what was missed, %v, or is not named: %s", row, doc.Missed, stderr.String())
				}
			}
			t.Logf("missed: %v", doc.Missed)
		})
	}
}
