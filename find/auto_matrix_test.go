package find_test

import (
	"strings"
	"testing"

	"github.com/sluice-llm/sluice"
)

// notYet are the rows that Auto does not get right. Who makes it right takes the row off.
func notYet(name string) bool {
	switch name {
	case "queue 8", "queue 16", "queue 48", "queue 16, 10 s", "1 % 503, queue 16", "0.5 % stray 429, queue 16",
		"tpm 60k declared, burst 1 s", "tpm 20k declared, burst 1 s", "tpm 60k actual, burst 1 s", "tpm 20k actual, burst 1 s":
		return true
	}
	return false
}

func TestAutoFindsWhatIsTrue(t *testing.T) {
	for _, r := range rows() {
		t.Run(r.name, func(t *testing.T) {
			if notYet(r.name) {
				t.Skip("not yet")
			}
			t.Parallel()
			seeds := 1
			if _, bound, _ := r.truth(); bound == sluice.Concurrency {
				seeds = 3 // of which the one in the middle is exact
			}
			trials := make([]trial, seeds)
			for i := range trials {
				trials[i] = r.trial(t, uint64(i+1))
			}
			if misses := r.misses(trials); len(misses) > 0 {
				t.Error(strings.Join(misses, "\n"))
			}
		})
	}
}
