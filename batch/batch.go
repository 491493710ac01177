// Package batch sends the requests of a file, one JSON line each, through sluice Schedulers. It writes one line per result to a
// file that is also the checkpoint: the same batch resumes from it.
//
// Open reads the input once. It rejects invalid lines, with their numbers, before any request is sent. Batch.Run sends the
// requests.
package batch

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Changed says what happens to lines whose custom_id is recorded for another request.
type Changed = rows.Changed

// What happens to them.
const (
	ChangedRefused = rows.ChangedRefused // Open fails with a *ChangedError
	ChangedRedo    = rows.ChangedRedo    // they run again; the first new result drops the old ones
	ChangedKeep    = rows.ChangedKeep    // the recorded results count
)

// Config shapes a Batch. Input, Output and Scheduler are what it needs.
type Config struct {
	Input  string    // path; "-" is Stdin. A .csv or .tsv is a table; gzip is unpacked
	Stdin  io.Reader // for Input "-". Its last Read may outlive a run that is stopped
	Output string    // path of the results

	// Template makes the prompt of each row, in place of one that it has. It has the syntax of text/template. The row's members
	// are its fields; a line of plain text is the field line. TemplateName names it in errors.
	Template     string
	TemplateName string // default "template"

	// Provider is the provider of all requests. Without a Name, it is recognised from the model of each line. The provider of an unknown
	// model is openai-compatible with a BaseURL; without one, the line is refused.
	Provider provider.Provider

	// Registry is where providers are looked up. Nil: provider.Published.
	Registry *provider.Registry

	// BaseURL is where the provider's API is, as its official SDK takes it. "" is the provider's own.
	BaseURL string

	// Key returns the key for a provider; its error ends Open. Nil sends none.
	Key func(provider.Provider) (string, error)

	// Scheduler returns the Scheduler of the account at a provider, once each. A line's lane is its model. The caller
	// closes it after the run.
	Scheduler func(provider.Provider) (*sluice.Scheduler, error)

	// Upstreams are where the calls go instead, each by the way that they choose: then Provider, BaseURL, Key, Scheduler and
	// Price are not looked at. A prompt is completed for the first of them that serves its model. A result's Data is the
	// *provider.Upstream that it is of, which its line names.
	Upstreams *provider.Upstreams

	// Remote makes the calls in place of all these: then Key and Scheduler are not looked at, and nothing is sent from here.
	// Upstreams must be nil. BaseURL only says whose answers a Cache has.
	Remote Remote

	// Batches sends the requests through Batch APIs. Nil sends them live.
	Batches *Batches

	// Price returns what a model costs at a provider; nil is unknown. It must be safe for concurrent use. A nil Price knows none.
	// With prices, each result and the Report state the cost of requests.
	Price func(p provider.Provider, model string) *provider.Price

	// Transport sends the requests. Default: provider.NewBase(4096).
	Transport http.RoundTripper

	// Handler makes the requests in place of the Transport. It cannot be combined with Remote and Batches.
	Handler Handler

	ExtraHeader http.Header   // on every request; wins over all others
	Timeout     time.Duration // without a byte of a stream: default 2 minutes. Of another attempt as a whole: default 10 times the 99th percentile, see provider.Deadlines

	// Model is for lines that name none. It also makes lines of plain text prompts.
	Model string

	// System, MaxTokens and Set complete bare prompts and plain text, where the line does not say otherwise. Set holds
	// members of the body as JSON; dots in a name lead into objects, as in generationConfig.temperature.
	System    string
	MaxTokens int
	Set       map[string]json.RawMessage

	// Check refuses an answer, which counts as a failed attempt of kind InvalidOutput: see Rules. Nil accepts all. It must
	// be safe for concurrent use.
	Check func(id string, e provider.Endpoint, body []byte) error

	// Feedback tells a model whose answer Check refused what is wrong with it: the next attempt's conversation goes on with
	// the answer and the error.
	Feedback bool

	RetryFailed bool    // the lines of failed results run again; the first new result drops those
	Changed     Changed // what happens to lines whose request changed
	Limit       int     // only the first so many lines with a request; 0 is all

	Budget Budget // stops the run when it is spent

	// Cache is a directory of responses, which is created if it is missing. Equal requests to the same provider at the same
	// address are sent once: requests that wait at the same time share one result, and later requests, also of other runs, get
	// the successful response from the directory. Requests are equal even if their responses may differ, as with a
	// temperature. "" sends every request. Several processes may share a directory.
	Cache string

	Sync    SyncMode
	Workers int // maximum items of a model that are handled at once. Default 16,384; the Scheduler sets the pace

	// OnResult receives each result once it is recorded. It must be quick and safe for concurrent use, and not keep the pointer.
	OnResult func(*Result)

	Observer sluice.Observer // receives the start, the end and the results of the run; its Schedulers have their own
	Pauses   *work.Pauses    // counts the Scheduler's pauses for the state file; nil: none
	Logger   *slog.Logger    // nil discards
}

