package proc_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/proc"
)

// A window has room for one more command, and twenty want to start: the others wait for its reset, and no longer.
func TestPacedCommandsWaitForAResetAndNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := ledger(t)
		begin := time.Now()
		reset := close5(w, begin) // 100 commands fill it
		time.Sleep(reset.Sub(begin) + time.Minute)
		begin = time.Now()
		for i := range 99 {
			w.Note(begin.Add(time.Duration(i)*time.Second), done(1000))
		}
		reset = begin.Add(5 * time.Hour)
		time.Sleep(time.Hour)

		lane := proc.NewLane(w)
		var mu sync.Mutex
		var starts []time.Time
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if !lane.Pace(context.Background()) {
					t.Error("it says that nothing more is to start")
				}
				mu.Lock()
				starts = append(starts, time.Now())
				mu.Unlock()
				w.Note(time.Now(), done(1000))
			})
		}
		time.Sleep(time.Minute)
		mu.Lock()
		if len(starts) != 1 {
			t.Errorf("%d commands started at once", len(starts))
		}
		mu.Unlock()
		if next := lane.Next(); next.Sub(reset).Abs() > time.Minute {
			t.Errorf("the next one is told to start at %v, want %v", next, reset)
		}
		all.Wait()
		slices.SortFunc(starts, time.Time.Compare)
		for i, start := range starts[1:] {
			// 100 commands in 5 hours are one every 3 minutes.
			if want := reset.Add(time.Duration(i) * 3 * time.Minute); start.Before(want.Add(-time.Minute)) || start.After(want.Add(2*time.Minute)) {
				t.Errorf("command %d starts at %v, want about %v", i+2, start, want)
			}
		}
	})
}

func TestNothingIsPacedThatIsToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := ledger(t)
		close5(w, time.Now())
		time.Sleep(2 * time.Hour)
		lane := proc.NewLane(w)
		lane.Pace(context.Background())
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if begin := time.Now(); lane.Pace(ctx) || time.Since(begin) != time.Minute {
			t.Errorf("a command starts after %v", time.Since(begin))
		}
		time.AfterFunc(time.Minute, lane.Drain)
		if begin := time.Now(); lane.Pace(context.Background()) || time.Since(begin) != time.Minute {
			t.Errorf("a command starts after %v, though the run ends", time.Since(begin))
		}
	})
}
