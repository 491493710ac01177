package find

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
)

// SweepResult is what a sweep found, in the form in which it is written to a file.
type SweepResult struct {
	Recommended int           `json:"recommended_workers"` // the most workers whose run passed; 0: none did
	MaxTested   int           `json:"max_tested"`          // the most that any run had
	Error       string        `json:"error,omitempty"`     // why nothing is recommended, or why the sweep ended early
	Runs        []SweepRun    `json:"runs"`
	Model       string        `json:"model"`
	Provider    string        `json:"provider"`
	Timestamp   time.Time     `json:"timestamp"` // of the end, in UTC
	Settings    SweepSettings `json:"settings"`

	Spent Spent `json:"-"`
}

// SweepRun is a number of prompts sent by a number of workers.
type SweepRun struct {
	Workers     int         `json:"workers"`
	Prompts     int         `json:"prompts"`
	Success     int         `json:"success"`
	RateLimited int         `json:"rate_limited"`
	Status      SweepStatus `json:"status"`
	DurationMS  int64       `json:"duration_ms"`
	Usage       SweepUsage  `json:"usage"`
}

// SweepStatus is what a run says of its number of workers.
type SweepStatus string

// What a run may say.
const (
	SweepPassed      SweepStatus = "passed"       // no prompt was rate limited, and at least one was answered
	SweepRateLimited SweepStatus = "rate_limited" // at least one was
	SweepFailed      SweepStatus = "failed"       // none was either: that is no pass
	SweepStopped     SweepStatus = "stopped"      // not all prompts were sent, none of those rate limited: it says nothing
)

// SweepUsage is what the calls of a run were billed, tries that failed included.
type SweepUsage struct {
	Input  int `json:"input_tokens"`
	Output int `json:"output_tokens"`
}

// SweepSettings are those parts of a Config that shape a sweep.
type SweepSettings struct {
	MaxWorkers      int    `json:"max_workers"`
	MinOutputTokens int    `json:"min_output_tokens"`
	PromptFile      string `json:"prompt_file"` // BuiltIn; "" for a prompt that came from no file
}

// BuiltIn stands in place of a file's name where the prompt is the one that find brings.
const BuiltIn = "built-in"

// Sweep tries 3, 6, 12 workers and on by half, until a run of theirs is rate limited or Config.MaxWorkers pass; then it
// goes back by a fifth at a time until a run passes, but never below one that passed before. Each run makes real calls,
// two a worker and at least six. It recommends the most workers that passed: that they made two calls each without a
// refusal is all that is known of them, since such a run is too short to meet limits per minute.
//
// It always returns what is known so far, also beside an error: [ErrTokenBudget], [ErrMaxCost], [ErrNoAnswer] when a run
// had no success and was not rate limited either, a *FieldError before any call, a *provider.Error when the provider will
// not answer at all, or ctx's cause.
func Sweep(ctx context.Context, cfg Config) (*SweepResult, error) {
	cfg, err := cfg.withDefaults()
	s := newSweep(cfg)
	if err == nil {
		err = s.search(ctx)
	}
	if err != nil {
		s.result.Error = err.Error()
	}
	s.result.Timestamp = time.Now().UTC().Truncate(time.Millisecond)
	return s.result, err
}

// sweep is a search under way. One goroutine has it.
type sweep struct {
	cfg    Config
	p      *prober
	shape  *shape
	result *SweepResult
	high   int       // the answer is not above
	until  time.Time // providers asked for a wait until then
}

func newSweep(cfg Config) *sweep {
	settings := SweepSettings{MaxWorkers: cfg.MaxWorkers, MinOutputTokens: cfg.MinOutputTokens, PromptFile: cfg.PromptFile}
	if settings.PromptFile == "" && cfg.Prompt == essay {
		settings.PromptFile = BuiltIn
	}
	return &sweep{
		cfg:   cfg,
		shape: &shape{name: "real", real: true, prompt: cfg.Prompt, bound: cfg.MinOutputTokens},
		high:  cfg.MaxWorkers,
		result: &SweepResult{
			Runs: []SweepRun{}, Model: cfg.Target.Model, Provider: cfg.Provider.Name, Settings: settings,
		},
	}
}

// search fills in the result.
func (s *sweep) search(ctx context.Context) error {
	p, ctx := newProber(ctx, s.cfg)
	defer p.stop(nil)
	s.p = p
	defer func() { s.result.Spent = s.spent() }()
	hit, err := s.up(ctx)
	if hit == 0 || err != nil {
		return err
	}
	return s.back(ctx, hit)
}

// Steps of a sweep.
const (
	firstWorkers = 3
	leastPrompts = 6
)

