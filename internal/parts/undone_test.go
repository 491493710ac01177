package parts_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/parts"
)

// TestMembersThatWereNotRunAreGiven has half of the members not stand in the results, as with providers that list what ran alone,
// and the process end between the fetching and the merging.
func TestMembersThatWereNotRunAreGiven(t *testing.T) {
	for state, want := range map[batchapi.State]batchapi.Fate{
		batchapi.Expired: batchapi.PastWindow, batchapi.Cancelled: batchapi.CalledOff, batchapi.Completed: "",
	} {
		for _, killed := range []bool{false, true} {
			t.Run(fmt.Sprint(state, " killed ", killed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBench(t)
					b.api.state = state
					b.api.skip = func(id string) bool { return id >= "m5" }
					d := b.open()
					d.Start(context.Background())
					b.add(d, 0, 10)
					p := readyPart(t, d)
					if killed {
						if err := d.Close(); err != nil {
							t.Fatal(err)
						}
						d = b.open()
						d.Start(context.Background())
						p = readyPart(t, d)
					}
					fates := map[batchapi.Fate]int{}
					for r, err := range p.Results() {
						if err != nil {
							t.Fatal(err)
						}
						if undone := r.Member.ID >= "m5"; undone != (r.Fate == want && want != "") || r.Member != memberOf(r.Index) {
							t.Errorf("member %s at %d: %s", r.Member.ID, r.Index, r.Fate)
						}
						fates[r.Fate]++
					}
					if n := fates[batchapi.Answered]; n != 5 || want != "" && fates[want] != 5 || want == "" && len(fates) != 1 {
						t.Errorf("fates %v", fates)
					}
					if err := d.Close(); err != nil {
						t.Fatal(err)
					}
				})
			})
		}
	}
}

// readyPart waits for a part to be ready.
func readyPart(t *testing.T, d *parts.Desk) *parts.Part {
	t.Helper()
	late := time.After(24 * time.Hour)
	for {
		if p := d.Ready(); p != nil {
			return p
		}
		select {
		case <-d.Changed():
		case <-late:
			t.Fatalf("no part is ready: %v", d.Err())
		}
	}
}
