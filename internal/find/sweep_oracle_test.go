package find_test

import (
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/suite"
)

// capped refuses calls above so many open ones.
func capped(limit int) base {
	var open atomic.Int64
	return func(*http.Request) (*http.Response, error) {
		defer open.Add(-1)
		if open.Add(1) > int64(limit) {
			time.Sleep(time.Millisecond)
			return answer(429, limited), nil
		}
		time.Sleep(100 * time.Millisecond)
		return answer(200, essay), nil
	}
}

// check holds what is true of every sweep that comes to its end.
func check(r *find.SweepResult, most int) error {
	passed, refused := 0, make(map[int]bool)
	for _, run := range r.Runs {
		switch {
		case run.Workers < 1 || run.Workers > most:
			return fmt.Errorf("%d workers were tested", run.Workers)
		case run.Workers <= passed:
			return fmt.Errorf("%d workers were tested after %d passed", run.Workers, passed)
		case run.Status == find.SweepPassed && (run.RateLimited > 0 || run.Success == 0):
			return fmt.Errorf("%+v is no pass", run)
		}
		if run.Status == find.SweepPassed {
			passed = max(passed, run.Workers)
		}
		refused[run.Workers] = run.Status == find.SweepRateLimited
	}
	switch {
	case r.Recommended != passed:
		return fmt.Errorf("%d recommended, %d passed", r.Recommended, passed)
	case refused[r.Recommended]:
		return fmt.Errorf("%d recommended, which were rate limited", r.Recommended)
	case r.MaxTested != slices.Max(workers(r)):
		return fmt.Errorf("%d is not the most that were tested", r.MaxTested)
	}
	return nil
}

func TestSweepRecommendsWhatPassedAndNeverMoreThanTheTrueLimit(t *testing.T) {
	for _, most := range suite.Size([]int{1, 2, 3, 11}, []int{1, 2, 3, 4, 5, 11, 50, 100}) {
		for limit := range min(100, most+20) {
			limit++ // from 1
			synctest.Test(t, func(t *testing.T) {
				cfg := over(capped(limit))
				cfg.MaxWorkers = most
				r := sweep(t, cfg)
				if err := check(r, most); err != nil {
					t.Errorf("limit %d, at most %d: %v", limit, most, err)
				}
				if got := r.Recommended; got < 1 || got > min(limit, most) || limit >= most && got != most {
					t.Errorf("limit %d, at most %d: %d recommended", limit, most, r.Recommended)
				}
			})
		}
	}
}

// Whatever providers do, limits that change and lie included, a sweep ends, and what it says follows from its runs.
func TestSweepAlwaysEndsAndSaysWhatItsRunsSay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		most := rapid.IntRange(1, 40).Draw(rt, "most")
		// In each run every n-th call is refused, and every k-th breaks; 0: none.
		type luck struct{ refused, broken int64 }
		runs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) luck {
			return luck{rapid.Int64Range(-20, 3).Draw(t, "refused"), rapid.Int64Range(-2, 3).Draw(t, "broken")}
		}), 1, 30).Draw(rt, "runs")
		var err error
		synctest.Test(t, func(t *testing.T) {
			run, n := -1, atomic.Int64{}
			cfg := over(base(func(*http.Request) (*http.Response, error) {
				l, n := runs[run%len(runs)], n.Add(1)
				switch {
				case l.refused > 0 && n%l.refused == 0:
					return answer(429, limited), nil
				case l.broken > 0 && n%l.broken == 0:
					return nil, reset()
				}
				time.Sleep(time.Millisecond)
				return answer(200, essay), nil
			}))
			cfg.MaxWorkers = most
			cfg.Log = func(line string) {
				if line[0] == 'T' {
					run++
				}
			}
			r, _ := find.Sweep(t.Context(), cfg)
			if err = check(r, most); err == nil && len(r.Runs) > 20 {
				err = fmt.Errorf("%d runs", len(r.Runs))
			}
		})
		if err != nil {
			rt.Fatal(err)
		}
	})
}
