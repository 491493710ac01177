package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// runOptions are the flags of the run command.
type runOptions struct {
	account   accountFlags
	budget    budgetFlags
	redo      redoFlag
	rows      rowFlags
	shared    sharedFlags
	checks    checkFlags
	watch     watchFlags
	cache     string
	workers   bool // --distribute
	batch     bool
	cancel    bool
	args      []string // of the command line
	input     string
	output    string
	attempts  int
	timeout   time.Duration
	system    string
	maxTokens int
	set       []string
	fsync     string
	ignore    bool // --ignore-pause

}

// newRun returns the command that runs the items of a file.
func newRun(s *term.Streams) *cobra.Command {
	o := runOptions{attempts: 6, fsync: fsyncInterval}
	cmd := &cobra.Command{
		Use:   "run IN.jsonl|- -o OUT.jsonl",
		Short: "Send the requests in a file, and record one result per request",
		Long: `Send the requests in a file within the provider's limits, and record one result per request.

An item is a request of an OpenAI, Anthropic or Gemini batch, a request body, {"prompt": ...} or a line of text. In a
table (.csv, .tsv), the column "prompt" contains the prompts, or --template makes a prompt from each row. The input can
be compressed (.gz). The output has the format of the OpenAI Batch API.

To resume an interrupted run, repeat the command. After the first interrupt, the run waits for open requests. A second
interrupt aborts open requests.`,
		Example: `  sluice run --provider sim examples/prompts.jsonl -o out.jsonl
  sluice run prompts.txt -o out.jsonl --model gpt-4o-mini
  sluice run prompts.jsonl -o out.jsonl --rpm 500 --tpm 30000
  sluice run prompts.jsonl -o out.jsonl --base-url http://127.0.0.1:8000/v1 --concurrency 32
  sluice run prompts.jsonl -o out.jsonl --redo failed
  sluice run questions.csv -o out.jsonl --model gpt-4o-mini --template prompt.tmpl --max-items 20
  sluice run prompts.jsonl -o out.jsonl --batch
  generate | sluice run - -o out.jsonl`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fault.New(fault.Usage, fmt.Errorf("expected one input, not %d", len(args)),
					"name a file of JSON lines, or - for standard input: sluice run IN.jsonl -o OUT.jsonl")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.input, o.args = args[0], s.Args
			return runBatch(cmd.Context(), s, &o)
		},
	}
	define(cmd, o.table()...)
	return cmd
}

// table returns the flags of run.
func (o *runOptions) table() []flagGroup {
	const elsewhere = "distribute"
	caller := func(flags ...flag) []flag { // flags of the hosts that send the requests
		for i := range flags {
			flags[i].without = elsewhere
		}
		return flags
	}
	target := o.account.target("Use this model for items that do not name a model")
	target[3].without = elsewhere
	return []flagGroup{
		{"Results", []flag{
			{name: "output,o", field: &o.output, metavar: "FILE", help: "Write results to this file, or resume from it (required)", common: true,
				sets: "Output", fix: "use another file with -o"},
			o.redo.flag("failed,changed,lost,none"),
			{name: "max-items", field: countFrom(&o.rows.limit, 1), metavar: "N", help: "Stop after the first N items of the input", common: true},
			{name: "cache", field: &o.cache, metavar: "DIR", help: "Send equal requests once; cache successful results in DIR",
				sets: "Cache", fix: "set --cache to a directory that you can write to"},
			fsyncFlag(&o.fsync),
		}},
		{"Requests", slices.Concat(target, caller(o.account.keyFile("env-file"), o.account.headerFlag()), []flag{
			{name: "system", field: &o.system, metavar: "TEXT|@FILE", help: "Set the system prompt of items that are prompts"},
			{name: "max-tokens", field: &o.maxTokens, metavar: "N", help: "Limit output tokens of items that are prompts"},
			{name: "set", field: &o.set, metavar: "NAME=JSON", help: "Set a field of items that are prompts; repeatable",
				sets: "Set", fix: `write --set temperature=0.2 or --set 'user="me"'`},
			{name: "template", field: &o.rows.template, metavar: "FILE", help: "Make the prompt of each row from a template with {{.field}}",
				sets: "Template", fix: "correct the template, for example {{.question}} for the field question"},
			{name: "timeout", field: &o.timeout, metavar: "DURATION", help: "Limit an attempt's time (default: 10 × p99 latency, min 30s)"},
			attemptsFlag(&o.attempts),
		}, o.checks.flags())},
		{"Limits", slices.Concat([]flag{configFlag(&o.account.Sources)}, caller(o.account.limits.flags("learned")...), []flag{
			{name: "ignore-pause", field: &o.ignore, help: "Ignore limits and pauses learned by earlier runs"},
			o.shared.flag(),
			{name: "distribute", field: &o.workers, help: "Let workers at --redis send the requests", without: "dry-run batch"},
		})},
		{"Spending", slices.Concat(o.budget.flags(), []flag{
			{name: "max-total-tokens", field: countFrom(&o.budget.tokens, 1), help: "Stop before the run uses more than N tokens"},
			o.budget.price.flag(),
			{name: "batch", field: &o.batch, help: "Use the Batch API (half price, results within a day)", common: true},
			{name: "cancel", field: &o.cancel, help: "Cancel pending batches at the Batch API", without: "distribute"},
			{name: "dry-run", field: &o.rows.dryRun, help: "Print items, cost and time without sending requests", common: true},
		})},
		{"Watching", o.watch.flags()},
	}
}

