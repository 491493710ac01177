package work_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/internal/work"
)

// TestOneJournalIsOpenAtOnce has many open the same journal at once, write a line or
// none, and leave it. Never are two in, and no line is lost.
func TestOneJournalIsOpenAtOnce(t *testing.T) {
	for seed := range suite.Size(uint64(20), 50) {
		path := journalPath(t)
		var (
			wg       sync.WaitGroup
			in, next atomic.Int32
			mu       sync.Mutex
			written  []string
		)
		for worker := range uint64(6) {
			luck := rand.New(rand.NewPCG(seed, worker))
			wg.Go(func() {
				for range 6 {
					j, err := work.OpenJournal(path, work.JournalConfig{})
					if err != nil {
						_, locked := errors.AsType[*work.LockedError](err)
						if !locked && !strings.Contains(err.Error(), "state file") {
							t.Error(err)
						}
						continue
					}
					if in.Add(1) > 1 {
						t.Error("two have it open")
					}
					if luck.IntN(3) > 0 {
						line := fmt.Sprintf("id %d", next.Add(1))
						if _, err := j.Append([]byte(line + "\n")); err != nil {
							t.Error(err)
						}
						mu.Lock()
						written = append(written, line)
						mu.Unlock()
					}
					in.Add(-1)
					if err := j.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		j := openJournal(t, path, work.JournalConfig{})
		got := linesOf(t, j)
		slices.Sort(got)
		slices.Sort(written)
		if !slices.Equal(got, written) {
			t.Fatalf("seed %d: the journal has %q, written were %q", seed, got, written)
		}
		j.Close()
		if left, _ := filepath.Glob(path + "*tmp"); len(left) > 0 {
			t.Errorf("left %q", left)
		}
	}
}
