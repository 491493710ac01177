package find

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/wake"
	"github.com/sluice-llm/sluice/limits"
)

// SweepResult is the result of a sweep. Its JSON is the document that sluice find writes.
type SweepResult struct {
	Recommended int           `json:"recommended_workers"` // Workers that stay within all limits.
	MaxTested   int           `json:"max_tested"`          // Maximum tested workers.
	Error       string        `json:"error,omitempty"`     // Reason for an early stop.
	Runs        []SweepRun    `json:"runs"`                // Tested numbers of workers.
	Model       string        `json:"model"`               // Model.
	Provider    string        `json:"provider"`            // Provider.
	Timestamp   time.Time     `json:"timestamp"`           // End of the search.
	Settings    SweepSettings `json:"settings"`            // Settings of the search.

	Spent Spent         `json:"-"`
	Took  time.Duration `json:"-"`
}

// MarshalJSON writes the document: the workers are also a limit, as --config reads it.
func (r *SweepResult) MarshalJSON() ([]byte, error) {
	found := map[limits.Dimension]Finding{limits.Concurrency: {Value: float64(r.Recommended), Margin: 1, Source: limits.SourceMeasured, At: r.Timestamp}}
	return json.Marshal(sweepDocument{(*sweepFields)(r), settings(r.Provider, r.Model, found)})
}

// sweepFields is a SweepResult without its method MarshalJSON.
type sweepFields SweepResult

// sweepDocument is the JSON document of a SweepResult.
type sweepDocument struct {
	*sweepFields
	Limits map[string]any `json:"limits,omitempty"` // Limits for `--config`.
}

// Outcome returns the result of a sweep that err ended; nil is a complete sweep.
func (r *SweepResult) Outcome(err error) Outcome {
	o := Outcome{Document: r, Spent: r.Spent, Workers: r.Recommended, Line: r.Line(err != nil)}
	if r.Recommended > 0 {
		o.Knows, o.Learned = true, true
		o.Notes = []string{"each worker sent only two requests, too few to reach a limit per minute; other clients of the account share its limits"}
	}
	return o
}

// SweepRun is a number of prompts sent by a number of workers.
type SweepRun struct {
	Workers     int         `json:"workers"`      // Workers.
	Prompts     int         `json:"prompts"`      // Requests.
	Success     int         `json:"success"`      // Successful requests.
	RateLimited int         `json:"rate_limited"` // Rate-limited requests.
	Status      SweepStatus `json:"status"`       // `passed`, `rate_limited`, `failed` or `stopped`.
	DurationMS  int64       `json:"duration_ms"`  // Duration of the test.
	Usage       SweepUsage  `json:"usage"`        // Tokens of all requests.
}

// SweepStatus is the verdict of a run on its number of workers.
type SweepStatus string

// Verdicts of a run.
const (
	SweepPassed      SweepStatus = "passed"       // no prompt was rate-limited, and at least one was answered
	SweepRateLimited SweepStatus = "rate_limited" // at least one was
	SweepFailed      SweepStatus = "failed"       // none was either: that is no pass
	SweepStopped     SweepStatus = "stopped"      // not all prompts were sent, none of those rate-limited: it says nothing
)

// SweepUsage is the usage of a run, failed tries included.
type SweepUsage struct {
	Input  int `json:"input_tokens"`  // Input tokens.
	Output int `json:"output_tokens"` // Output tokens.
}

// SweepSettings are the parts of a Config that shape a sweep, as those of [Settings].
type SweepSettings struct {
	MaxWorkers      int    `json:"max_workers"`       // Maximum workers.
	MinOutputTokens int    `json:"min_output_tokens"` // Output tokens of a real request.
	PromptFile      string `json:"prompt_file"`       // Prompt file, or `built-in`.
}

