package batch_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
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

func TestItemsThatGoLiveContinueTheirAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lines = 600 // so that some are put aside and read again
		f := newFiles(t, chats(lines))
		cfg, sent := f.viaConfig(t, sim.Config{Latency: 200 * time.Millisecond, Batches: sim.Batches{Latency: time.Hour}})
		byDeadline(&cfg, 3*time.Hour)
		cfg.Batches.LiveTime = func(requests, tokens int) time.Duration { return 100 * time.Minute } // one batch, no second
		cfg.Budget.Attempts, cfg.Feedback = 3, true
		cfg.Check = func(string, provider.Endpoint, []byte) error { return errors.New("never") }
		var uncorrected atomic.Int32
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method+" "+r.URL.Path == liveCall {
				body, _ := io.ReadAll(r.Body)
				if r.Body = io.NopCloser(bytes.NewReader(body)); !bytes.Contains(body, []byte("Your answer was not accepted")) {
					uncorrected.Add(1)
				}
			}
			return sent.RoundTrip(r)
		})
		if _, err := run(t, cfg); err != nil {
			t.Fatal(err)
		}
		for id, r := range f.results(t) {
			if r.Sluice.Attempts != 3 {
				t.Fatalf("item %s has %d attempts", id, r.Sluice.Attempts)
			}
		}
		if n := uncorrected.Load(); n > 0 || sent.count(liveCall) != 2*lines {
			t.Errorf("%d of %d live requests are not corrected", n, sent.count(liveCall))
		}
	})
}

func TestRejectedPartsWhoseItemsGoLiveAreNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(40))
		cfg, sent := f.viaConfig(t, sim.Config{Latency: time.Millisecond, Batches: sim.Batches{Latency: time.Hour}})
		cfg.Provider.Batches.Requests = 20
		byDeadline(&cfg, 10*time.Hour)
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method+" "+r.URL.Path == batchMade {
				time.Sleep(time.Minute)
				return (&stub{status: 400, answer: `{"error":{"message":"no batches for you","type":"invalid_request_error"}}`}).RoundTrip(r)
			}
			return sent.RoundTrip(r)
		})
		if rep, err := run(t, cfg); err != nil || rep.Done != 40 {
			t.Errorf("%d of 40 done, %v", rep.Done, err)
		}
	})
}
