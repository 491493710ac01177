package batch_test

import (
	"errors"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

func TestViaRefusesWhatItCannotDo(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(*batch.Config)
	}{
		{"Batches", func(c *batch.Config) { c.Input, c.Stdin = "-", strings.NewReader(chats(1)) }},
		{"Batches", func(c *batch.Config) { c.Remote = noRemote{} }},
		{"Batches", func(c *batch.Config) { c.Upstreams = &provider.Upstreams{} }},
		{"Provider", func(c *batch.Config) { c.Provider.Batches = provider.BatchAPI{} }},
		{"Batches", func(c *batch.Config) { c.Batches.Poll = -1 }},
		{"Batches", func(c *batch.Config) { c.Budget.Deadline = time.Now().Add(time.Hour) }},
	} {
		f := newFiles(t, chats(1))
		cfg, _ := f.viaConfig(t, sim.Config{})
		c.change(&cfg)
		_, err := batch.Open(cfg)
		if wrong, ok := errors.AsType[*batch.FieldError](err); !ok || wrong.Field != c.field {
			t.Errorf("error %v, want one of %s", err, c.field)
		}
	}
}

// noRemote is never asked.
type noRemote struct{ batch.Remote }

func TestAutoGoesLiveWhereThereIsNoBatchAPI(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(5))
		cfg, sent := f.viaConfig(t, sim.Config{Latency: -1})
		cfg.Provider.Batches = provider.BatchAPI{}
		byDeadline(&cfg, time.Hour)
		if rep, err := run(t, cfg); err != nil || rep.Done != 5 || sent.count(liveCall) != 5 {
			t.Errorf("%+v, %v", rep.Report, err)
		}
	})
}

// large is a line above 10,000 bytes.
var large = `{"custom_id":"large","method":"POST","url":"/v1/chat/completions","body":{"model":"m","messages":[{"role":"user","content":"` +
	strings.Repeat("word ", 2000) + `"}]}}` + "\n"

func TestALineThatNoBatchTakesIsRecordedOrLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, deadline := range []bool{false, true} {
			f := newFiles(t, chats(3)+large)
			cfg, sent := f.viaConfig(t, sim.Config{Latency: -1})
			if cfg.Provider.Batches.Bytes = 9000; deadline {
				byDeadline(&cfg, time.Hour)
			}
			rep, err := run(t, cfg)
			if err != nil || rep.Left() != 0 {
				t.Fatalf("%+v, %v", rep.Report, err)
			}
			r := f.results(t)["large"]
			switch {
			case deadline && (r.Error != nil || sent.count(liveCall) != 1):
				t.Errorf("with a deadline: %+v, %d calls", r.Error, sent.count(liveCall))
			case !deadline && (r.Error == nil || r.Error.Code != "bad_request" || !strings.Contains(r.Error.Message, "9000") || rep.Done != 3):
				t.Errorf("without a deadline: %+v", r.Error)
			}
		}
	})
}

func TestEqualLinesGoIntoAPartOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, asking("b", 1, 2, 1, 1, 3, 2))
		cfg, sent := f.viaConfig(t, hour())
		cfg.Cache = t.TempDir()
		abandon(t, cfg, 10*time.Minute)
		f.input(t, asking("a", 1)+asking("b", 1, 2, 1, 1, 3, 2)) // the first line equals one that is pending
		rep, err := run(t, cfg)
		if err != nil || rep.Done != 7 || rep.Cached != 4 || rep.Batches.Lines != 3 || sent.count(batchMade) != 1 {
			t.Fatalf("%+v, %v, %d batches", rep, err, sent.count(batchMade))
		}
		f.results(t) // each once
		f.input(t, asking("a", 1)+asking("b", 1, 2, 1, 1, 3, 2, 1, 3))
		if rep, err := run(t, cfg); err != nil || rep.Done != 2 || rep.Cached != 2 || sent.count(batchMade) != 1 {
			t.Errorf("equal lines more: %+v, %v, %d batches", rep.Report, err, sent.count(batchMade))
		}
	})
}

// TestEqualLinesInPartsKeepTheirOwn has equal lines sent without a cache, of which one comes back undone.
func TestEqualLinesInPartsKeepTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, asking("b", 1, 1, 1))
		c := hour()
		c.Batches.ExpireEvery = 3
		cfg, sent := f.viaConfig(t, c)
		cfg.Provider.Batches.Requests = 1
		abandon(t, cfg, 10*time.Minute)
		cfg.Cache = t.TempDir()
		rep, err := run(t, cfg)
		if err != nil || rep.Done != 3 || rep.Batches.Lines+rep.Cached != 3 || sent.count(batchMade) > 4 {
			t.Errorf("%+v, %v, %d batches", rep, err, sent.count(batchMade))
		}
		f.results(t)
	})
}

func TestBatchesShareTheCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, dir := newFiles(t, chats(10)), t.TempDir()
		cfg, sent := f.viaConfig(t, sim.Config{Latency: -1})
		cfg.Cache = dir
		if rep, err := run(t, cfg); err != nil || rep.CacheMisses != 10 || rep.CacheHits != 0 || len(entries(t, dir)) != 10 {
			t.Fatalf("%+v, %v, %d entries", rep, err, len(entries(t, dir)))
		}
		f2 := newFiles(t, chats(12))
		cfg2 := cfg
		cfg2.Input, cfg2.Output = f2.in, f2.out
		rep, err := run(t, cfg2)
		if err != nil || rep.Done != 12 || rep.CacheHits != 10 || rep.CacheMisses != 2 || rep.Batches.Lines != 2 || sent.count(batchMade) != 2 {
			t.Errorf("%+v, %v, %d batches", rep, err, sent.count(batchMade))
		}
		f3 := newFiles(t, chats(12))
		cfg2.Input, cfg2.Output, cfg2.Batches = f3.in, f3.out, nil // the same keys
		if rep, err := run(t, cfg2); err != nil || rep.CacheHits != 12 {
			t.Errorf("live: %+v, %v", rep, err)
		}
	})
}

func TestABudgetBoundsWhatGoesIntoParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(100))
		cfg, sent := f.viaConfig(t, sim.Config{})
		cfg.Budget.Cost = 0.05 // the first line may take 0.041, and takes 0.00066 as all do
		rep, err := run(t, cfg)
		spent, ok := errors.AsType[*batch.BudgetError](err)
		if stopped, s := errors.AsType[*work.StoppedError](err); !ok || !s || stopped.Kind != sluice.OK || spent.What != batch.LimitedCost {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		if rep.Done < 20 || rep.Done > 76 || rep.Cost > cfg.Budget.Cost || sent.count(batchMade) < 2 {
			t.Errorf("%d done for %v of %v, in %d batches", rep.Done, rep.Cost, cfg.Budget.Cost, sent.count(batchMade))
		}
		cfg.Budget.Cost = 0
		if rep, err := run(t, cfg); err != nil || rep.Left() != 0 {
			t.Errorf("%+v, %v", rep.Report, err)
		}
		f.tidy(t)
	})
}

func TestAKeyThatIsRefusedStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(10))
		cfg, sent := f.viaConfig(t, sim.Config{})
		refuse := true
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if !refuse {
				return sent.RoundTrip(r)
			}
			if r.Body != nil {
				io.Copy(io.Discard, r.Body)
			}
			return (&stub{status: 401, answer: `{"error":{"message":"Incorrect API key provided: ` + sentinelKey + `","code":"invalid_api_key"}}`}).RoundTrip(r)
		})
		rep, err := run(t, cfg)
		stopped, ok := errors.AsType[*work.StoppedError](err)
		if !ok || stopped.Kind != sluice.Auth || rep.Left() != 10 || strings.Contains(err.Error(), sentinelKey) {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		refuse = false
		if rep, err := run(t, cfg); err != nil || rep.Done != 10 || sent.count(batchMade) != 1 {
			t.Errorf("%+v, %v", rep.Report, err)
		}
	})
}

// fifth is the ID of the fifth request of a part.
var fifth = regexp.MustCompile(`"custom_id":"[0-9a-f]{12}-4"`)

// TestALineThatTellsOfTheAccountStopsTheRun has a line of the results say that the account's money is spent: nothing is recorded of
// the line, and it does not stand in the way of another run.
func TestALineThatTellsOfTheAccountStopsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(30))
		cfg, sent := f.viaConfig(t, sim.Config{})
		cfg.Provider.Batches.Requests = 10
		spent := true
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := sent.RoundTrip(r)
			if err != nil || !spent || !strings.HasSuffix(r.URL.Path, "/content") {
				return resp, err
			}
			b, err := io.ReadAll(resp.Body)
			lines := strings.SplitAfter(string(b), "\n")
			for i, line := range lines {
				if id := fifth.FindString(line); id != "" {
					lines[i] = `{"id":"b",` + id + `,"response":{"status_code":429,"request_id":"r","body":{"error":{"message":` +
						`"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}},"error":null}` + "\n"
				}
			}
			text := strings.Join(lines, "")
			resp.Body, resp.ContentLength = io.NopCloser(strings.NewReader(text)), int64(len(text))
			return resp, err
		})
		rep, err := run(t, cfg)
		stopped, ok := errors.AsType[*work.StoppedError](err)
		if !ok || stopped.Kind != sluice.QuotaExhausted || !strings.HasSuffix(stopped.ID, "5") || rep.Done < 9 || rep.Report.Failed != 0 {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		if _, recorded := f.results(t)[stopped.ID]; recorded {
			t.Error("the line is recorded")
		}
		spent = false
		if rep, err := run(t, cfg); err != nil || rep.Left() != 0 || rep.Report.Failed != 0 || sent.count(liveCall) != 0 {
			t.Errorf("%+v, %v", rep.Report, err)
		}
		f.tidy(t)
	})
}

func TestAProviderThatIsNotThereEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(10))
		cfg, sent := f.viaConfig(t, sim.Config{})
		live := cfg.Transport
		cfg.Transport = &stub{err: errors.New("connection refused by " + sentinelKey)}
		rep, err := run(t, cfg)
		gone, ok := errors.AsType[*batch.UnreachableError](err)
		if !ok || gone.Recorded != 0 || rep.Left() != 10 || strings.Contains(err.Error(), sentinelKey) {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		cfg.Transport = live
		if rep, err := run(t, cfg); err != nil || rep.Done != 10 || sent.count(batchMade) != 1 {
			t.Errorf("%+v, %v", rep.Report, err)
		}
	})
}
