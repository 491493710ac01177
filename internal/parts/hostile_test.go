package parts_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/parts"
)

// TestAWordOfTheProvidersIsNoStateOfAPart has batches that run be in states that nobody knows, or that only parts have.
func TestAWordOfTheProvidersIsNoStateOfAPart(t *testing.T) {
	for _, word := range []batchapi.State{"pausing", parts.Waiting, parts.Submitting, parts.Fetched, parts.Merged, parts.Dropped} {
		t.Run(string(word), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.api.word = word
				d := b.open()
				d.Start(t.Context())
				b.add(d, 0, 5)
				<-time.After(10 * time.Minute)
				if s := d.Status(); len(s) != 1 || s[0].State != string(batchapi.Running) {
					t.Errorf("the part stands as %+v, want it in progress", s)
				}
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				d = b.open()
				defer d.Close()
				d.Start(t.Context())
				if err := b.merge(d); err != nil {
					t.Fatal(err)
				}
				b.want(5)
			})
		})
	}
}

// TestCountsThatCannotBeMakeNoResultsEnough has the provider count fewer than none, and results that are not all there.
func TestCountsThatCannotBeMakeNoResultsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.uncounted, b.api.cut = 4, 2
		if err := through(b, 5); err != nil {
			t.Fatal(err)
		}
		b.want(5)
	})
}

// TestResultsThatComeLateAreNotPaidForTwice has files that are not found at first, though lost parts are to be submitted again.
func TestResultsThatComeLateAreNotPaidForTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.again, b.api.goneFor = true, 2
		if err := through(b, 5); err != nil {
			t.Fatal(err)
		}
		if b.want(5); b.api.creates != 1 {
			t.Errorf("it was submitted %d times", b.api.creates)
		}
		b.api.goneFor = 1 << 20
		d := b.open()
		defer d.Close()
		d.Start(t.Context())
		b.add(d, 5, 6)
		<-time.After(2 * time.Hour)
		if b.api.creates < 3 {
			t.Error("what stays away is not submitted again")
		}
	})
}

// TestResultsThatAreStillCountedAreWaitedFor has a batch end whose counts and results are behind.
func TestResultsThatAreStillCountedAreWaitedFor(t *testing.T) {
	for _, missing := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t)
			late, fetches := true, 0
			b.api.skip = func(id string) bool { return id == "m1" && (late || missing > 0) }
			b.api.fault = func(op string) fault {
				if op == "fetch" {
					fetches++
					late = fetches < 3
				}
				return none
			}
			if err := through(b, 5); err != nil {
				t.Fatal(err)
			}
			if len(b.got) != 5-missing || fetches < 3 || fetches > 10 {
				t.Errorf("there are %d results after %d fetches, where %d never come", len(b.got), fetches, missing)
			}
		})
	}
}
