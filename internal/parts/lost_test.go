package parts_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/batchapi"
	"github.com/sluice-llm/sluice/internal/parts"
)

func TestABatchThatIsNotKnownIsLostAtOnceUnlessItIsNew(t *testing.T) {
	for _, test := range []struct {
		name  string
		skew  time.Duration // of the provider's clock
		after time.Duration // the next process looks
		least time.Duration // how long it looks
		most  time.Duration
	}{
		{"new", 0, 5 * time.Second, 20 * time.Second, 75 * time.Second},
		{"old", 0, time.Hour, 0, time.Second},
		{"a clock that is ahead", 5 * time.Hour, time.Hour, 25 * time.Second, 75 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				b.api.skew = test.skew
				d := b.open()
				d.Start(context.Background())
				b.add(d, 0, 5)
				<-time.After(time.Second)
				synctest.Wait()
				d.Close()
				<-time.After(test.after)
				synctest.Wait()
				b.api.have(nil)
				start := time.Now()
				d = b.open()
				defer d.Close()
				d.Start(context.Background())
				var lost *parts.LostError
				if err := b.merge(d); !errors.As(err, &lost) {
					t.Fatalf("err = %v, want that it is lost", err)
				}
				if took := time.Since(start); took < test.least || took > test.most {
					t.Errorf("it was lost after %v, want %v to %v", took, test.least, test.most)
				}
			})
		})
	}
}

func TestABatchThatThisProcessMadeIsNotLostAtOnceByAWrongClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.skew = -5 * time.Hour
		start := time.Now()
		b.api.fails = func(op string) error {
			if op == "get" && time.Since(start) < 15*time.Second {
				return batchapi.ErrUnknown
			}
			return nil
		}
		if err := through(b, 5); err != nil {
			t.Fatal(err)
		}
		b.want(5)
	})
}

// TestAGuessThatIsLostIsLookedForAmongOthers has the batch of a part be another than the one that it took, which then goes.
func TestAGuessThatIsLostIsLookedForAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.api.nameless, b.api.reversed, b.again = true, true, true
		b.api.fault = func(op string) fault {
			if op != "create" {
				return none
			}
			b.api.fault = nil
			return lostAfter
		}
		d := b.open()
		d.Start(context.Background())
		b.add(d, 0, 5)
		<-time.After(time.Minute)
		synctest.Wait()
		d.Close()
		ours := b.api.batches[0]
		b.saved = []byte(strings.Replace(string(b.saved), ours.ID, "batch-of-another", 1))
		d = b.open()
		defer d.Close()
		d.Start(context.Background())
		if err := b.merge(d); err != nil {
			t.Fatal(err)
		}
		b.api.runAll()
		if b.want(5); len(b.api.batches) != 1 {
			t.Errorf("%d batches were made, want 1", len(b.api.batches))
		}
	})
}