// nextWorkers is the count that follows n on the way up.
func nextWorkers(n, most int) int {
	if n < 12 {
		return min(2*n, most)
	}
	return min(n*3/2, most)
}

// fewerWorkers is the count that follows n on the way back. It is less than n, but for 1.
func fewerWorkers(n int) int { return max(1, n*4/5) }

// prompts is how many a run of so many workers has.
func prompts(workers int) int { return max(leastPrompts, 2*workers) }

// sweepAtMost returns what a sweep may cost at most: calls that are made once, and the tokens that they may be billed for.
// Tries that fail come on top; they are rarely billed.
func sweepAtMost(cfg Config) (Spent, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Spent{}, err
	}
	s, up := Spent{}, 0
	for passed, n := 0, min(firstWorkers, cfg.MaxWorkers); ; passed, n = n, nextWorkers(n, cfg.MaxWorkers) {
		up += prompts(n)
		calls := up
		for back := n; back > 1 && fewerWorkers(back) > passed; {
			back = fewerWorkers(back)
			calls += prompts(back)
		}
		s.Calls = max(s.Calls, calls)
		if n == cfg.MaxWorkers {
			break
		}
	}
	in, out := newSweep(cfg).shape.reserve()
	s.Input, s.Output = s.Calls*in, s.Calls*out
	if cfg.PriceIn != nil && cfg.PriceOut != nil {
		cost := (&prober{cfg: cfg}).price(s.Input, s.Output)
		s.Cost = &cost
	}
	return s, nil
}

// up tries more and more workers. It returns the count that was rate limited, or 0 when none was.
func (s *sweep) up(ctx context.Context) (hit int, err error) {
	for n := min(firstWorkers, s.cfg.MaxWorkers); ; n = nextWorkers(n, s.cfg.MaxWorkers) {
		status, err := s.try(ctx, n)
		switch {
		case err != nil:
			return 0, err
		case status == SweepRateLimited:
			return n, nil
		case n == s.cfg.MaxWorkers:
			return 0, nil
		}
	}
}

// back tries fewer and fewer workers than those that were rate limited.
func (s *sweep) back(ctx context.Context, hit int) error {
	for hit > 1 {
		n := fewerWorkers(hit)
		if passed := s.result.Recommended; n <= passed {
			s.log("  %d workers passed before: that is the answer", passed)
			return nil
		}
		if err := s.rest(ctx); err != nil {
			return err
		}
		status, err := s.try(ctx, n)
		if err != nil || status == SweepPassed {
			return err
		}
		hit = n
	}
	s.result.Error = "rate limited even at 1 worker"
	return nil
}

// rest waits as long as refusals asked for: a run before that would meet the same refusals again.
func (s *sweep) rest(ctx context.Context) error {
	wait := time.Until(s.until)
	switch {
	case wait <= 0:
		return nil
	case wait > longestWait:
		s.log("  the provider asks for a wait of %v; waiting %v, no longer", wait.Round(time.Second), longestWait)
		wait = longestWait
	default:
		s.log("  waiting %v, as the provider asks", wait.Round(time.Millisecond))
	}
	return sleep(ctx, wait)
}

// try makes a run and records it. It fails when there is no point in another one.
func (s *sweep) try(ctx context.Context, workers int) (SweepStatus, error) {
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	r := &sweepRun{sweep: s, SweepRun: SweepRun{Workers: workers, Prompts: prompts(workers)}}
	if err := s.affordable(workers, r.Prompts); err != nil {
		return "", err
	}
	s.log("Testing %d workers with %d prompts...", workers, r.Prompts)
	s.progress(r, true)
	began, before := time.Now(), s.spent()
	err := r.do(ctx, len(s.result.Runs) == 0)
	after := s.spent()
	r.Usage = SweepUsage{Input: after.Input - before.Input, Output: after.Output - before.Output}
	r.DurationMS = time.Since(began).Milliseconds()
	r.Status = r.verdict()
	s.result.Runs = append(s.result.Runs, r.SweepRun)
	s.result.MaxTested = max(s.result.MaxTested, workers)
	switch r.Status {
	case SweepPassed:
		s.result.Recommended = max(s.result.Recommended, workers)
	case SweepRateLimited:
		s.high = workers - 1
	}
	r.log()
	switch {
	case err != nil:
		return r.Status, err
	case r.Status == SweepFailed:
		return r.Status, fmt.Errorf("%w in the run with %d workers: %w", ErrNoAnswer, workers, r.failure)
	}
	return r.Status, r.window
}

