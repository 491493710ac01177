package batch_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
)

// perRequest foresees a second for each request.
func perRequest(requests, _ int) time.Duration { return time.Duration(requests) * time.Second }

func TestSplitGivesBatchesTheTimeThatLiveRequestsLeave(t *testing.T) {
	for _, c := range []struct {
		name string
		left time.Duration
		want batch.Split
	}{
		{"time enough", time.Hour, batch.Split{Wait: 50*time.Minute - 110*time.Second, Time: 110 * time.Second}},
		{"too little for batches", 20 * time.Minute, batch.Split{Time: 110 * time.Second}},
		{"a window of just 15 minutes", 25*time.Minute + 110*time.Second, batch.Split{Wait: 15 * time.Minute, Time: 110 * time.Second}},
		{"a window a second shorter", 25*time.Minute + 109*time.Second, batch.Split{Time: 110 * time.Second}},
		{"the deadline has passed", -time.Hour, batch.Split{Time: 110 * time.Second}},
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
				cfg, sent := f.viaConfig(t, hour())
				byDeadline(&cfg, 80*time.Minute) // there is no time for a second batch
				cfg.Budget.Attempts = attempts
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
