package batch_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/suite"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

func TestLinesThatFailedGoIntoLaterParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(300))
		cfg, sent := f.viaConfig(t, sim.Config{Seed: 3, Batches: sim.Batches{Fail: 0.15, ExpireEvery: 3}})
		cfg.Provider.Batches.Requests = 60
		rep, err := run(t, cfg)
		if err != nil {
			t.Fatal(err)
		}
		bad, again := 0, 0
		for id, r := range f.results(t) {
			switch {
			case r.Error != nil && r.Sluice.Kind != "bad_request":
				t.Errorf("%s failed: %+v", id, r.Error)
			case r.Error != nil:
				bad++
			case r.Sluice.Attempts+r.Sluice.Throttles > 1:
				again++
			}
			if r.Sluice.Attempts+r.Sluice.Throttles > 6 {
				t.Errorf("%s was tried %d times", id, r.Sluice.Attempts)
			}
		}
		if bad == 0 || again == 0 || rep.Done+rep.Report.Failed != 300 || sent.count(liveCall) != 0 {
			t.Errorf("%d refused, %d tried again, %d live calls: %+v", bad, again, sent.count(liveCall), rep.Report)
		}
		for id, b := range f.ways(t) {
			if b == "" {
				t.Errorf("%s is of no batch", id)
			}
		}
		f.tidy(t)
	})
}

func TestTriesByBatchesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFiles(t, chats(5))
		cfg, sent := f.viaConfig(t, sim.Config{})
		cfg.Check = func(id string, _ provider.Endpoint, body []byte) error {
			if id == "3" {
				return errors.New("not what was asked for")
			}
			return nil
		}
		cfg.Budget.Attempts, cfg.Feedback = 3, true
		var bodies []string
		cfg.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/files") {
				b, _ := io.ReadAll(r.Body)
				bodies = append(bodies, string(b))
				r.Body = io.NopCloser(strings.NewReader(string(b)))
			}
			return sent.RoundTrip(r)
		})
		rep, err := run(t, cfg)
		if err != nil || rep.Done != 4 || rep.Kinds[sluice.InvalidOutput] != 1 {
			t.Fatalf("%+v, %v", rep.Report, err)
		}
		r := f.results(t)["3"]
		if r.Sluice.Attempts != 3 || r.Sluice.OutputTokens != 3*64 || *r.Sluice.CostUSD <= 0 || sent.count(batchMade) != 3 {
			t.Errorf("%+v, cost %v, %d batches", r.Sluice, *r.Sluice.CostUSD, sent.count(batchMade))
		}
		for i, want := range []int{0, 1, 1} {
			if n := strings.Count(bodies[i], "Your answer was not accepted: not what was asked for"); n != want {
				t.Errorf("part %d: %d corrections", i+1, n)
			}
		}
	})
}

// some is neither none nor all.
const some = -1

func TestAutoKeepsToADeadline(t *testing.T) {
	for _, c := range []struct {
		name     string
		latency  time.Duration // of a batch
		deadline time.Duration
		live     time.Duration // of all calls, as foreseen
		lives    int           // calls that are live
	}{
		{"batches come in time", time.Hour, 3 * time.Hour, 10 * time.Minute, 0},
		{"batches do not", 95 * time.Minute, 90 * time.Minute, 10 * time.Minute, some}, // and take 9.5 to be called off
		{"there is no time for batches", time.Hour, 30 * time.Minute, 10 * time.Minute, 100},
		{"live calls cannot do all", time.Hour, 2 * time.Hour, 3 * time.Hour, 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFiles(t, chats(100))
				cfg, sent := f.viaConfig(t, sim.Config{Latency: time.Millisecond, Batches: sim.Batches{Latency: c.latency}})
				cfg.Budget.Deadline, cfg.Batches.Poll = time.Now().Add(c.deadline), time.Minute
				cfg.Batches.LiveTime = func(requests, tokens int) time.Duration {
					if tokens <= 0 {
						t.Errorf("%d requests have %d tokens", requests, tokens)
					}
					return c.live * time.Duration(requests) / 100
				}
				var log strings.Builder
				cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
				began := time.Now()
				rep, err := run(t, cfg)
				if err != nil || rep.Done != 100 {
					t.Fatalf("%+v, %v", rep.Report, err)
				}
				n := sent.count(liveCall)
				if as := n == c.lives || c.lives == some && n > 0 && n < 100; !as || time.Since(began) > c.deadline {
					t.Errorf("%d live calls, after %v:\n%s", n, time.Since(began), log.String())
				}
				if !strings.Contains(log.String(), " live") {
					t.Error("nothing says why")
				}
			})
		})
	}
}

// TestAutoEndsWithItsBudget has every other batch expire, so that live calls wait for room in the budget when the next batch
// finds that none will come.
func TestAutoEndsWithItsBudget(t *testing.T) {
	for _, tokens := range suite.Size([]int{4500}, []int{4200, 4500, 5000, 6000}) {
		synctest.Test(t, func(t *testing.T) {
			f := newFiles(t, chats(200))
			cfg, _ := f.viaConfig(t, sim.Config{Seed: 5, Latency: time.Millisecond, OutputTokens: 40, Batches: sim.Batches{Fail: 0.2, ExpireEvery: 2, Latency: time.Hour}})
			cfg.Provider.Batches.Requests, cfg.Budget.Tokens = 10, tokens
			byDeadline(&cfg, 80*time.Minute)
			b, err := batch.Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Hour)
			defer cancel()
			rep, err := b.Run(ctx)
			if spent, ok := errors.AsType[*batch.BudgetError](err); !ok || spent.What != batch.LimitedTokens || rep.Left() == 0 {
				t.Errorf("%d tokens: %+v, %v", tokens, rep.Report, err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			cfg.Budget.Tokens, cfg.Budget.Deadline = 0, time.Time{}
			if rep, err := run(t, cfg); err != nil || rep.Left() != 0 {
				t.Errorf("%d tokens: then %+v, %v", tokens, rep.Report, err)
			}
			f.tidy(t)
		})
	}
}

// TestPartsThatAProviderCountsHigherAreHalved has a provider count the answers, too, which are most of it here.
func TestPartsThatAProviderCountsHigherAreHalved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lines = 40
		var text strings.Builder
		for i := range lines {
			text.WriteString(strings.Replace(chat(i+1), `"model"`, `"max_tokens":40,"model"`, 1) + "\n")
		}
		f := newFiles(t, text.String())
		cfg, _ := f.viaConfig(t, sim.Config{Batches: sim.Batches{EnqueuedTokens: 600, Latency: time.Minute}})
		cfg.Provider.Batches.Requests = 20 // 900 tokens, or 100 without the answers
		b, err := batch.Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 24*time.Hour)
		defer cancel()
		if rep, err := b.Run(ctx); err != nil || rep.Done != lines {
			t.Errorf("%+v, %v", rep.Report, err)
		}
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
		f.tidy(t)
	})
}
