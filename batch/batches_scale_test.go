package batch_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/sim"
)

// TestManyLinesThroughSmallBounds has waits for room, lines that fail, batches that expire, and results that are cut.
func TestManyLinesThroughSmallBounds(t *testing.T) {
	lines := suite.Size(1500, 6000)
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(lines))
		cfg, sent := f.viaConfig(t, sim.Config{Seed: 11, Batches: sim.Batches{
			Latency: time.Hour, EnqueuedTokens: 5000, Fail: 0.01, ExpireEvery: 7, MaxRequests: 700, CutResults: 1,
		}})
		cfg.Provider.Batches.Requests = 500
		rep, err := run(t, cfg)
		if err != nil || rep.Done+rep.Report.Failed != lines || rep.Left() != 0 {
			t.Fatalf("%+v, %v", rep, err)
		}
		all := f.results(t) // each once
		for i := 1; i <= lines; i++ {
			if r, ok := all[fmt.Sprint(i)]; !ok || r.Error != nil && r.Error.Code != "bad_request" {
				t.Fatalf("%d: %+v", i, r.Error)
			}
		}
		if b := rep.Batches; b.Lines != lines || b.Parts < lines/500 || sent.count(batchMade) < b.Parts {
			t.Errorf("%d batches: %+v", sent.count(batchMade), b)
		}
		f.tidy(t)
	})
}
