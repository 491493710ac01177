package batch_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/sim"
)

// abandon runs a batch for so long and drains it then.
func abandon(t testing.TB, cfg batch.Config, after time.Duration) {
	t.Helper()
	b, err := batch.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	timer := time.AfterFunc(after, b.Drain)
	defer timer.Stop()
	if _, err := b.Run(context.Background()); !errors.Is(err, work.ErrDrained) {
		t.Fatalf("error %v, want drained", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}

// hour is a batch that takes an hour.
func hour() sim.Config { return sim.Config{Batches: sim.Batches{Latency: time.Hour}} }

func TestARunGoesOnWithWhatIsPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(50))
		cfg, sent := f.viaConfig(t, hour())
		cfg.Provider.Batches.Requests = 20
		abandon(t, cfg, 10*time.Minute)
		if sent.count(batchMade) != 3 {
			t.Fatalf("%d batches", sent.count(batchMade))
		}
		// A line is changed, one is gone, and one is new.
		f.input(t, strings.Replace(chats(49), "What is 7?", "What is seven?", 1)+chat(51)+"\n")
		live := cfg
		live.Batches = nil
		_, err := batch.Open(live)
		pending, ok := errors.AsType[*batch.PendingError](err)
		if !ok || pending.Lines != 50 || pending.Parts != 3 || !slices.Equal(pending.Accounts, []string{"sim"}) || !strings.Contains(pending.Hint(), "--cancel") {
			t.Fatalf("a live run: %v", err)
		}
		if _, err := batch.Open(cfg); !changedLine(err, 7) {
			t.Fatalf("with a changed item: %v", err)
		}
		var log strings.Builder
		cfg.Logger, cfg.Changed = slog.New(slog.NewTextHandler(&log, nil)), batch.ChangedRedo
		rep, err := run(t, cfg)
		if err != nil || rep.Done != 50 {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		if sent.count(batchMade) != 4 || !strings.Contains(log.String(), "requests=2") {
			t.Errorf("%d batches; it said\n%s", sent.count(batchMade), log.String())
		}
		ways := f.ways(t)
		if len(ways) != 50 || ways["7"] != ways["51"] || ways["7"] == ways["8"] || ways["8"] == "" {
			t.Errorf("lines came by %v", ways)
		}
		f.tidy(t)
		if rep, err := run(t, live); err != nil || rep.Already != 50 {
			t.Errorf("a live run after it: %+v, %v", rep, err)
		}
	})
}

func changedLine(err error, line int) bool {
	changed, ok := errors.AsType[*batch.ChangedError](err)
	return ok && changed.Number == line && changed.More == 0
}

func TestPendingResultsOfChangedRequestsCanBeKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(20))
		cfg, sent := f.viaConfig(t, hour())
		abandon(t, cfg, 10*time.Minute)
		f.input(t, strings.Replace(chats(20), "What is 7?", "What is seven?", 1))
		cfg.Changed = batch.ChangedKeep
		if rep, err := run(t, cfg); err != nil || rep.Done != 20 || sent.count(batchMade) != 1 {
			t.Fatalf("%+v, %d batches, %v", rep.Report, sent.count(batchMade), err)
		}
		cfg.Changed = batch.ChangedRefused
		if _, err := batch.Open(cfg); !changedLine(err, 7) {
			t.Errorf("the result kept the hash of another request: %v", err)
		}
	})
}

func TestAPartIsMergedOnceThoughItsRunWasKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(30))
		cfg, sent := f.viaConfig(t, hour())
		abandon(t, cfg, 10*time.Minute)
		saved := filepath.Join(t.TempDir(), "saved")
		keep(t, f, saved)
		if _, err := run(t, cfg); err != nil {
			t.Fatal(err)
		}
		for _, lines := range []int{0, 1, 17, 30} { // recorded before the kill
			b, err := os.ReadFile(f.out)
			if err != nil {
				t.Fatal(err)
			}
			restore(t, f, saved)
			if err := os.WriteFile(f.out, []byte(strings.Join(strings.SplitAfter(string(b), "\n")[:lines], "")), 0o644); err != nil {
				t.Fatal(err)
			}
			if rep, err := run(t, cfg); err != nil || rep.Done != 30-lines || rep.Already != lines {
				t.Errorf("%d recorded before: %+v, %v", lines, rep.Report, err)
			}
			if n := len(f.results(t)); n != 30 || sent.count(batchMade) != 1 || sent.count(liveCall) != 0 {
				t.Errorf("%d recorded before: %d lines, %d batches", lines, n, sent.count(batchMade))
			}
			f.tidy(t)
		}
	})
}

