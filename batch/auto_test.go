package batch_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// perRequest foresees a second for each request.
func perRequest(requests, _ int) time.Duration { return time.Duration(requests) * time.Second }

func TestAutoCallsLiveAtOnceWhatBatchesHaveNoTimeFor(t *testing.T) {
	for _, c := range []struct {
		name  string
		left  time.Duration
		n     int
		first int
	}{
		{"a day for an hour of calls", 24 * time.Hour, 3600, 0},
		{"a window of just 15 minutes", 25*time.Minute + 110*time.Second, 100, 0},
		{"a window a second shorter", 25*time.Minute + 109*time.Second, 100, 100},
		{"just enough for live calls", 110 * time.Second, 100, 100},
		{"more than live calls can do", 55 * time.Second, 100, 50},
		{"nothing can be done", 0, 100, 0},
		{"the deadline has passed", -time.Hour, 100, 0},
		{"nothing to do", time.Hour, 0, 0},
		{"one that cannot be done", time.Second, 1, 0},
	} {
		if got := batch.AutoFirst(c.left, c.n, 10*c.n, perRequest); got != c.first {
			t.Errorf("%s: %d of %d go live at once, want %d", c.name, got, c.n, c.first)
		}
	}
}

func TestAutoForeseesByTokens(t *testing.T) {
	byTokens := func(_, tokens int) time.Duration { return time.Duration(tokens) * time.Second }
	if got := batch.AutoFirst(1100*time.Second, 1000, 2000, byTokens); got != 500 {
		t.Errorf("%d of 1,000 go live at once, want the half", got)
	}
}

func TestAutoTurnsToLiveCallsInTime(t *testing.T) {
	for _, c := range []struct {
		name string
		left time.Duration
		n    int
		due  bool
	}{
		{"a second early", 10*time.Minute + 111*time.Second, 100, false},
		{"just in time", 10*time.Minute + 110*time.Second, 100, true},
		{"late", time.Second, 100, true},
		{"nothing is left", time.Second, 0, false},
	} {
		if got := batch.AutoDue(c.left, c.n, 10*c.n, perRequest); got != c.due {
			t.Errorf("%s: due %v", c.name, got)
		}
	}
}

func TestWeighSaysWhatAutoWillDo(t *testing.T) {
	for _, c := range []struct {
		name string
		left time.Duration
		want batch.Split
	}{
		{"time enough", time.Hour, batch.Split{Wait: 50*time.Minute - 110*time.Second, Time: 110 * time.Second}},
		{"too little for batches", 20 * time.Minute, batch.Split{Live: 100, Time: 110 * time.Second}},
		{"too little for live calls", 55 * time.Second, batch.Split{Live: 50, Time: 110 * time.Second}},
	} {
		if got := batch.SplitOf(c.left, 100, 1000, perRequest); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
		}
	}
}

func TestTriesByBatchesAndLiveOnesAreCountedTogether(t *testing.T) {
	for _, attempts := range []int{1, 2, 4} {
		t.Run(fmt.Sprint(attempts), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFiles(t, chats(12))
				cfg, sent := f.viaConfig(t, sim.Config{})
				cfg.Via, cfg.Budget.Attempts = batch.ViaAuto, attempts
				cfg.Check = func(string, provider.Endpoint, []byte) error { return errors.New("no") }
				rep, err := run(t, cfg)
				if err != nil || rep.Report.Failed != 12 || sent.count(liveCall) != 12*(attempts-1) {
					t.Errorf("%d live calls, %+v, %v", sent.count(liveCall), rep.Report, err)
				}
				for id, r := range f.results(t) {
					if r.Sluice.Attempts != attempts || r.Sluice.Kind != "invalid_output" {
						t.Errorf("%s: %+v", id, r.Sluice)
					}
				}
				f.tidy(t)
			})
		})
	}
}
