package find_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/provider"
	"github.com/sluice-llm/sluice/sim"
)

// imitated is a search of an imitation.
func imitated(t *testing.T, c sim.Config) (find.Config, *sim.Server) {
	t.Helper()
	server, err := sim.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return over(server.Transport()), server
}

// over is a search whose calls go through base.
func over(base http.RoundTripper) find.Config {
	p, _ := provider.Lookup("openai")
	return find.Config{
		Provider: p, Base: base, Seed: 1,
		Target: provider.Target{BaseURL: "http://imitation/v1", Key: "sk-0123456789abcdef", Model: "m", Endpoint: provider.ChatCompletions},
	}
}

// base is a http.RoundTripper.
type base func(*http.Request) (*http.Response, error)

func (b base) RoundTrip(r *http.Request) (*http.Response, error) { return b(r) }

// answer is an answer of a provider; headers are "Name: value".
func answer(status int, body string, headers ...string) *http.Response {
	h := make(http.Header)
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		h.Set(name, value)
	}
	return &http.Response{StatusCode: status, Header: h, Body: io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body))}
}

const (
	essay   = `{"choices":[{"message":{"content":"On abaci."},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":500}}`
	limited = `{"error":{"message":"Rate limit reached","type":"rate_limit_error","code":"rate_limit_exceeded"}}`
)

// reset is how a broken connection looks.
func reset() error { return &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET} }

// lines collects what a search logs.
func lines(cfg *find.Config) *[]string {
	var l []string
	cfg.Log = func(line string) { l = append(l, line) }
	return &l
}

// workers are the counts that were tested, in order.
func workers(r *find.SweepResult) []int {
	var counts []int
	for _, run := range r.Runs {
		counts = append(counts, run.Workers)
	}
	return counts
}

// want compares the outcome of a sweep.
func want(t *testing.T, r *find.SweepResult, recommended int, tested ...int) {
	t.Helper()
	if got := workers(r); !slices.Equal(got, tested) {
		t.Errorf("tested %v, want %v", got, tested)
	}
	if r.Recommended != recommended {
		t.Errorf("recommended %d, want %d", r.Recommended, recommended)
	}
	if len(tested) > 0 && r.MaxTested != slices.Max(tested) {
		t.Errorf("max tested %d of %v", r.MaxTested, tested)
	}
}

// sweep is a sweep that must succeed.
func sweep(t *testing.T, cfg find.Config) *find.SweepResult {
	t.Helper()
	r, err := find.Sweep(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSweepOfAHighLimitRecommends12OrMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := imitated(t, sim.Config{Concurrency: 50})
		// 60 are refused, 48 pass.
		want(t, sweep(t, cfg), 48, 3, 6, 12, 18, 27, 40, 60, 48)
	})
}

func TestSweepOfALowLimitRecommendsLessThan12(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := imitated(t, sim.Config{Concurrency: 9})
		r := sweep(t, cfg)
		want(t, r, 9, 3, 6, 12, 9)
		if r.Error != "" {
			t.Errorf("error %q", r.Error)
		}
	})
}

func TestSweepThatMeetsNoLimitRecommendsMaxWorkers(t *testing.T) {
	for most, tested := range map[int][]int{
		1: {1}, 2: {2}, 3: {3}, 4: {3, 4}, 5: {3, 5}, 6: {3, 6}, 7: {3, 6, 7}, 12: {3, 6, 12}, 13: {3, 6, 12, 13},
		20: {3, 6, 12, 18, 20}, 0: {3, 6, 12, 18, 27, 40, 60, 90, 100}, // 0: the default
	} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, server := imitated(t, sim.Config{})
				cfg.MaxWorkers = most
				r := sweep(t, cfg)
				want(t, r, slices.Max(tested), tested...)
				for _, run := range r.Runs {
					if run.Prompts != max(6, 2*run.Workers) || run.Success != run.Prompts || run.Status != find.SweepPassed {
						t.Errorf("%+v", run)
					}
				}
				if peak := server.Stats().Peak; peak != slices.Max(tested) {
					t.Errorf("at most %d calls were open at once", peak)
				}
			})
		})
	}
}

func TestSweepUsesACustomPrompt(t *testing.T) {
	var mu sync.Mutex
	var bodies []string
	cfg := over(base(func(r *http.Request) (*http.Response, error) {
		b, err := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, string(b))
		return answer(200, essay), err
	}))
	cfg.MaxWorkers, cfg.Prompt, cfg.PromptFile, cfg.MinOutputTokens = 3, "Tell me of the sea.", "dir/sea.txt", 77
	r := sweep(t, cfg)
	seen := make(map[string]bool)
	for _, body := range bodies {
		if !strings.Contains(body, cfg.Prompt) || !strings.Contains(body, ":77") || seen[body] {
			t.Errorf("%s: want the prompt and the bound of its answer, and no body twice", body)
		}
		seen[body] = true
	}
	if len(bodies) != 6 || r.Settings.PromptFile != "dir/sea.txt" || r.Settings.MinOutputTokens != 77 {
		t.Errorf("%d calls, settings %+v", len(bodies), r.Settings)
	}
}