// What a run uses and returns.
type (
	Result   = work.Result   // of an item
	SyncMode = work.SyncMode // when lines of the output are on the disk

	LockedError  = work.LockedError  // another process writes the output
	JournalError = work.JournalError // the output is damaged, or no output of Sluice
	StoppedError = work.StoppedError // a run stopped before its end
)

// Sync modes.
const (
	SyncInterval = work.SyncInterval // all lines of 100 ms together, in the background
	SyncEach     = work.SyncEach     // each before its item counts as done
)

// Batch is an input and its output, checked and locked. Close it. Drain, Stop and Progress are safe for concurrent use.
type Batch struct {
	cfg     Config
	log     *slog.Logger
	journal *work.Journal
	runner  *work.Runner
	input   *input
	sorted  bool   // the output of a file was in its order when it was opened
	terms   *Terms // of all items
	guard   *budget.Guard
	handler handler
	live    *live
	back    backend
}

// Report is what a run came to.
type Report struct {
	work.Report

	AlreadyKinds map[sluice.Kind]int // why, as Kinds says of this run; 255 is a kind that another version recorded

	Budgets []Used // of the Budget, what it bounds

	Batches BatchReport // what went through Batch APIs; zero of a run whose calls are live

	CacheHits   int // items of this run without a request, because an equal request was sent
	CacheMisses int // items of this run with a request
}

// Retryable reports whether a retry can succeed for one of the failed items, of this run or an earlier one.
func (r Report) Retryable() bool {
	return work.Retryable(r.Kinds)+work.Retryable(r.AlreadyKinds) > 0
}

