package cli

// What a search ends with is seen from outside only as far as an imitation leads to it: these tests are in the package.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// finding is a value that became known an hour ago.
func finding(value float64, source limits.Source, margin float64) find.Finding {
	return find.Finding{Value: value, Source: source, Margin: margin, At: foundAt.Add(-time.Hour)}
}

var foundAt = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// foundResult is what a search finds that is bound by requests.
func foundResult() *find.Result {
	return &find.Result{
		Workers: 11, Bound: find.BoundRequests,
		Binding: find.Binding{Dimension: limits.Requests, Cost: 1, Busy: 12.46, Margin: 0.05},
		Findings: find.Findings{
			Limits: map[limits.Dimension]find.Finding{
				limits.Requests: finding(598.7, limits.SourceMeasured, 0.03), limits.Concurrency: finding(64, limits.SourceAtLeast, 0),
			},
			Latency: find.Latency{Mean: 1250 * time.Millisecond, CV: 0.2, N: 36}, Input: 120, Output: 500, Charged: 620,
			Charge: limits.ChargeActual, ChargeFrom: limits.SourceHeader,
		},
		Soak:  find.Soak{Workers: 11, Requests: 33, AtMost: 3. / 33},
		Spent: find.Spent{Requests: 433, Accepted: 400, Rejected: 33, Input: 34_000, Output: 20_400},
		Took:  31 * time.Second, Low: 11, High: 12,
		Subject: find.Subject{
			Model: "gpt-4o", Provider: "openai", Mode: find.ModeAuto, BaseURL: "https://api.example.com/v1", Timestamp: foundAt,
			Settings: find.Settings{MaxWorkers: 100, TokenBudget: 1_000_000},
		},
	}
}

// only makes these the limits that were found.
func only(r *find.Result, slots find.Finding, others map[limits.Dimension]find.Finding) {
	r.Findings.Limits = map[limits.Dimension]find.Finding{limits.Concurrency: slots}
	maps.Copy(r.Findings.Limits, others)
}

// endedEarly makes the search end early, with a number that was safe or 0.
func endedEarly(r *find.Result, workers, low, high int) {
	r.Workers, r.Bound, r.Low, r.High, r.Error = workers, find.BoundStopped, low, high, "stopped"
	if workers == 0 {
		r.Soak = find.Soak{}
	}
}