// affordable fails when too little of the budget is left for a run: one that is cut off costs money and says nothing.
// Calls that are open count with all that they may use, those before them with what others used.
func (s *sweep) affordable(workers, prompts int) error {
	in, out := s.shape.reserve()
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	usualIn, usualOut := in, out
	if spent := s.p.spent; spent.Accepted > 0 {
		usualIn, usualOut = spent.Input/spent.Accepted, spent.Output/spent.Accepted
	}
	in, out = workers*in+(prompts-workers)*usualIn, workers*out+(prompts-workers)*usualOut
	if err := s.p.affordLocked(in, out); err != nil {
		return fmt.Errorf("%w: too little is left for a run with %d workers, which may use %d tokens", err, workers, in+out)
	}
	return nil
}

func (s *sweep) spent() Spent {
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	return s.p.spent
}

func (s *sweep) log(format string, args ...any) {
	if s.cfg.Log != nil {
		s.cfg.Log(fmt.Sprintf(format, args...))
	}
}

func (s *sweep) progress(r *sweepRun, always bool) {
	doing := fmt.Sprintf("%d workers, %d of %d calls", r.Workers, r.finished(), r.Prompts)
	s.p.enter(PhaseSweep, doing, s.result.Recommended, s.high, always)
}

// sweepRun is a run under way.
type sweepRun struct {
	SweepRun
	sweep   *sweep
	failed  int
	failure error // of the last that failed
	window  error // an allowance that is used up for longer than a search waits
}

// sweepCall is what became of one prompt.
type sweepCall struct {
	reply
	err error
}

// do sends the prompts. The very first one goes alone, so that a wrong key or model costs one call.
func (r *sweepRun) do(ctx context.Context, first bool) error {
	n := r.Prompts
	if first {
		n--
		c, err := r.sweep.p.call(ctx, r.sweep.shape)
		if r.add(sweepCall{c, err}); err != nil {
			return err
		}
		switch c.outcome.Kind {
		case sluice.BadRequest, sluice.ContextLength, sluice.ContentFilter: // all the others are the same
			return c.outcome.Err
		}
	}
	var failure error
	for c := range r.send(ctx, n) {
		r.add(c)
		if failure == nil {
			failure = c.err
		}
	}
	return failure
}

// send has the workers make n calls. It ends, by closing the channel, when all are over or the search is.
func (r *sweepRun) send(ctx context.Context, n int) <-chan sweepCall {
	calls := make(chan sweepCall, n) // has room for all: workers never wait for who counts
	var taken atomic.Int64
	var workers sync.WaitGroup
	for range r.Workers {
		workers.Go(func() {
			for int(taken.Add(1)) <= n {
				c, err := r.sweep.p.call(ctx, r.sweep.shape)
				calls <- sweepCall{c, err}
				if err != nil {
					return
				}
			}
		})
	}
	go func() {
		workers.Wait()
		close(calls)
	}()
	return calls
}

// add counts a call. One that the end of the search cut off is none.
func (r *sweepRun) add(c sweepCall) {
	switch over := !c.done.IsZero(); {
	case over && c.accepted():
		r.Success++
	case over && c.refused():
		r.RateLimited++
		r.refused(&c.reply)
	case c.err == nil:
		r.failed++
		r.failure = c.outcome.Err
	}
	r.sweep.progress(r, false)
}

// refused notes what a refusal asks for.
func (r *sweepRun) refused(c *reply) {
	until := c.done.Add(c.outcome.Wait)
	if c.outcome.Kind == sluice.UsageWindow {
		if c.outcome.Until.After(until) {
			until = c.outcome.Until
		}
		if wait := until.Sub(c.done); wait == 0 || wait > longestWait {
			r.window = c.outcome.Err
			return
		}
	}
	if until.After(r.sweep.until) {
		r.sweep.until = until
	}
}

func (r *sweepRun) finished() int { return r.Success + r.RateLimited + r.failed }

func (r *sweepRun) verdict() SweepStatus {
	switch {
	case r.RateLimited > 0:
		return SweepRateLimited
	case r.finished() < r.Prompts:
		return SweepStopped
	case r.Success == 0:
		return SweepFailed
	}
	return SweepPassed
}

func (r *sweepRun) log() {
	switch r.Status {
	case SweepRateLimited:
		r.sweep.log("  -> RATE LIMITED (%d) in %dms", r.RateLimited, r.DurationMS)
	case SweepStopped:
		r.sweep.log("  -> STOPPED (%d of %d done) in %dms", r.finished(), r.Prompts, r.DurationMS)
	case SweepFailed:
		r.sweep.log("  -> FAILED (%d) in %dms", r.failed, r.DurationMS)
	default:
		r.sweep.log("  -> PASSED in %dms", r.DurationMS)
	}
	if r.failed > 0 {
		r.sweep.log("  %d failed, the last with: %v", r.failed, r.failure)
	}
}
