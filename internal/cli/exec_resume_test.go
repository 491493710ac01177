//go:build unix

package cli_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/suite"
)

// TestRetryFailedIsKilled kills a run that tries failed items again, once it has recorded the first of them: the same command
// tries the others again.
func TestRetryFailedIsKilled(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel()
	b := newBed(t)
	mended, log := b.path("mended"), b.path("log")
	args := []string{"--items", b.items(4), "--jobs", "1", "--max-attempts", "1", "--", "sh", "-c",
		`test -e "$1" || exit 1; echo {} >> "$2"; test $(wc -l < "$2") != 2 || sleep 60`, "sh", mended, log}
	if code, out := b.exec(args...); code != 3 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	b.write("mended", "")
	args = append([]string{"--redo", "failed"}, args...)
	r := b.command(args...)
	r.start(t)
	ran := func() []string {
		text, _ := os.ReadFile(log)
		return strings.Fields(string(text))
	}
	await(t, "the run", func() bool {
		all := b.results()
		return len(ran()) == 2 && slices.ContainsFunc([]string{"1", "2", "3", "4"}, func(id string) bool { return all[id].State == proc.Succeeded })
	}, &r.out)
	killed := ran()[1] // the second one that was run
	r.Process.Kill()
	r.Wait()
	b.awaitNothing()
	code, out := b.exec(args...)
	log1 := b.counts("log")
	for _, id := range []string{"1", "2", "3", "4"} {
		if got := b.results()[id]; got.State != proc.Succeeded {
			t.Errorf("item %s: %s", id, got.State)
		}
		if want := map[bool]int{true: 2, false: 1}["item"+id == killed]; log1["item"+id] != want {
			t.Errorf("item %s was run %d times, want %d", id, log1["item"+id], want)
		}
	}
	if code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestEndsWellWhenAsked has commands that end with exit code 0 when they are asked to, in the midst of their work: at the second
// interrupt that is no result, and at the end of their time it is a timeout.
func TestEndsWellWhenAsked(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	script := `trap 'exit 0' TERM; echo begun >> "$0"; sleep 60 & wait; echo whole`
	r := b.command("--items", b.items(2), "--jobs", "2", "--progress", "plain", "--", "sh", "-c", script, b.path("log"))
	said := new(transcript)
	r.Stderr = said
	r.start(t)
	await(t, "the run", func() bool { return b.counts("log")["begun"] == 2 }, &r.out)
	r.Process.Signal(os.Interrupt)
	await(t, "the run", func() bool { return strings.Contains(said.String(), "Ctrl-C again") }, said)
	r.Process.Signal(os.Interrupt)
	r.Wait()
	if code := r.ProcessState.ExitCode(); code != 130 || len(b.results()) != 0 {
		t.Errorf("exit code %d, %d results of what was interrupted: %s", code, len(b.results()), said)
	}
	if code, out := b.exec("--items", b.items(2), "--jobs", "2", "--max-attempts", "1", "--timeout", "300ms", "--", "sh", "-c", script, b.path("log")); code != 3 || !strings.Contains(out, "timeout") {
		t.Errorf("exit code %d: %s", code, out)
	}
}

// TestADamagedStateIsReported has the state damaged of a directory: its results remain.
func TestADamagedStateIsReported(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	args := []string{"--items", b.items(1), "--", "true"}
	if code, out := b.exec(args...); code != 0 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	b.write("state/state.json", `{"version":99,"status":"interrupted"}`)
	if code, out := b.exec(args...); code != 2 || !strings.Contains(out, "was written by a newer Sluice") {
		t.Errorf("exit code %d: %s", code, out)
	}
	b.write("state/state.json", "{")
	if code, out := b.exec(args...); code != 0 || !strings.Contains(out, "state.json cannot be read") || !strings.Contains(out, "1 by earlier runs") {
		t.Errorf("exit code %d: %s", code, out)
	}
}