func TestWhatWasFoundIsSaidInOneLine(t *testing.T) {
	const soak, spent = "; soak 33 requests, 0 rejected", "; 433 requests, 54k tokens, 31 s"
	cost := 0.1234
	for _, c := range []struct {
		name   string
		change func(*find.Result)
		want   string
	}{
		{"requests that were measured", func(r *find.Result) {},
			"11 workers: 598 requests/min (measured ±3 %) and 1.25 s per request keep 12.5 workers busy, less 5 % margin; at least 64 at once" + soak + spent},
		{"requests that headers tell", func(r *find.Result) {
			r.Findings.Limits[limits.Requests] = finding(600, limits.SourceHeader, 0)
			r.Findings.Latency.Mean, r.Workers, r.Binding.Busy, r.Binding.Margin = 200*time.Millisecond, 1, 2, 0
		}, "1 worker: 600 requests/min (stated by headers) and 200 ms per request keep 2 workers busy; at least 64 at once" + soak + spent},
		{"input tokens that a refusal tells", func(r *find.Result) {
			r.Bound, r.Binding = find.BoundTokens, find.Binding{Dimension: limits.InputTokens, Cost: 119.6, Busy: 5.2, Margin: 0.021}
			r.Findings.Limits[limits.InputTokens] = finding(30_000, limits.SourceRejection, 0)
			r.Workers = 5
		}, "5 workers: 30,000 input tokens/min (stated by rejections), 120 tokens and 1.25 s per request keep 5.2 workers busy, less 2 % margin; " +
			"at least 64 at once; 598 requests/min (measured ±3 %)" + soak + spent},
		{"tokens that are told", func(r *find.Result) {
			r.Bound, r.Binding = find.BoundTokens, find.Binding{Dimension: limits.Tokens, Cost: 620, Busy: 1.04, Margin: 0.004}
			only(r, r.Findings.Limits[limits.Concurrency], map[limits.Dimension]find.Finding{limits.Tokens: finding(30_000, limits.SourceConfigured, 0)})
			r.Workers = 1
		}, "1 worker: 30,000 tokens/min (configured), 620 tokens and 1.25 s per request keep 1.04 workers busy, less 0.4 % margin; at least 64 at once" + soak + spent},
		{"a cap that was measured", func(r *find.Result) {
			r.Bound, r.Workers, r.Binding = find.BoundConcurrency, 20, find.Binding{}
			only(r, finding(20, limits.SourceMeasured, 0), map[limits.Dimension]find.Finding{
				limits.Requests: finding(900.9, limits.SourceAtLeast, 0), limits.RequestsPerDay: finding(10_000, limits.SourceHeader, 0)})
		}, "20 workers: the provider accepts 20 at once and rejects more (measured); at least 900 requests/min; 10,000 requests/day (stated by headers)" + soak + spent},
		{"a cap that was told", func(r *find.Result) {
			r.Bound, r.Workers, r.Binding = find.BoundConcurrency, 8, find.Binding{}
			only(r, finding(8, limits.SourceConfigured, 0), nil)
		}, "8 workers: the provider accepts 8 at once and rejects more (configured)" + soak + spent},
		{"a queue", func(r *find.Result) {
			r.Bound, r.Findings.Queue, r.Workers, r.Binding = find.BoundQueue, true, 16, find.Binding{}
			only(r, finding(16, limits.SourceMeasured, 0), nil)
		}, "16 workers: the server handles 16 at once and queues the rest (measured)" + soak + spent},
		{"a queue, and a rate below it", func(r *find.Result) {
			r.Findings.Queue, r.Findings.Limits[limits.Concurrency] = true, finding(16, limits.SourceMeasured, 0)
		},
			"11 workers: 598 requests/min (measured ±3 %) and 1.25 s per request keep 12.5 workers busy, less 5 % margin; the server handles 16 at once (measured)" + soak + spent},
		{"a cap, and a rate below it", func(r *find.Result) { r.Findings.Limits[limits.Concurrency] = finding(80, limits.SourceMeasured, 0) },
			"11 workers: 598 requests/min (measured ±3 %) and 1.25 s per request keep 12.5 workers busy, less 5 % margin; at most 80 at once (measured)" + soak + spent},
		{"nothing below what was asked for", func(r *find.Result) {
			r.Bound, r.Workers, r.Binding = find.BoundWorkers, 100, find.Binding{}
			only(r, finding(100, limits.SourceAtLeast, 0), nil)
		}, "100 workers: no more workers than --max-workers 100 were tried; at least 100 at once" + soak + spent},
		{"what could be certified", func(r *find.Result) {
			r.Bound, r.Findings.Limits[limits.Requests] = find.BoundCertified, finding(598.7, limits.SourceAtLeast, 0)
			r.Binding.Margin = 0
		}, "11 workers: 598 requests/min (verified at least) and 1.25 s per request keep 12.5 workers busy; more workers could not be verified within --token-budget 1,000,000; " +
			"at least 64 at once" + soak + spent},
		{"a soak that was refused first", func(r *find.Result) {
			r.Bound, r.Workers, r.Binding = find.BoundSoak, 9, find.Binding{}
			delete(r.Findings.Limits, limits.Requests)
			r.Soak = find.Soak{Workers: 9, Requests: 27, Rejected: 1}
		}, "9 workers: real requests of more workers were rejected; at least 64 at once; soak 27 requests, 1 rejected" + spent},
		{"a bucket of one", func(r *find.Result) {
			r.BucketOfOne, r.Workers = true, 1
			delete(r.Findings.Limits, limits.Concurrency)
			r.Spent.Cost, r.Spent.Estimated = &cost, 4_000
		}, "1 worker: 598 requests/min (measured ±3 %) and 1.25 s per request keep 12.5 workers busy, less 5 % margin; two simultaneous requests are always " +
			"rejected: without pacing, no number of workers is safe, and only sluice run can use this limit" + soak + "; 433 requests, 54k tokens (4,000 of them estimated), $0.12, 31 s"},
		{"nothing passed", func(r *find.Result) {
			*r = find.Result{Bound: find.BoundNothing, Spent: find.Spent{Requests: 9, Rejected: 9}, Took: 120 * time.Second}
		}, "0 workers: even one request at a time is rejected; 9 requests, 0 tokens, 2 min 00 s"},
		{"stopped with an interval", func(r *find.Result) { endedEarly(r, 0, 4, 32) },
			"stopped early: the number of workers is between 4 and 32 workers; at least 64 at once; 598 requests/min (measured ±3 %)" + spent},
		{"stopped when it was no more than what was asked for", func(r *find.Result) { *r = find.Result{Subject: r.Subject}; endedEarly(r, 0, 0, 100) },
			"stopped early: the number of workers is unknown; 0 requests, 0 tokens, 0 ms"},
		{"stopped when it had to be proved", func(r *find.Result) {
			endedEarly(r, 0, 1, 1)
			delete(r.Findings.Limits, limits.Requests)
		},
			"stopped early: the number of workers is at most 1 worker; at least 64 at once" + spent},
		{"stopped in the soak", func(r *find.Result) {
			endedEarly(r, 0, 11, 12)
			r.Soak = find.Soak{Workers: 11, Requests: 8, Rejected: 1}
		},
			"stopped early: the number of workers is between 11 and 12 workers; at least 64 at once; 598 requests/min (measured ±3 %); soak 8 requests, 1 rejected" + spent},
		{"stopped after the soak", func(r *find.Result) { endedEarly(r, 11, 11, 12) },
			"stopped early: 11 workers were safe; at least 64 at once; 598 requests/min (measured ±3 %)" + soak + spent},
		{"stopped at once", func(r *find.Result) {
			*r = find.Result{Spent: find.Spent{Requests: 1}}
			endedEarly(r, 0, 0, 0)
		},
			"stopped early: the number of workers is unknown; 1 request, 0 tokens, 0 ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := foundResult()
			c.change(r)
			if diff := cmp.Diff(c.want, r.Line()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWhatWasFoundIsReadAsLimits(t *testing.T) {
	r := foundResult()
	r.Findings.Limits[limits.Tokens] = finding(90_000, limits.SourceHeader, 0)
	r.Findings.Limits[limits.InputTokens] = finding(0.5, limits.SourceMeasured, 0.1) // no whole one is left of it
	r.Findings.Limits[limits.OutputTokens] = finding(8_000, limits.SourceRejection, 0)
	r.Findings.Limits[limits.RequestsPerDay] = find.Finding{Source: find.SourceUnknown}
	r.Notes = []string{"[anchors & *references* {are} \"quoted\": here] \x1b \u2028 #"}
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file, err := config.Parse("limits.json", b)
	got := file.Limits
	if err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	at := foundAt.Add(-time.Hour)
	want := &config.Limits{
		Provider: "openai", Model: "gpt-4o",
		Each: limits.Each[*config.Limit]{
			RPM:         &config.Limit{Value: 598, Source: limits.SourceMeasured, Confidence: 0.97, At: at},
			TPM:         &config.Limit{Value: 90_000, Source: limits.SourceHeader, Confidence: 1, At: at},
			OTPM:        &config.Limit{Value: 8_000, Source: limits.SourceRejection, Confidence: 1, At: at},
			Concurrency: &config.Limit{Value: 64, Source: limits.SourceAtLeast, Confidence: 1, At: at},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// A run begins with all of it, but for what was merely used without a refusal.
	if told, start := got.Split(); told != (sluice.Limits{}) || start != (sluice.Limits{RPM: 598, TPM: 90_000, OTPM: 8_000}) {
		t.Errorf("told %+v, start %+v", told, start)
	}
	for _, field := range []string{
		`"recommended_workers": 11,`, `"bound": "requests",`, `"bucket_of_one": false,`, `"model": "gpt-4o",`, `"provider": "openai",`,
		`"base_url": "https://api.example.com/v1",`, `"mode": "auto",`, `"timestamp": "2026-11-21T12:00:00Z",`,
		`"queue": {
      "value": null,
      "source": "unknown"
    },`,
		`"rpm": {
      "value": 598.7,
      "source": "measured",
      "margin": 0.03,
      "confidence": 0.97,
      "at": "2026-11-21T11:00:00Z",
      "age_s": 3600
    },`,
		`"charge": {
      "value": "actual",
      "source": "header"
    },`,
		`"mean": 1250,`, `"cv": 0.2,`, `"n": 36,`, `"input_tokens": 120,`, `"output_tokens": 500`, `"charged_tokens": 620,`,
		`"soak": {
    "workers": 11,
    "requests": 33,
    "rejected": 0,
    "at_most": 0.09090909090909091
  },`,
		`"input_tokens": 34000,`, `"took_ms": 31000`, `"low": 11,`, `"high": 12,`,
	} {
		if !bytes.Contains(b, []byte(field)) {
			t.Errorf("no %s in\n%s", field, b)
		}
	}
}

// parsed is the part of a document that these tests look at.
type parsed struct {
	Error    string
	Mode     string
	BaseURL  string `json:"base_url"`
	Settings find.Settings
	Limits   *config.Limits
	Findings map[string]*struct {
		Value  any
		Source limits.Source
	}
}

func document(t *testing.T, b []byte) (d parsed) {
	t.Helper()
	if err := json.Unmarshal(b, &d); err != nil {
		t.Errorf("%v in\n%s", err, b)
	}
	return d
}

func TestAQueueIsNoCap(t *testing.T) {
	r := foundResult()
	r.Findings.Queue, r.Findings.Limits[limits.Concurrency] = true, finding(16, limits.SourceMeasured, 0)
	b, _ := json.Marshal(r)
	if d := document(t, b); d.Findings["queue"].Value != 16. || d.Findings["slots"].Value != nil || d.Limits.Concurrency.Value != 16 {
		t.Errorf("%s", b)
	}
}

func TestNothingFoundHasNoLimits(t *testing.T) {
	b, err := json.Marshal(&find.Result{})
	if err != nil {
		t.Fatal(err)
	}
	d := document(t, b)
	if f, err := config.Parse("x", b); f.Limits != nil || err != nil || d.Findings["latency_ms"] != nil || d.Findings["rpm"].Source != find.SourceUnknown {
		t.Errorf("%+v, %v in %s", f.Limits, err, b)
	}
}

func TestHowASearchEnds(t *testing.T) {
	refusal := func(kind sluice.Kind, status int) error {
		return &provider.Error{Provider: "openai-compatible", Status: status, Verdict: provider.Verdict{Kind: kind, Message: "so it is"}}
	}
	for _, c := range []struct {
		name    string
		change  func(*find.Result)
		err     error
		code    int
		stdout  string
		stderr  []string
		written bool // where nothing was before
		kept    bool // what was there before
	}{
		{"with an answer", func(r *find.Result) { r.Notes, r.Hint = []string{"a note"}, "do more" }, nil, fault.ExitDone, "11\n",
			[]string{"11 workers: 598", "\nnote: a note\n", "\nhint: do more\n", "the record of the search is in "}, true, false},
		{"with none that is safe", func(r *find.Result) { *r = find.Result{Bound: find.BoundNothing, Spent: find.Spent{Requests: 9}} }, nil,
			fault.ExitThreshold, "0\n", []string{"0 workers: even one"}, true, false},
		{"interrupted", func(r *find.Result) { endedEarly(r, 0, 4, 32) }, context.Canceled, fault.ExitInterrupted, "",
			[]string{"between 4 and 32 workers", "sluice: error: interrupted\n", "hint: run the same command again"}, true, false},
		{"interrupted when a number was safe", func(r *find.Result) { endedEarly(r, 11, 11, 12) }, context.Canceled, fault.ExitInterrupted, "11\n",
			[]string{"11 workers were safe"}, true, false},
		{"interrupted with nothing known", func(r *find.Result) { *r = find.Result{Spent: find.Spent{Requests: 1}} }, context.Canceled,
			fault.ExitInterrupted, "", []string{"the number of workers is unknown"}, true, true},
		{"interrupted with no more known than what passed", func(r *find.Result) {
			endedEarly(r, 0, 1, 12)
			delete(r.Findings.Limits, limits.Requests)
		}, context.Canceled,
			fault.ExitInterrupted, "", []string{"at least 64 at once"}, true, true},
		{"interrupted with no more known than what is told", func(r *find.Result) {
			endedEarly(r, 0, 1, 12)
			only(r, finding(64, limits.SourceAtLeast, 0), map[limits.Dimension]find.Finding{
				limits.Tokens: finding(9000, limits.SourceConfigured, 0)})
		}, context.Canceled, fault.ExitInterrupted, "", []string{"configured"}, true, true},
		{"interrupted after a limit was lowered", func(r *find.Result) { endedEarly(r, 6, 6, 6) }, context.Canceled, fault.ExitInterrupted, "6\n",
			[]string{"6 workers were safe"}, true, false},
		{"by half of what was left of the day", func(r *find.Result) { endedEarly(r, 0, 1, 12) }, find.ErrDay, fault.ExitFailed, "",
			[]string{"hint: run the same command again tomorrow"}, true, false},
		{"by the token budget", func(r *find.Result) { endedEarly(r, 0, 1, 12) }, fmt.Errorf("then: %w", find.ErrTokenBudget), fault.ExitCap, "",
			[]string{"stopped by --token-budget 1,000,000: then: the token budget is too small for another request", "hint: raise --token-budget"}, true, false},
		{"by the cost", func(r *find.Result) { endedEarly(r, 0, 1, 12) }, find.ErrMaxCost, fault.ExitCap, "", []string{"stopped by --max-cost $2.00"}, true, false},
		{"by a refused key", func(r *find.Result) { *r = find.Result{Spent: find.Spent{Requests: 1}} }, refusal(sluice.Auth, 401), fault.ExitFailed, "",
			[]string{"the key was rejected: openai-compatible: 401 auth: so it is", "hint: name the variable of the key"}, false, true},
		{"by a spent quota", func(r *find.Result) {}, refusal(sluice.QuotaExhausted, 429), fault.ExitFailed, "11\n",
			[]string{"the account's quota is spent", "hint: add credit"}, true, false},
		{"by an unknown model", func(r *find.Result) { *r = find.Result{Spent: find.Spent{Requests: 1}} },
			fmt.Errorf("%w: %w", find.ErrNoAnswer, refusal(sluice.BadRequest, 404)), fault.ExitFailed, "",
			[]string{"404", "hint: check --model and --base-url: openai-compatible has no such address, or no model m"}, false, true},
		{"by a request that is refused", func(r *find.Result) { *r = find.Result{Spent: find.Spent{Requests: 1}} }, refusal(sluice.BadRequest, 400),
			fault.ExitFailed, "", []string{"hint: check --model, --base-url, --header"}, false, true},
		{"by a prompt that is too long", func(r *find.Result) { *r = find.Result{Spent: find.Spent{Requests: 1}} }, refusal(sluice.ContextLength, 400),
			fault.ExitFailed, "", []string{"hint: use a shorter prompt with --prompt-file"}, false, true},
		{"by a provider that fails", func(r *find.Result) { *r = find.Result{Spent: find.Spent{Requests: 3}} }, refusal(sluice.ServerError, 500),
			fault.ExitFailed, "", []string{"hint: run the same command later"}, false, true},
		{"by a host that is not there", func(r *find.Result) { *r = find.Result{Spent: find.Spent{Requests: 3}} },
			fmt.Errorf("%w: %w", find.ErrNoAnswer, errors.New("connection refused")), fault.ExitFailed, "", []string{"hint: check the network and --base-url"}, false, true},
		{"before it began", func(r *find.Result) { *r = find.Result{} }, &fault.FieldError{Field: "Timeout", Err: errors.New("is odd")}, fault.ExitUsage, "",
			[]string{"sluice: error: --timeout: is odd\nhint: see find --help\n"}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			const before = `{"limits":{"rpm":5}}`
			for _, asJSON := range []bool{false, true} {
				file := filepath.Join(t.TempDir(), "new", "found.json")
				if asJSON { // the second time there is one
					if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(before), 0o600)); err != nil {
						t.Fatal(err)
					}
				}
				var stdout, stderr bytes.Buffer
				s := term.New(nil, strings.NewReader(""), &stdout, &stderr)
				cmd := newFindBy(s, func(_ context.Context, cfg find.Config) (*find.Result, error) {
					if b := cfg.Budget; b.MaxCost == nil || *b.MaxCost != 2 || b.Tokens != 1_000_000 || cfg.Target.Model != "m" {
						t.Errorf("%+v", cfg)
					}
					r := foundResult()
					of := r.Subject
					c.change(r)
					r.Subject = of
					return r, c.err
				})
				cmd.SilenceErrors, cmd.SilenceUsage = true, true
				args := []string{"--provider", "openai-compatible", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--output-file", file,
					"--price", "1/2", "--max-cost", "2", "--token-budget", "1000000"}
				if asJSON {
					args = append(args, "--json")
				}
				cmd.SetArgs(args)
				if code := report(s, cmd, cmd.ExecuteContext(t.Context())); code != c.code {
					t.Errorf("exit code %d, want %d", code, c.code)
				}
				for _, text := range c.stderr {
					if !strings.Contains(stderr.String(), text) {
						t.Errorf("no %q in\n%s", text, stderr.String())
					}
				}
				switch {
				case asJSON && c.code != fault.ExitUsage:
					checkDocument(t, stdout.Bytes(), c.err)
				case stdout.String() != c.stdout:
					t.Errorf("standard output is %q, want %q", stdout.String(), c.stdout)
				}
				b, err := os.ReadFile(file)
				switch written, kept := err == nil, string(b) == before; {
				case !asJSON && written != c.written, asJSON && kept != c.kept:
					t.Errorf("written: %v, want %v; kept: %v, want %v", written, c.written, kept, c.kept)
				case written && !kept:
					checkDocument(t, b, c.err)
				}
				if left, _ := filepath.Glob(file + ".*"); len(left) > 0 {
					t.Errorf("left behind: %v", left)
				}
				if info, err := os.Stat(file); asJSON && (err != nil || info.Mode().Perm() != 0o600) {
					t.Errorf("its mode is another: %v, %v", info, err)
				}
			}
		})
	}
}

// checkDocument looks at a document of a search that ended with err.
func checkDocument(t *testing.T, b []byte, err error) {
	t.Helper()
	if d := document(t, b); (d.Error != "") != (err != nil) || d.Mode != find.ModeAuto || d.Settings.MaxWorkers != 100 || d.BaseURL != "https://api.example.com/v1" {
		t.Errorf("%s", b)
	}
}

// The number would be lost: the file is replaced.
func TestFileThatIsPrintedToIsNotWritten(t *testing.T) {
	printed, err := os.Create(filepath.Join(t.TempDir(), "out.txt"))
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	var stderr bytes.Buffer
	s := term.New(nil, strings.NewReader(""), printed, &stderr)
	cmd := newFindBy(s, func(context.Context, find.Config) (*find.Result, error) { return foundResult(), nil })
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs([]string{"--provider", "openai-compatible", "--base-url", "http://127.0.0.1:9/v1", "--model", "m", "--output-file", printed.Name()})
	const want = "--output-file: standard output is redirected to "
	if code := report(s, cmd, cmd.ExecuteContext(t.Context())); code != fault.ExitUsage || !strings.Contains(stderr.String(), want) {
		t.Errorf("exit code %d, no %q in\n%s", code, want, stderr.String())
	}
}

func TestNoKeyIsWritten(t *testing.T) {
	const key = "any-key-of-a-test-that-is-long"
	t.Setenv("FIND_TEST_KEY", key)
	file := filepath.Join(t.TempDir(), "found.json")
	for _, mode := range [][]string{nil, {"--json"}, {"--verbose"}} {
		var stdout, stderr bytes.Buffer
		s := term.New(nil, strings.NewReader(""), &stdout, &stderr)
		cmd := newFindBy(s, func(_ context.Context, cfg find.Config) (*find.Result, error) {
			if cfg.Target.Key != key {
				t.Errorf("the key is %q", cfg.Target.Key)
			}
			if cfg.Log != nil {
				cfg.Log("said " + cfg.Target.Key)
			}
			r := foundResult()
			r.Notes, r.Hint = []string{"said " + cfg.Target.Key}, "say "+cfg.Target.Key
			return r, nil
		})
		cmd.SetArgs(append(mode, "--model", "gpt-4o-mini", "--key-env", "FIND_TEST_KEY", "--output-file", file))
		if err := cmd.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		written, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"standard output": stdout.String(), "standard error": stderr.String(), "the file": string(written)} {
			if strings.Contains(text, key) {
				t.Errorf("%v: the key stands in %s:\n%s", mode, name, text)
			}
		}
	}
}
