package proc_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/work"
)

// All that meet a limit together, of which nobody says when it ends, pause once for it, and the pauses grow by one at a time
// however many meet it.
func TestManyMeetALimitWithoutAHint(t *testing.T) {
	for _, kind := range []sluice.Kind{sluice.RateLimit, sluice.UsageWindow} {
		synctest.Test(t, func(t *testing.T) {
			const items, atOnce = 40, 10
			l, pauses := proc.NewLane(), &work.Pauses{}
			s, err := sluice.New(sluice.Config{Limits: sluice.Limits{Concurrency: atOnce}, MaxThrottles: math.MaxInt32, Observer: pauses})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			begin := time.Now()
			var limited, well atomic.Int32
			var all sync.WaitGroup
			for i := range items {
				all.Go(func() {
					_, err := s.Do(context.Background(), sluice.Call{Lane: "lane"}, func(context.Context, *sluice.Permit) sluice.Outcome {
						started := time.Now()
						time.Sleep(time.Second + time.Duration(i)*time.Millisecond)
						o := sluice.Outcome{}
						if time.Since(begin) < 400*time.Second {
							o.Kind, o.Err = kind, errors.New("limited")
							limited.Add(1)
						} else {
							well.Add(1)
						}
						l.Ended(started, time.Now(), &o)
						return o
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			// One pause of 60, 120 and 240 s, and what one command takes after each.
			if n := pauses.Count(); n != 1 || limited.Load() > atOnce+4 || well.Load() != items {
				t.Errorf("%v: %d pauses, %d limited, %d well", kind, n, limited.Load(), well.Load())
			}
			if took := time.Since(begin); took < 422*time.Second || took > 440*time.Second {
				t.Errorf("%v: it took %v", kind, took)
			}
		})
	}
}

// What a command that began before a pause says of a limit without a hint, after that is over, is of that one.
func TestALateWordOfALimitWithoutAHint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := proc.NewLane()
		began := time.Now()
		time.Sleep(time.Second)
		first := sluice.Outcome{Kind: sluice.RateLimit}
		l.Ended(began, time.Now(), &first)
		time.Sleep(2 * time.Minute)
		late := sluice.Outcome{Kind: sluice.RateLimit}
		if l.Ended(began, time.Now(), &late); first.Wait != time.Minute || late.Wait > 0 {
			t.Errorf("waits of %v and %v", first.Wait, late.Wait)
		}
	})
}

// A reset that moves later is followed, and one that moves earlier does not end what was told before.
func TestAResetThatMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := proc.NewLane()
		began := time.Now()
		tell := func(started time.Time, until time.Duration) bool {
			time.Sleep(time.Second)
			return l.Ended(started, time.Now(), &sluice.Outcome{Kind: sluice.UsageWindow, Until: began.Add(until)})
		}
		for i, tt := range []struct {
			until   time.Duration
			another bool
		}{
			{5 * time.Hour, false}, {5*time.Hour + time.Second, false}, {4 * time.Hour, false}, {5 * 24 * time.Hour, true}, {5 * 24 * time.Hour, false},
		} {
			if got := tell(began, tt.until); got != tt.another {
				t.Errorf("%d: another limit: %v", i, got)
			}
		}
		if tell(time.Now(), 9*24*time.Hour) { // which the Scheduler is told by the command's end
			t.Error("what began after it was told is told twice")
		}
	})
}