// runBatch is the run command.
func runBatch(ctx context.Context, s *term.Streams, o *runOptions) (err error) {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	if o.rows.dryRun {
		return o.dry(s, cfg)
	}
	r := newBatchRun(s, o)
	recorded, err := r.record()
	if err != nil {
		return err
	}
	defer recorded() // after the accounts, which may still emit events
	watch, err := o.watch.open(ctx, s)
	if err != nil {
		return err
	}
	defer func() { r.s.Warn(watch.close()) }()
	r.observers = append(r.observers, watch.observers()...)
	shared, err := o.shared.open(ctx, s, "run", o.watch.verbose)
	if err != nil {
		return err
	}
	defer func() { r.s.Warn(shared.Close()) }()
	if err := r.openAccounts(shared); err != nil {
		return err
	}
	watch.of(r.accounts)
	defer func() { r.s.Warn(r.accounts.Close()) }() // what was learned cannot be kept, perhaps: the results are
	r.complete(&cfg)
	if err := r.distribute(&cfg); err != nil {
		return err
	}
	if r.batch, err = batch.Open(cfg); err != nil {
		return explain(err, o, r.accounts)
	}
	defer func() { err = cmp.Or(err, r.batch.Close()) }()
	r.pending = runinfo.NewParts(r.batch.Parts()).Pending
	watch.follow(r.batch.Progress)
	if err := r.collect(ctx, shared); err != nil {
		return err
	}
	defer func() { r.s.Warn(r.collector.Close(ctx, r.batch.Progress().Left() == 0)) }()
	r.noteSettings()
	if o.input != "-" {
		noteFields(r.s, r.batch.PromptFields())
	}
	return r.run(ctx)
}

// config is what the flags say of the batch.
func (o *runOptions) config() (batch.Config, error) {
	var cfg batch.Config
	err := o.check()
	if err != nil {
		return cfg, err
	}
	cfg = batch.Config{
		Input: o.input, Output: o.output, Timeout: o.timeout, Model: o.account.Model,
		MaxTokens: o.maxTokens, RetryFailed: o.redo.has("failed"), Changed: o.redo.changed(),
		Cache: o.cache,
	}
	if o.usesBatches() {
		cfg.Batches = &batch.Batches{Cancel: o.cancel, Resubmit: o.redo.has("lost")}
	}
	cfg.Budget = o.budget.budget(time.Now())
	cfg.Budget.Tokens, cfg.Budget.Attempts = o.budget.tokens, o.attempts
	if cfg.System, err = o.systemText(); err != nil {
		return cfg, err
	}
	if cfg.Set, err = o.settings(); err != nil {
		return cfg, err
	}
	return cfg, cmp.Or(o.rows.fill(&cfg), o.checks.fill(&cfg), cfg.Sync.UnmarshalText([]byte(o.fsync)))
}

// batchRun is one run of a batch.
type batchRun struct {
	s         *term.Streams
	o         *runOptions
	accounts  *account.Accounts
	upstreams runinfo.UpstreamCounts
	shared    *account.Shared // nil: limits are not shared
	batch     *batch.Batch
	pending   int // parts that earlier runs left
	pauses    *work.Pauses
	collector *cluster.Remote // nil: calls are made here

	observers observers // of all that happens; complete before the first call

	abandoned int // calls that were open at the second interrupt

	failures   runinfo.Failures
	rejections runinfo.Rejections

	mu        sync.Mutex
	lastErr   map[string]string // of the last call that failed, by lane
	reached   bool              // something was answered, or broke off: the provider is there
	strangers map[string]bool   // models that were warned of
}

func newBatchRun(s *term.Streams, o *runOptions) *batchRun {
	r := &batchRun{
		s: s, o: o, pauses: &work.Pauses{IgnoreEarlier: o.ignore},
		lastErr: make(map[string]string), strangers: make(map[string]bool),
	}
	r.observers = observers{r.pauses, sluice.ObserverFunc(r.warn)}
	return r
}

// openAccounts makes ready where calls go.
func (r *batchRun) openAccounts(shared *account.Shared) (err error) {
	o := r.o
	o.account.Rate, o.account.Excluded = o.budget.price.rate, r.leftOut
	o.account.Scheduler = sluice.Config{Attempts: o.attempts, Observer: &r.observers, IgnorePauses: o.ignore}
	if r.accounts, err = o.account.open(r.s); err != nil {
		return err
	}
	r.shared = shared
	r.accounts.Share(shared)
	if o.workers {
		return nil // workers have upstreams of their own
	}
	if err = r.accounts.OpenUpstreams(); err == nil {
		err = checkBatches(r.accounts, o)
	}
	if err != nil {
		return errors.Join(err, r.accounts.Close())
	}
	return nil
}