// keep copies what a run left, and restore puts it back.
func keep(t testing.TB, f files, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(f.out+batch.BatchesSuffix)); err != nil {
		t.Fatal(err)
	}
}

func restore(t testing.TB, f files, from string) {
	t.Helper()
	os.RemoveAll(f.out + batch.BatchesSuffix)
	if err := os.CopyFS(f.out+batch.BatchesSuffix, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
}

func TestFailuresThatRunAgainAreNotLostWithTheFlag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(10))
		cfg, sent := f.viaConfig(t, hour())
		live := cfg
		live.Batches, live.Budget.Attempts = nil, 1
		live.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			return (&stub{status: 400, answer: `{"error":{"message":"bad"}}`}).RoundTrip(r)
		})
		if rep, err := run(t, live); err != nil || rep.Report.Failed != 10 {
			t.Fatalf("%+v, %v", rep, err)
		}
		cfg.RetryFailed = true
		abandon(t, cfg, 10*time.Minute)
		cfg.RetryFailed = false // the old failures are still there, and what is pending replaces them
		if rep, err := run(t, cfg); err != nil || rep.Done != 10 || sent.count(batchMade) != 1 {
			t.Fatalf("%+v, %v, %d batches", rep, err, sent.count(batchMade))
		}
		for id, r := range f.results(t) {
			if r.Error != nil {
				t.Errorf("%s: %+v", id, r.Error)
			}
		}
	})
}

func TestPendingPartsAreCalledOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(100))
		cfg, sent := f.viaConfig(t, hour())
		cfg.Provider.Batches.Requests = 40
		abandon(t, cfg, 50*time.Minute)
		cfg.Batches.Cancel = true
		rep, err := run(t, cfg)
		if err != nil || rep.Done == 0 || rep.Left() == 0 || rep.Batches.Pending != 0 || sent.count(batchMade) != 3 {
			t.Fatalf("%+v, %v", rep, err)
		}
		state, err := work.LoadState(work.StatePath(f.out))
		if err != nil || state.Status != work.CalledOff || state.Reason != "" {
			t.Errorf("state %q, %v", state.Status, err)
		}
		f.tidy(t)
		cfg.Batches.Cancel = false
		if again, err := run(t, cfg); err != nil || again.Already != rep.Done || again.Done != rep.Left() {
			t.Fatalf("%+v, %v", again.Report, err)
		}
		if n := len(f.results(t)); n != 100 {
			t.Errorf("%d results", n)
		}
		if cfg.Batches.Cancel = true; true {
			if rep, err := run(t, cfg); err != nil || rep.Left() != 0 {
				t.Errorf("nothing to call off: %+v, %v", rep, err)
			}
		}
	})
}

func TestLinesThatARunLeavesOutStayPending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(20))
		cfg, _ := f.viaConfig(t, hour())
		abandon(t, cfg, 10*time.Minute)
		for _, change := range []func(*batch.Config){
			func(c *batch.Config) { c.Limit = 5 },
			func(c *batch.Config) { c.Limit, c.Batches = 5, &batch.Batches{Cancel: true} },
		} {
			less := cfg
			change(&less)
			_, err := batch.Open(less)
			if pending, ok := errors.AsType[*batch.PendingError](err); !ok || pending.LeftOut != 15 || !strings.Contains(pending.Hint(), "--max-items") {
				t.Errorf("error %v", err)
			}
		}
		if rep, err := run(t, cfg); err != nil || rep.Done != 20 {
			t.Errorf("%+v, %v", rep, err)
		}
	})
}

