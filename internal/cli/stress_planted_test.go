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
)

// plantedVariable asks for the tests that build the program with faults: each takes a compiler and some seconds. The command
// for all of them is
//
//	SLUICE_TEST_PLANTED=1 go test -count=1 -run PlantedFault ./internal/cli
const plantedVariable = "SLUICE_TEST_PLANTED"

// plantedFault is a fault in the real code, and the rows of which stress must name one at least.
type plantedFault struct {
	name     string
	file     string
	old, new string
	add      string // goes behind the file
	level    string
	rows     []string
}

var plantedFaults = []plantedFault{
	{
		name: "a permit leaked 1 in 1,000",
		file: "permit.go",
		old:  "	d = s.gate.Release(now, p.ticket, o)\n",
		new: `	if releases++; releases%1000 == 0 {
		s.mu.Unlock()
		return d, latency, true
	}
	d = s.gate.Release(now, p.ticket, o)
`,
		add:   "var releases int\n",
		level: "aggressive", rows: []string{"slot_leaks"},
	},
	{
		name: "a wake-up lost",
		file: "scheduler.go",
		old:  "		if t.Ready != nil {\n",
		new:  "		if t.Ready == nil {\n			continue\n		}\n		if wakeups++; wakeups%200 != 0 {\n",
		add:  "var wakeups int\n", level: "aggressive", rows: []string{"deadlocks"},
	},
	{
		name: "a wake-up that comes late",
		file: "internal/gate/gate.go",
		old:  "func (g *Gate) pump(now time.Time, l *lane) {\n",
		new:  "func (g *Gate) pump(now time.Time, l *lane) {\n	if pumps++; pumps%60 == 0 {\n		return\n	}\n",
		add:  "var pumps int\n", level: "aggressive", rows: []string{"lost_wakeups"},
	},
	{
		name:  "one member in five held up",
		file:  "pool/member.go",
		old:   "	c.Member, c.Withdrawn = m.id, m.gone\n",
		new:   "	if n := m.id[len(m.id)-1]; n == '5' || n == '6' {\n		time.Sleep(1100 * time.Millisecond)\n	}\n	c.Member, c.Withdrawn = m.id, m.gone\n",
		level: "aggressive", rows: []string{"jain_index"},
	},
	{
		name:  "a wait of more than a second",
		file:  "pool/member.go",
		old:   "	c.Member, c.Withdrawn = m.id, m.gone\n",
		new:   "	if m.pool.total.calls == 50 {\n		time.Sleep(1100 * time.Millisecond)\n	}\n	c.Member, c.Withdrawn = m.id, m.gone\n",
		level: "conservative", rows: []string{"max_wait"},
	},
	{
		name:  "a checkpoint not saved 1 in 20",
		file:  "pool/filestore.go",
		old:   "	path := s.path(member)\n	mu := s.lock(path)\n	mu.Lock()\n	defer mu.Unlock()\n	if err := s.replace",
		new:   "	if saves++; saves%20 == 0 {\n		return nil\n	}\n	path := s.path(member)\n	mu := s.lock(path)\n	mu.Lock()\n	defer mu.Unlock()\n	if err := s.replace",
		add:   "var saves int\n",
		level: "chaos", rows: []string{"checkpoints_damaged"},
	},
	{
		name: "a slot too few",
		file: "internal/gate/slots.go",
		old:  "return max(1, int(s.limit)) }",
		new:  "return max(1, int(s.limit)-1) }", level: "aggressive", rows: []string{"slots_in_use", "slot_leaks"},
	},
	{
		name: "a slot too many",
		file: "internal/gate/slots.go",
		old:  "return max(1, int(s.limit)) }",
		new:  "return max(1, int(s.limit)+1) }", level: "aggressive", rows: []string{"calls_at_once"},
	},
	{
		name: "a release by a non-holder",
		file: "pool/member.go",
		old:  "	if p == nil || p.Holder() != m || !p.TryRelease(o) {\n",
		new:  "	if p == nil || !p.TryRelease(o) {\n", level: "conservative", rows: []string{"foreign_releases"},
	},
	{
		name: "a cancelled waiter kept",
		file: "internal/gate/gate.go",
		old:  "		t.lane.order.remove(t)\n",
		new:  "		if cancels++; cancels%60 == 0 {\n			return\n		}\n		t.lane.order.remove(t)\n",
		add:  "var cancels int\n", level: "chaos", rows: []string{"slot_leaks"},
	},
	{
		name: "a waiter counted for ever",
		file: "pool/member.go",
		old:  "	n.waiting--\n	n.waits++\n",
		new:  "	if n.waits%100 != 99 {\n		n.waiting--\n	}\n	n.waits++\n", level: "chaos", rows: []string{"waiters_left"},
	},
	{
		name: "a call not counted",
		file: "pool/member.go",
		old:  "	m.pool.total.calls++\n",
		new:  "	if sendings++; sendings%100 != 0 {\n		m.pool.total.calls++\n	}\n",
		add:  "var sendings int\n", level: "hybrid", rows: []string{"metric_drift"},
	},
}

// plant returns an overlay in which the fault is.
func (p *plantedFault) plant(t *testing.T, root, dir string) string {
	t.Helper()
	real := filepath.Join(root, filepath.FromSlash(p.file))
	b, err := os.ReadFile(real)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	if n := strings.Count(text, p.old); n != 1 {
		t.Fatalf("%s holds what the fault replaces %d times: mend the test", p.file, n)
	}
	wrong := filepath.Join(dir, "wrong.go")
	overlay := filepath.Join(dir, "overlay.json")
	text = strings.Replace(text, p.old, p.new, 1) + "\n" + p.add
	o, err := json.Marshal(map[string]map[string]string{"Replace": {real: wrong}})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{wrong: []byte(text), overlay: o} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return overlay
}

func TestStressNamesTheRowOfAPlantedFault(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range plantedFaults {
		t.Run(fault.name, func(t *testing.T) {
			dir := t.TempDir()
			overlay := fault.plant(t, root, dir) // in any case: the text must be there
			if os.Getenv(plantedVariable) == "" {
				t.Skipf("%s=1 builds and runs it", plantedVariable)
			}
			t.Parallel() // one is built while others wait
			program := filepath.Join(dir, "sluice")
			build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "-o", program, "./cmd/sluice")
			build.Dir = root
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			run := exec.CommandContext(t.Context(), program, "stress", "--level", fault.level, "--duration", "4s", "--latency", "5ms", "--json")
			run.Dir = dir
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
			for _, row := range fault.rows {
				if !slices.Contains(doc.Missed, row) {
					t.Errorf("%s is not among what was missed: %v", row, doc.Missed)
				}
				if !strings.Contains(stderr.String(), strings.ReplaceAll(row, "_", " ")) {
					t.Errorf("%s is not named: %s", row, stderr.String())
				}
			}
			t.Logf("missed: %v", doc.Missed)
		})
	}
}