// complete adds to what the flags say of the batch what the run has made ready.
func (r *batchRun) complete(cfg *batch.Config) {
	r.accounts.Fill(cfg)
	cfg.Stdin, cfg.Logger, cfg.Pauses = r.s.In, r.s.Logger(r.o.watch.verbose), r.pauses
	cfg.Observer, cfg.OnResult = &r.observers, r.result
	if cfg.Batches != nil {
		live := &forecast.Live{Models: func() map[string]int { return r.batch.Models() }, Place: r.accounts.Place, MaxTokens: r.o.maxTokens}
		cfg.Batches.LiveTime = live.Time
	}
}

// run runs the batch, shows its progress, and says what it came to.
func (r *batchRun) run(ctx context.Context) error {
	ctx, abandon := context.WithCancel(ctx)
	defer abandon()
	p := startProgress(r.s, r.o.watch.progress, r.status)
	defer p.stop()
	listener := signals.Listen(signals.Config{Reread: rereading(r.s, r.accounts.Settings, r.accounts.Reread), Drain: func(os.Signal) {
		r.batch.Drain()
		p.drain()
	}, Abandon: func(os.Signal) {
		st := r.status()
		r.abandoned = st.InFlight
		abandon()
	}})
	defer listener.Stop()
	rep, err := r.batch.Run(ctx)
	listener.Stop()
	p.stop()
	if r.o.input == "-" { // before the run nobody knows what will come
		noteFields(r.s, r.batch.PromptFields())
	}
	return r.conclude(rep, p.meter.Outages(), err)
}

// result takes in what came of an item.
func (r *batchRun) result(res *work.Result) {
	r.upstreams.Observe(res)
	r.failures.Observe(res)
}

// conclude prints the summary of a run that returned err, and returns what the program ends with.
func (r *batchRun) conclude(rep batch.Report, outages map[string]time.Duration, err error) error {
	sum := runinfo.Summarize(rep, r.accounts.Snapshot())
	sum.AddOutages(outages)
	sum.Input, sum.Output, sum.Events = r.o.input, r.o.output, r.o.watch.events
	if r.o.usesBatches() {
		sum.Batch = runinfo.NewBatches(&rep.Batches)
	}
	r.mu.Lock()
	if ups := r.accounts.Upstreams(); ups != nil {
		sum.Upstreams = r.upstreams.Summarize(ups, r.lastErr)
	}
	together := sum.SharedLimit(&r.rejections)
	r.mu.Unlock()
	sum.First, sum.AllRuns = r.failures.ByKind(), runinfo.AllRuns(r.o.output)
	err = r.verdict(sum, rep.Retryable(), err)
	if jsonErr := printEnding(r.s, &r.o.watch, sum, &sum.Ending, func() { printSummary(r.s, sum) }); jsonErr != nil {
		return jsonErr
	}
	if b := together; b != nil && len(sum.Upstreams) == 0 && r.o.shared.url == "" {
		r.s.Errorf("hint: set --%[1]s %[2]d if all models of the account share one limit: models were rejected below half of their own %[1]s limits\n",
			b.Dimension, b.Limit)
	}
	return err
}

// verdict says how the run ended, in sum and as an error. mendable says that another try may mend a failure.
func (r *batchRun) verdict(sum *runinfo.Summary, mendable bool, err error) error {
	switch {
	case err == nil && r.o.cancel && sum.Left > 0:
		sum.Outcome, sum.Hint = "called_off", r.o.calledOff(r.pending, sum.Left)
		return nil
	case err == nil && sum.Failed == 0:
		sum.Outcome = "done"
		if r.o.cancel {
			sum.Hint = r.o.calledOff(r.pending, 0)
		}
		return nil
	case err == nil:
		sum.Outcome = "items_failed"
		if mendable {
			sum.Hint = fmt.Sprintf("retry the failed items: %s", r.o.withoutCancel().command("--redo", "failed"))
		}
		return fault.Exit(fault.ExitItems)
	}
	end := explain(err, r.o, r.accounts)
	explainPending(end, r.batch.Parts(), r.o)
	sum.Outcome, sum.Error, sum.Hint = end.Outcome(), end.Error(), end.Hint
	if r.abandoned > 0 {
		format := "%w, with %d requests in flight: they may be billed"
		if r.collector != nil {
			format = "%w, with %d requests at workers: they continue, and the same command records their results"
		}
		end.Err = fmt.Errorf(format, end.Err, r.abandoned)
		sum.Error = end.Error()
	}
	return end
}

// status returns the state of the run, for the progress.
func (r *batchRun) status() runinfo.Status {
	p := r.batch.Progress()
	st := runinfo.New(p, r.accounts.Snapshot())
	st.Rationed, st.Upstreams = r.batch.Rationed(), r.accounts.Upstreams() != nil
	if r.shared != nil && r.shared.Away() {
		st.WaitForRedis(r.shared.String())
	}
	st.Distribute(r.collector.Status(), p.Throttles)
	if r.o.usesBatches() {
		st.Parts = runinfo.NewParts(r.batch.Parts())
	}
	if r.o.input == "-" {
		st.Total = 0 // more items may come
	}
	return st
}