// Sweep tries 3, 6, 12 workers and then half as many more each time, until a run is rate-limited or Config.MaxWorkers pass;
// then it goes back by a fifth at a time until a run passes, but never below one that passed before. Each run makes real
// calls, two a worker and at least six. It recommends the most workers that passed. They made only two calls each: such a run is
// too short to reach limits per minute.
//
// It always returns a result, also beside an error: [ErrTokenBudget], [ErrMaxCost], [ErrNoAnswer] if a run had no success and
// was not rate-limited either, a *fault.FieldError before any request, a *provider.Error if the provider responds to none, or ctx's
// cause.
func Sweep(ctx context.Context, cfg Config) (*SweepResult, error) {
	began := time.Now()
	cfg, err := cfg.withDefaults()
	of := cfg.subject(ModeSweep)
	r := &SweepResult{
		Runs: []SweepRun{}, Model: of.Model, Provider: of.Provider,
		Settings: SweepSettings{of.Settings.MaxWorkers, of.Settings.MinOutputTokens, of.Settings.PromptFile},
	}
	if err == nil {
		p, ctx := newProber(ctx, cfg, &measurements{})
		s := &sweep{cfg: cfg, p: p, shape: newReal(&cfg), result: r, high: cfg.MaxWorkers}
		defer p.stop(nil)
		err = s.search(ctx)
		r.Spent = p.spent()
	}
	if err != nil {
		r.Error = err.Error()
	}
	r.Timestamp, r.Took = time.Now().UTC().Truncate(time.Millisecond), time.Since(began)
	return r, err
}

// sweep is a sweep under way. One goroutine has it.
type sweep struct {
	cfg    Config
	p      *prober
	shape  shape
	result *SweepResult
	high   int       // the answer is not above
	until  time.Time // providers asked for a wait until then
}

// Steps of a sweep.
const (
	firstWorkers = 3
	leastPrompts = 6
)

// nextWorkers returns the count that follows n on the way up.
func nextWorkers(n, most int) int {
	switch {
	case n == 0:
		n = firstWorkers
	case n < 12:
		n *= 2
	default:
		n = n * 3 / 2
	}
	return min(n, most)
}

// fewerWorkers returns the count that follows n on the way back. It is less than n, but for 1.
func fewerWorkers(n int) int { return max(1, n*4/5) }

// prompts returns the number of prompts in a run of so many workers.
func prompts(workers int) int { return max(leastPrompts, 2*workers) }

// search tries more and more workers, and then fewer and fewer than were rate-limited.
func (s *sweep) search(ctx context.Context) error {
	n := 0
	for status := SweepPassed; status != SweepRateLimited; {
		if n == s.cfg.MaxWorkers {
			return nil
		}
		n = nextWorkers(n, s.cfg.MaxWorkers)
		var err error
		if status, err = s.try(ctx, n); err != nil {
			return err
		}
	}
	for n > 1 {
		n = fewerWorkers(n)
		if passed := s.result.Recommended; n <= passed {
			s.p.log("  %d workers passed before, and are the result", passed)
			return nil
		}
		if err := s.rest(ctx); err != nil {
			return err
		}
		if status, err := s.try(ctx, n); err != nil || status == SweepPassed {
			return err
		}
	}
	s.result.Error = "rate limited even at 1 worker"
	return nil
}

// rest waits as long as rejections asked for: an earlier run would get the same rejections again.
func (s *sweep) rest(ctx context.Context) error {
	wait := time.Until(s.until)
	switch {
	case wait <= 0:
		return nil
	case wait > longestWait:
		s.p.log("  the provider asks for a wait of %v; waiting the maximum of %v", wait.Round(time.Second), longestWait)
		wait = longestWait
	default:
		s.p.log("  waiting %v, as the provider asks", wait.Round(time.Millisecond))
	}
	return wake.In(ctx, wait, nil)
}

// try makes a run and records it. It fails when another one is of no use.
func (s *sweep) try(ctx context.Context, workers int) (SweepStatus, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	r := &sweepRun{sweep: s, SweepRun: SweepRun{Workers: workers, Prompts: prompts(workers)}}
	if err := r.affordable(); err != nil {
		return "", err
	}
	s.p.log("Testing %d workers with %d prompts...", workers, r.Prompts)
	r.progress(true)
	began, before := time.Now(), s.p.spent()
	err := r.do(ctx)
	after := s.p.spent()
	r.Usage = SweepUsage{Input: after.Input - before.Input, Output: after.Output - before.Output}
	r.DurationMS = time.Since(began).Milliseconds()
	verdict := r.judge()
	s.result.Runs = append(s.result.Runs, r.SweepRun)
	s.result.MaxTested = max(s.result.MaxTested, workers)
	return r.Status, cmp.Or(err, verdict)
}