func TestSweepRefusedAt27With18PassedRecommends18To21(t *testing.T) {
	for limit, recommended := range map[int]int{18: 18, 19: 18, 20: 18, 21: 21, 22: 21, 26: 21} {
		synctest.Test(t, func(t *testing.T) {
			cfg, _ := imitated(t, sim.Config{Concurrency: limit})
			want(t, sweep(t, cfg), recommended, 3, 6, 12, 18, 27, 21)
		})
	}
}

func TestSweepRefusedAt3Tries2And1(t *testing.T) {
	for limit, tested := range map[int][]int{2: {3, 2}, 1: {3, 2, 1}} {
		synctest.Test(t, func(t *testing.T) {
			cfg, _ := imitated(t, sim.Config{Concurrency: limit})
			r := sweep(t, cfg)
			want(t, r, limit, tested...)
			if r.Runs[0].RateLimited == 0 || r.Runs[0].Status != find.SweepRateLimited || r.Error != "" {
				t.Errorf("%+v, error %q", r.Runs[0], r.Error)
			}
		})
	}
}

func TestSweepRefusedAt1Recommends0AndSaysWhy(t *testing.T) {
	for most, tested := range map[int][]int{1: {1}, 2: {2, 1}, 100: {3, 2, 1}} {
		synctest.Test(t, func(t *testing.T) {
			cfg, _ := imitated(t, sim.Config{Storms: []sim.Storm{{To: time.Hour, Silent: true}}})
			cfg.MaxWorkers = most
			r := sweep(t, cfg)
			want(t, r, 0, tested...)
			if r.Error != "rate limited even at 1 worker" {
				t.Errorf("error %q", r.Error)
			}
		})
	}
}

// The sweep that this one grew out of went from 27 to 21 and on to 16, which it tested and recommended, though 18 passed.
func TestSweepGoesNoLowerThanACountThatPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, server := imitated(t, sim.Config{Concurrency: 6})
		log := lines(&cfg)
		r := sweep(t, cfg)
		want(t, r, 6, 3, 6, 12, 9, 7) // and 5 would follow
		calls := 0
		for _, run := range r.Runs {
			calls += run.Prompts
		}
		if sent := server.Stats().Requests; sent != calls {
			t.Errorf("%d calls for %d prompts: the count that passed was tested again", sent, calls)
		}
		if last := (*log)[len(*log)-1]; !strings.Contains(last, "6 workers passed before") {
			t.Errorf("log ends with %q", last)
		}
	})
}

func TestSweepRetriesNetworkErrorsAndNeverGoesBackForThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, server := imitated(t, sim.Config{Seed: 3, Faults: sim.Faults{Reset: 0.2, ServerError: 0.1, Cut: 0.1, Overloaded: 0.1}})
		cfg.MaxWorkers = 40
		r := sweep(t, cfg)
		want(t, r, 40, 3, 6, 12, 18, 27, 40)
		success, prompts := 0, 0
		for _, run := range r.Runs {
			success, prompts = success+run.Success, prompts+run.Prompts
			if run.RateLimited != 0 || run.Status != find.SweepPassed {
				t.Errorf("%+v", run)
			}
		}
		stats := server.Stats()
		if success != stats.Answered || success == prompts || success < prompts*3/4 {
			t.Errorf("%d of %d succeeded, %d were answered: half of the tries fail, of three in a row an eighth",
				success, prompts, stats.Answered)
		}
	})
}

func TestSweepMakesOneBilledCallPerSuccess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, server := imitated(t, sim.Config{Concurrency: 20, OutputTokens: 600})
		r := sweep(t, cfg)
		var usage find.SweepUsage
		success := 0
		for _, run := range r.Runs {
			success += run.Success
			usage.Input, usage.Output = usage.Input+run.Usage.Input, usage.Output+run.Usage.Output
			if run.Usage.Output != 500*run.Success || run.Success+run.RateLimited != run.Prompts {
				t.Errorf("%+v: want 500 tokens out for each success", run)
			}
		}
		stats := server.Stats()
		if stats.Answered != success || len(stats.Paid) != success {
			t.Errorf("%d successes, %d calls billed, of %d prompts", success, stats.Answered, len(stats.Paid))
		}
		if usage.Input != stats.InputTokens || usage.Output != stats.OutputTokens {
			t.Errorf("usage %+v, the provider counts %d and %d", usage, stats.InputTokens, stats.OutputTokens)
		}
		if s := r.Spent; s.Requests != stats.Requests || s.Accepted != success || s.Input != usage.Input || s.Output != usage.Output {
			t.Errorf("spent %+v", s)
		}
	})
}

