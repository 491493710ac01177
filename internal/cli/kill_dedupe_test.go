package cli_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
)

// TestKillDeduped kills runs whose lines have equal requests. Nothing may be lost or recorded twice, and no set called
// again that has an answer in the output, however the kill tore it.
func TestKillDeduped(t *testing.T) {
	suite.FullOnly(t)
	t.Parallel() // it mostly waits
	kills := suite.Size(3, 12)
	items, questions, slots := 100*kills, 20*kills, 16
	k := newKillBench(t, 0, 2*slots) // see killOften
	k.args, k.sets = []string{"--cache", filepath.Join(k.dir, "equal"), "--concurrency", fmt.Sprint(slots)}, true
	luck := rand.New(rand.NewPCG(3, 4))
	var text strings.Builder
	for i := range items {
		fmt.Fprintf(&text, `{"custom_id":"d%d","prompt":"Is %d prime?","model":"gpt-4o-mini"}`+"\n", i, luck.IntN(questions))
	}
	if err := os.WriteFile(k.in, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	torn := 0
	before := map[string]int{} // paid for at the kill before
	for i := range kills {
		cmd := k.start()
		k.awaitLines(i * items / kills)
		time.Sleep(time.Duration(luck.IntN(60)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // says that it was killed
		paid := k.settle()
		cut, kept := 0, k.recorded()
		for hash, n := range paid {
			if !kept[hash] {
				cut += n - before[hash]
			}
		}
		if cut > slots {
			t.Errorf("kill %d: %d answers were paid for and not recorded, with at most %d calls in flight", i+1, cut, slots)
		}
		before = paid
		if info, err := os.Stat(k.out); err == nil && info.Size() > 0 { // as if the kill had come in the midst of a write
			if cut := luck.Int64N(min(4000, info.Size())); cut > 0 {
				torn++
				if err := os.Truncate(k.out, info.Size()-cut); err != nil {
					t.Fatal(err)
				}
			}
		}
		recorded := k.recorded()
		for hash, n := range k.done {
			if paid[hash] > n && recorded[hash] {
				t.Errorf("kill %d: a set with a recorded answer was called again", i+1)
			}
		}
		k.done = map[string]int{} // what was cut off is not recorded any more
		k.remember(paid, recorded)
		t.Logf("kill %2d: %4d lines of %3d answers recorded, %3d paid for, %d of them cut off", i+1, k.lines, len(recorded), len(paid), cut)
	}
	if out, err := k.start().wait(); err != nil {
		t.Fatalf("last run: %v\n%s", err, out)
	}
	paid := k.settle()
	recorded := k.recorded()
	for hash, n := range k.done {
		if paid[hash] > n {
			t.Error("the last run called a set that had a recorded answer")
		}
	}
	if k.lines != items || len(recorded) != len(paid) {
		t.Errorf("%d of %d lines are recorded, of %d answers of %d", k.lines, items, len(recorded), len(paid))
	}
	if torn < kills/2 {
		t.Errorf("only %d kills tore the output", torn)
	}
}