// Open checks cfg, locks the output, reads the whole input, and finds out what is left to do. It sends nothing, and of
// the output it changes only a torn last line. It fails
// with a *FieldError, a *work.LockedError, *InputErrors, a *ChangedError, an *OtherInputError, a *PendingError
// or a *work.JournalError.
func Open(cfg Config) (*Batch, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	b := &Batch{cfg: cfg, log: cfg.Logger}
	b.terms = &Terms{Timeout: cfg.Timeout, Feedback: cfg.Feedback, check: cfg.Check}
	b.live = newLive(&b.cfg)
	b.guard = budget.New(budget.Config{Budget: cfg.Budget, Estimate: b.live.estimate, Used: used, Stop: b.Stop})
	b.live.guard, b.live.opened = b.guard, b.honour
	b.back = newBackend(b)
	in, err := openInput(&b.cfg)
	if err != nil {
		return nil, err
	}
	b.input = in
	if err = cmp.Or(in.differsFrom(cfg.Output), checkPlain(cfg.Output)); err == nil {
		b.journal, err = work.OpenJournal(cfg.Output, work.JournalConfig{
			Sync: cfg.Sync, Whole: wholeResult, Prefix: resultPrefix, Synced: b.back.synced, Read: Work, Logger: cfg.Logger,
		})
	}
	if err != nil {
		in.close()
		return nil, fault.FileOf("Output", err)
	}
	if err := b.prepare(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// prepare reads the input and the output, and readies the run.
func (b *Batch) prepare() error {
	in := b.input
	b.cfg.Pauses.Recall(b.journal.Earlier())
	if err := in.scan(); err != nil {
		return err
	}
	pending, err := b.cfg.earlierParts()
	if err != nil {
		return err
	}
	if err := b.back.open(pending); err != nil {
		return err
	}
	if err := b.resume(); err != nil {
		return err
	}
	if b.cfg.Cache != "" {
		if b.handler.cache, err = openCache(b.cfg.Cache, b.log); err != nil {
			return &FieldError{Field: "Cache", Err: err}
		}
		b.handler.cache.own = b.cfg.Handler != nil
	}
	for _, p := range in.providers {
		if _, err := b.back.route(p); err != nil {
			return err
		}
	}
	if options := b.cfg.promptOptions(); in.bare == 0 && in.file != nil && len(options) > 0 {
		b.log.Warn("options for prompts have no effect, because no item of the input has a prompt", "options", strings.Join(options, ", "))
	}
	return b.openRunner()
}

func (b *Batch) openRunner() (err error) {
	b.handler.own = b.cfg.Handler
	b.handler.calls = work.NewCalls(work.CallsConfig{Route: b.back.send, Attempt: b.back.attempt, Ration: b.guard.Ration()})
	cfg := work.Config{
		Handler:  &b.handler,
		Calls:    b.handler.calls,
		Feed:     b.back.feed,
		Reload:   b.reloader(),
		Earlier:  b.earlier,
		Journal:  b.journal,
		Encode:   appendResult,
		Accept:   b.live.accept,
		Observer: b.cfg.Observer,
		Name:     "run",
		Failed:   func() { b.guard.Finished(true) },
		OnResult: b.recorded,
		Conclude: b.conclude,
		Pauses:   b.cfg.Pauses,
		Logger:   b.log,
	}
	b.back.shape(&cfg)
	b.runner, err = work.New(cfg)
	b.live.runner = b.runner
	return err
}

// earlier returns the number of items in a file, and the numbers of items with a result of earlier runs.
func (b *Batch) earlier() (total, recorded, failed int) {
	if b.input.file != nil {
		total = int(b.input.total.Load())
	}
	failed, _ = b.input.failed.counts()
	return total, int(b.input.already.Load()), failed
}

// recorded is called with each result that is in the journal.
func (b *Batch) recorded(r *work.Result) {
	if b.cfg.OnResult != nil {
		b.cfg.OnResult(r)
	}
	if r.Kind == sluice.OK { // a failure was counted before
		b.guard.Finished(false)
	}
	b.back.recorded(r)
}

// warnOfChange warns if the input file was changed during the run.
func (b *Batch) warnOfChange() {
	if in := b.input; in.file != nil && in.file.Changed() {
		b.log.Warn("the input was changed during the run", "input", in.cfg.Input)
	}
}

// conclude ends a run that recorded all items.
func (b *Batch) conclude() error {
	if err := b.back.conclude(); err != nil {
		return err
	}
	b.sort()
	return nil
}

// PromptFields returns which fields of rows with a prompt are sent and which are kept: of a file all, of standard input those so
// far. It must not be called while Run goes on.
func (b *Batch) PromptFields() PromptFields { return b.input.parser.fields }

// Models returns how many requests of a file there are for each model. Of standard input it knows none.
func (b *Batch) Models() map[string]int { return maps.Clone(b.input.models) }

// Run processes the remaining items. It returns a Report with every error: a *StoppedError, an *InputError for a bad line of
// standard input, an *UnreachableError, an error of the output, or the cause of ctx; through a Batch API also a *LostError or a
// *RefusedError. Batches that are pending when it returns stay so, and the next run continues with them.
func (b *Batch) Run(ctx context.Context) (Report, error) {
	defer b.guard.Watch()()
	rep, err := b.runner.Run(ctx)
	called := errors.Is(err, work.ErrCalledOff)
	if b.back.close(); called {
		err = nil
	}
	if stop, ok := errors.AsType[*work.StoppedError](err); ok && stop.Kind == sluice.Network && rep.Done+rep.Failed == 0 {
		if at := b.live.silent(); at != nil {
			err = at.unreachable(stop.Err)
		}
	}
	if gone, ok := errors.AsType[*UnreachableError](err); ok {
		err = gone
		if gone.Recorded = rep.Done + rep.Failed; gone.Recorded == 0 {
			b.journal.Withdraw() // whoever looks for a state finds that of a run that began
		}
	}
	if left := rep.Left(); err == nil && left > 0 && !called {
		err = fmt.Errorf("batch: %d items have neither a result nor an error because of a bug in Sluice: run the same command again to retry them", left)
	}
	return b.report(rep), err
}

func (b *Batch) report(rep work.Report) Report {
	hits, misses := b.handler.cache.counts()
	_, kinds := b.input.failed.counts()
	return Report{
		Report: rep, AlreadyKinds: kinds, Budgets: b.guard.Uses(), Batches: b.back.report(), CacheHits: hits, CacheMisses: misses,
	}
}

// Drain stops intake and lets open calls finish. It returns at once.
func (b *Batch) Drain() { b.runner.Drain() }

// Stop is Drain for a reason, such as a budget that is spent: Run returns a *StoppedError that unwraps to it.
func (b *Batch) Stop(cause error) { b.runner.Stop(cause) }

// Progress says how far the run is.
func (b *Batch) Progress() work.Report { return b.runner.Report() }

// Rationed is how many calls wait, without a permit, for room in the Budget: they are neither in flight nor in a queue of a
// Scheduler.
func (b *Batch) Rationed() int { return b.guard.Status().Waiting }

// Close unlocks the output. An output that Open created and that got no result is removed. It is safe to call twice.
func (b *Batch) Close() error {
	b.back.close()
	b.input.close()
	return b.journal.Close()
}
