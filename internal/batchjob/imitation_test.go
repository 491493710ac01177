package batchjob_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// TestImitatedLinesAreClassifiedAsLiveAnswersAre: of what fails by itself, a third is wrong, a third throttled, and a third the
// server's fault, and the good ones are as many as the provider counts.
func TestImitatedLinesAreClassifiedAsLiveAnswersAre(t *testing.T) {
	for _, form := range forms {
		synctest.Test(t, func(t *testing.T) {
			api := imitated(t, form, sim.Batches{Fail: 0.3})
			p, _ := filled(api, form, 200)
			b := ended(t, api, submit(t, api, p).ID)
			known, _ := provider.Lookup(form)
			kinds := map[sluice.Kind]int{}
			for _, r := range results(t, api, b) {
				kinds[provider.Classify(known, r.Status, nil, r.Body, time.Now()).Kind]++
			}
			if kinds[sluice.OK] != b.Succeeded || kinds[sluice.RateLimit]+kinds[sluice.Overloaded]+kinds[sluice.UsageWindow] == 0 || kinds[sluice.ServerError] == 0 {
				t.Errorf("%s: %v, where the provider counts %d good ones", form, kinds, b.Succeeded)
			}
		})
	}
}

// TestImitatedBatchesFailAsAWhole: an error of the server's is no fault of the requests.
func TestImitatedBatchesFailAsAWhole(t *testing.T) {
	for _, form := range forms {
		if form == "anthropic" {
			continue // has no such state
		}
		synctest.Test(t, func(t *testing.T) {
			api := imitated(t, form, sim.Batches{FailEvery: 1})
			p, _ := filled(api, form, 2)
			b := ended(t, api, submit(t, api, p).ID)
			if b.Status != batchjob.Failed || b.Problem == nil || b.Problem.Kind != batchjob.Broken || b.Problem.Message == "" {
				t.Errorf("%s: %+v, %+v", form, b, b.Problem)
			}
		})
	}
}