// sweepRun is a run under way.
type sweepRun struct {
	SweepRun
	*sweep
	replies []reply // to the requests that are over
}

// affordable fails when the budget does not suffice for a run: one that is cut off costs money and says nothing. Open requests
// count with all that they may use, earlier ones with the mean of those before.
func (r *sweepRun) affordable() error {
	in, out := r.shape.reserve()
	usualIn, usualOut := in, out
	if spent := r.p.spent(); spent.Accepted > 0 {
		usualIn, usualOut = spent.Input/spent.Accepted, spent.Output/spent.Accepted
	}
	earlier := r.Prompts - r.Workers
	in, out = r.Workers*in+earlier*usualIn, r.Workers*out+earlier*usualOut
	if err := r.p.fits(in, out); err != nil {
		return fmt.Errorf("%w: a run with %d workers may use up to %d tokens", err, r.Workers, in+out)
	}
	return nil
}

// do sends the prompts. The very first one goes alone, so that a wrong key or model costs one request.
func (r *sweepRun) do(ctx context.Context) (failure error) {
	n := r.Prompts
	if len(r.result.Runs) == 0 {
		n--
		c, err := r.p.call(ctx, &r.shape)
		if r.add(finished{c, err}); err != nil {
			return err
		}
		switch c.outcome.Kind {
		case sluice.BadRequest, sluice.ContextLength, sluice.ContentFilter: // all the others are the same
			return c.outcome.Err
		}
	}
	for c := range r.p.work(ctx, &r.shape, crew{workers: r.Workers, calls: n}) {
		r.add(c)
		failure = cmp.Or(failure, c.err)
	}
	return failure
}

// add counts a request. One that the end of the search cut off does not count.
func (r *sweepRun) add(c finished) {
	if c.err == nil || c.accepted() || c.refused() {
		r.replies = append(r.replies, c.reply)
	}
	r.progress(false)
}

func (r *sweepRun) progress(always bool) {
	doing := fmt.Sprintf("%d workers, %d of %d requests", r.Workers, len(r.replies), r.Prompts)
	r.p.enter(PhaseSweep, doing, r.result.Recommended, r.high, always)
}

// judge gives the run its status. The error is why another run is of no use.
func (r *sweepRun) judge() (end error) {
	r.Success, r.RateLimited = count(r.replies, (*reply).accepted), count(r.replies, (*reply).refused)
	failed, failure := len(r.replies)-r.Success-r.RateLimited, error(nil)
	for i := range r.replies {
		switch c := &r.replies[i]; {
		case c.refused():
			end = cmp.Or(r.wait(c), end)
		case !c.accepted():
			failure = c.outcome.Err
		}
	}
	switch {
	case r.RateLimited > 0:
		r.Status, r.high = SweepRateLimited, r.Workers-1
		r.p.log("  -> RATE LIMITED (%d) in %dms", r.RateLimited, r.DurationMS)
	case len(r.replies) < r.Prompts:
		r.Status = SweepStopped
		r.p.log("  -> STOPPED (%d of %d done) in %dms", len(r.replies), r.Prompts, r.DurationMS)
	case r.Success == 0:
		r.Status, end = SweepFailed, fmt.Errorf("%w in the run with %d workers: %w", ErrNoAnswer, r.Workers, failure)
		r.p.log("  -> FAILED (%d) in %dms", failed, r.DurationMS)
	default:
		r.Status, r.result.Recommended = SweepPassed, max(r.result.Recommended, r.Workers)
		r.p.log("  -> PASSED in %dms", r.DurationMS)
	}
	if failed > 0 {
		r.p.log("  %d failed, the last with: %v", failed, failure)
	}
	return end
}

// wait takes in the wait that a rejection asks for. It fails if a usage window is used up for longer than a search waits.
func (r *sweepRun) wait(c *reply) error {
	until := c.done.Add(c.outcome.Wait)
	if c.outcome.Kind == sluice.UsageWindow {
		if c.outcome.Until.After(until) {
			until = c.outcome.Until
		}
		if wait := until.Sub(c.done); wait == 0 || wait > longestWait {
			return c.outcome.Err
		}
	}
	if until.After(r.until) {
		r.until = until
	}
	return nil
}