func TestSweepWithoutAModelFailsBeforeAnyCall(t *testing.T) {
	cfg := over(base(func(*http.Request) (*http.Response, error) {
		t.Error("a call was made")
		return nil, reset()
	}))
	cfg.Target.Model = ""
	r, err := find.Sweep(t.Context(), cfg)
	field, ok := errors.AsType[*fault.FieldError](err)
	if !ok || field.Field != "Target.Model" || r.Recommended != 0 || r.Error == "" {
		t.Errorf("%v, %+v", err, r)
	}
}

func TestSweepIsEndedByOneCallThatCanNeverSucceed(t *testing.T) {
	for name, c := range map[string]struct {
		model, key string
		kind       sluice.Kind
	}{
		"an unknown model": {"gpt-none", "sk-0123456789abcdef", sluice.BadRequest},
		"a wrong key":      {"m", "sk-another", sluice.Auth},
		"a missing key":    {"m", "", sluice.Auth},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cfg, server := imitated(t, sim.Config{Models: []string{"m"}, Key: "sk-0123456789abcdef"})
				cfg.Target.Model, cfg.Target.Key = c.model, c.key
				r, err := find.Sweep(t.Context(), cfg)
				e, ok := errors.AsType[*provider.Error](err)
				if !ok || e.Kind != c.kind || r.Error != err.Error() {
					t.Fatalf("%v, error %q", err, r.Error)
				}
				if stats := server.Stats(); stats.Requests+stats.Invalid != 1 {
					t.Errorf("%d calls", stats.Requests+stats.Invalid)
				}
				want(t, r, 0, 3)
			})
		})
	}
}

func TestSweepResultIsJSONWithAllFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := imitated(t, sim.Config{Concurrency: 2, OutputTokens: 600, RefusalLatency: time.Millisecond})
		cfg.MaxWorkers = 9
		b, err := json.Marshal(sweep(t, cfg))
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		runs := got["runs"].([]any)
		refused, passed := runs[0].(map[string]any), runs[1].(map[string]any)
		if n := refused["rate_limited"].(float64); n == 0 || n+refused["success"].(float64) != 6 || refused["status"] != "rate_limited" {
			t.Errorf("%v", refused)
		}
		usage := passed["usage"].(map[string]any)
		if usage["input_tokens"].(float64) == 0 {
			t.Errorf("%v", usage)
		}
		delete(usage, "input_tokens")
		delete(got, "runs")
		if diff := cmp.Diff(map[string]any{
			"workers": 2., "prompts": 6., "success": 6., "rate_limited": 0., "status": "passed", "duration_ms": 600.,
			"usage": map[string]any{"output_tokens": 3000.},
		}, passed); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[string]any{
			"recommended_workers": 2., "max_tested": 3., "model": "m", "provider": "openai",
			"timestamp": time.Now().UTC().Format("2006-01-02T15:04:05.999Z07:00"),
			"settings":  map[string]any{"max_workers": 9., "min_output_tokens": 500., "prompt_file": "built-in"},
			"limits": map[string]any{"provider": "openai", "model": "m", "concurrency": map[string]any{"value": 2., "source": "measured",
				"at": got["timestamp"]}},
		}, got); diff != "" {
			t.Error(diff)
		}
	})
}

func TestSweepResultWithoutRunsHasAnEmptyListAndItsError(t *testing.T) {
	cfg := over(base(nil))
	cfg.Target.Model = ""
	r, err := find.Sweep(t.Context(), cfg)
	b, marshalErr := json.Marshal(r)
	if marshalErr != nil || !strings.Contains(string(b), `"max_tested":0,"error":"`+err.Error()+`","runs":[],"model":""`) {
		t.Errorf("%s", b)
	}
}

func TestSweepLogsItsRunsInTheWordsThatScriptsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, _ := imitated(t, sim.Config{Concurrency: 2, RefusalLatency: 250 * time.Millisecond})
		log := lines(&cfg)
		sweep(t, cfg)
		// One call alone, then five by three workers: two find places, twice, and the third is still being refused.
		want := []string{
			"Testing 3 workers with 6 prompts...", "  -> RATE LIMITED (1) in 600ms",
			"Testing 2 workers with 6 prompts...", "  -> PASSED in 600ms",
		}
		if diff := cmp.Diff(want, *log); diff != "" {
			t.Error(diff)
		}
	})
}
