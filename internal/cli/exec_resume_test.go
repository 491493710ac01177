package cli_test

import (
	"testing"
	"time"

	"github.com/sluice-llm/sluice/proc"
)

// TestRetryFailedIsKilled kills a run that tries failed items again, once it has recorded the first of them: the same command
// tries the others again.
func TestRetryFailedIsKilled(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	mended, log := b.path("mended"), b.path("log")
	args := []string{"--items", b.items(4), "--jobs", "1", "--attempts", "1", "--", "sh", "-c",
		`test -e "$1" || exit 1; echo {} >> "$2"; test {} != item2 || test $(grep -c item2 "$2") = 2 || sleep 60`, "sh", mended, log}
	if code, out := b.exec(args...); code != 3 {
		t.Fatalf("exit code %d: %s", code, out)
	}
	b.write("mended", "")
	args = append([]string{"--retry-failed"}, args...)
	r := b.command(args...)
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); b.counts("log")["item2"] == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	r.Process.Kill()
	r.Wait()
	b.awaitNothing()
	code, out := b.exec(args...)
	log1 := b.counts("log")
	for i, id := range []string{"1", "2", "3", "4"} {
		if got := b.results()[id]; got.State != proc.Succeeded {
			t.Errorf("item %s: %s", id, got.State)
		}
		if want := map[bool]int{true: 2, false: 1}[i == 1]; log1["item"+id] != want {
			t.Errorf("item %s was run %d times, want %d", id, log1["item"+id], want)
		}
	}
	if code != 0 {
		t.Errorf("exit code %d: %s", code, out)
	}
}