func TestLostBatchesAreLeftUnlessTheyAreToBeSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(30))
		cfg, sent := f.viaConfig(t, hour())
		cfg.Provider.Batches.Requests = 20
		abandon(t, cfg, 10*time.Minute)
		lost := ""
		var mu sync.Mutex
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			resp, err := sent.RoundTrip(r)
			if err != nil || r.Method != http.MethodGet || !strings.HasPrefix(r.URL.Path, "/v1/batches/") {
				return resp, err
			}
			mu.Lock()
			defer mu.Unlock()
			if id := strings.TrimPrefix(r.URL.Path, "/v1/batches/"); lost == "" || lost == id {
				lost = id
				resp.Body.Close()
				return (&stub{status: 404, answer: `{"error":{"message":"No batch found","type":"invalid_request_error"}}`}).RoundTrip(r)
			}
			return resp, nil
		})
		rep, err := run(t, cfg)
		gone, ok := errors.AsType[*batch.LostError](err)
		if !ok || gone.Account != "sim" || !slices.Equal(gone.Batches, []string{lost}) || gone.Lines != rep.Left() || rep.Done+gone.Lines != 30 {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		if rep.Batches.Lost != 1 || rep.Batches.Pending != 0 {
			t.Errorf("%+v, want 1 lost, and none pending", rep.Batches)
		}
		if !strings.Contains(gone.Hint(), "--redo lost") {
			t.Error(gone.Hint())
		}
		cfg.Batches.Resubmit = true
		if rep, err := run(t, cfg); err != nil || rep.Left() != 0 || sent.count(batchMade) != 3 {
			t.Errorf("%+v, %v, %d batches", rep.Report, err, sent.count(batchMade))
		}
		f.tidy(t)
	})
}

func TestAPartThatIsRefusedLeavesItsLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(30))
		cfg, sent := f.viaConfig(t, sim.Config{Latency: time.Millisecond})
		cfg.Provider.Batches.Requests = 20
		var refuse atomic.Bool
		refuse.Store(true)
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && r.URL.Path == "/v1/batches" && refuse.CompareAndSwap(true, false) {
				io.Copy(io.Discard, r.Body)
				return (&stub{status: 400, answer: `{"error":{"message":"Invalid completion window","type":"invalid_request_error"}}`}).RoundTrip(r)
			}
			return sent.RoundTrip(r)
		})
		rep, err := run(t, cfg)
		refused, ok := errors.AsType[*batch.RefusedError](err)
		if !ok || refused.Parts != 1 || refused.Lines != rep.Left() || rep.Done == 0 || !strings.Contains(err.Error(), "Invalid completion window") {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		if !strings.Contains(refused.Hint(), "requests: N") { // its size can be the cause
			t.Error(refused.Hint())
		}
		f.tidy(t)
		if rep, err := run(t, cfg); err != nil || rep.Left() != 0 {
			t.Errorf("%+v, %v", rep.Report, err)
		}
		os.Remove(f.out)
		refuse.Store(true)
		byDeadline(&cfg, time.Hour)
		if rep, err := run(t, cfg); err != nil || rep.Done != 30 || rep.Batches.Live == 0 {
			t.Errorf("by a deadline: %+v, %v", rep, err)
		}
	})
}

func TestAnItemDoesNotWaitForAnEqualOneThatIsLost(t *testing.T) {
	f := newFiles(t, strings.Replace(chat(7), `"7"`, `"a"`, 1)+"\n"+strings.Replace(chat(7), `"7"`, `"b"`, 1)+"\n")
	cfg, _ := f.viaConfig(t, sim.Config{Batches: sim.Batches{LoseResults: true}})
	cfg.Cache = t.TempDir()
	_, err := run(t, cfg)
	if _, ok := errors.AsType[*batch.LostError](err); !ok {
		t.Errorf("error %v, want a *LostError", err)
	}
}
