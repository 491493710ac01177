package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/work"
)

// runOptions are the flags of the run command.
type runOptions struct {
	account    accountFlags
	upstreams  upstreamFlags
	budget     budgetFlags
	reuse      reuseFlags
	rows       rowFlags
	shared     sharedFlags
	distribute distributeFlags
	via        viaFlags
	flags      *pflag.FlagSet
	args       []string // of the command line

	input       string
	output      string
	attempts    int
	timeout     time.Duration
	system      string
	maxTokens   int
	set         []string
	checks      checkFlags
	ignorePause bool
	retryFailed bool
	changed     string
	sync        string
	order       string
	progress    string
	asJSON      bool
	verbose     bool
	events      string
	report      runReportFlag
	watch       watchFlags
}

// newRun returns the command that runs the lines of a file.
func newRun(s *streams) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run IN.jsonl|- -o OUT.jsonl",
		Short: "Run the calls in a file of JSON lines, and record one result each",
		Long: `Run the calls in a file of JSON lines at the provider's rate limit, and record one result each.

A line is a request of an OpenAI, Anthropic or Gemini batch, a bare request body, {"prompt": ...} or, with --model, plain
text; of a table (.csv, .tsv) the column prompt is one, or what --template makes of a row. Files may be compressed
(.gz). The output has the form of OpenAI Batch. It is the checkpoint as well: the same command again does what is
left. The first interrupt lets open calls end, the second abandons them. With --via batch-api the lines are handed to the
provider's Batch API instead, for about half the price and within a day; the same command comes back for the answers.

The key is read from the environment. Limits are learned from the provider's answers; those told here are ceilings.`,
		Example: `  sluice run --provider sim examples/prompts.jsonl -o out.jsonl
  sluice run prompts.jsonl -o out.jsonl --rpm 500 --tpm 30000
  sluice run prompts.txt -o out.jsonl --model claude-sonnet-4-5 --max-tokens 500 --system @instructions.txt
  sluice run prompts.jsonl -o out.jsonl --tier tier1 --model gpt-4o
  sluice run prompts.jsonl -o out.jsonl --base-url http://127.0.0.1:8000/v1 --concurrent 32
  sluice run prompts.jsonl -o out.jsonl --retry-failed
  sluice run questions.csv.gz -o out.jsonl --model gpt-4o-mini --template prompt.tmpl --limit 20
  sluice run prompts.jsonl -o out.jsonl --dedupe --cache answers
  sluice run prompts.jsonl -o out.jsonl --via batch-api             through the provider's Batch API, for about half
  sluice run prompts.jsonl -o out.jsonl --via auto --deadline 6h    the same as far as the deadline allows, the rest live
  generate | sluice run - -o out.jsonl
  sluice run prompts.jsonl -o out.jsonl --redis rediss://sluice@10.0.0.5    one quota with others that say the same`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError(fmt.Errorf("one input is needed, not %d", len(args)),
					"give a file of JSON lines, or - for standard input: sluice run IN.jsonl -o OUT.jsonl")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			o.input, o.args, o.flags = args[0], s.args, cmd.Flags()
			return runBatch(cmd.Context(), s, &o)
		},
	}
	o.register(cmd.Flags())
	return cmd
}

func (o *runOptions) register(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.StringVarP(&o.output, "output", "o", "", "file that gets one result per line (required)")
	o.account.register(fs)
	o.upstreams.register(fs)
	o.rows.register(fs)
	o.reuse.register(fs)
	o.account.registerThrottles(fs, "item")
	fs.IntVar(&o.attempts, "attempts", 6, "tries per item, throttled ones aside")
	fs.DurationVar(&o.timeout, "timeout", 0, "time without a byte of a stream (default 2m), or for another try (default 10 times what 99 % of the answers take, at least 30s)")
	fs.StringVar(&o.system, "system", "", "system prompt of prompts and plain text, or @FILE")
	fs.IntVar(&o.maxTokens, "max-tokens", 0, "most output tokens of prompts and plain text (0: the provider's default)")
	fs.StringArrayVar(&o.set, "set", nil, "field to set in requests of prompts and plain text, as name=json; dots in the name lead into objects (repeatable)")
	o.checks.register(fs)
	fs.BoolVar(&o.ignorePause, "ignore-pause", false, "ignore learned limits and pauses of earlier runs")
	fs.BoolVar(&o.retryFailed, "retry-failed", false, "try the failed items of OUT again")
	fs.StringVar(&o.changed, "changed", "", "what to do with items whose request changed since: redo or keep (absent: refuse)")
	fs.StringVar(&o.sync, "sync", "interval", "force results to the disk: each, interval (100 ms) or none")
	fs.StringVar(&o.order, "order", "completion", "order of OUT's lines: completion, or input (then OUT is written at the end)")
	o.budget.register(fs)
	o.shared.register(fs)
	o.distribute.register(fs)
	o.via.register(fs)
	fs.StringVar(&o.progress, "progress", progressAuto, "auto, plain, json or none")
	fs.BoolVar(&o.asJSON, "json", false, "print the summary as one JSON document on standard output")
	fs.BoolVar(&o.verbose, "verbose", false, "say more on standard error")
	fs.StringVar(&o.events, "events", "", "append every event of the scheduler to FILE, as JSON lines")
	o.report.register(fs)
	o.watch.register(fs)
}

// runBatch is the run command.
func runBatch(ctx context.Context, s *streams, o *runOptions) (err error) {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	if text := o.via.idle(); text != "" {
		s.errorf("sluice: warning: %s\n", text)
	}
	if o.rows.dryRun {
		return o.dry(s, cfg)
	}
	r := newBatchRun(s, o)
	recorded, err := r.record()
	if err != nil {
		return err
	}
	defer func() { recorded(err) }() // after the accounts, which may still have something to tell
	watch, err := o.watch.open(ctx, s)
	if err != nil {
		return err
	}
	defer func() { r.s.note(watch.close()) }()
	r.observers = append(r.observers, watch.observers()...)
	shared, err := o.shared.open(ctx, s, "run", o.verbose)
	if err != nil {
		return err
	}
	defer func() { r.s.note(shared.Close()) }()
	if err := r.openAccounts(shared); err != nil {
		return err
	}
	watch.of(r.accounts)
	defer func() { r.s.note(r.accounts.Close()) }() // what was learned cannot be kept, perhaps: the results are
	r.complete(&cfg)
	if err := r.distribute(&cfg); err != nil {
		return err
	}
	if r.batch, err = batch.Open(cfg); err != nil {
		return explain(err, o, r.accounts)
	}
	defer func() { err = cmp.Or(err, r.batch.Close()) }()
	r.pending = sumParts(r.batch.Parts()).Pending
	watch.follow(r.batch.Progress)
	if err := r.collect(ctx, shared); err != nil {
		return err
	}
	defer func() { r.s.note(r.collector.Close(ctx, r.batch.Progress().Left() == 0)) }()
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
		Input: o.input, Output: o.output, BaseURL: o.account.baseURL, Timeout: o.timeout, Model: o.account.model,
		MaxTokens: o.maxTokens, RetryFailed: o.retryFailed,
	}
	if cfg.Budget, err = o.budget.budget(time.Now(), o.attempts); err != nil {
		return cfg, err
	}
	if cfg.System, err = o.systemText(); err != nil {
		return cfg, err
	}
	if cfg.Set, err = o.settings(); err != nil {
		return cfg, err
	}
	o.reuse.fill(&cfg)
	for _, fill := range []func(*batch.Config) error{o.rows.fill, o.checks.fill, o.via.fill} {
		if err := fill(&cfg); err != nil {
			return cfg, err
		}
	}
	return cfg, errors.Join(cfg.Changed.UnmarshalText([]byte(o.changed)), cfg.Sync.UnmarshalText([]byte(o.sync)),
		cfg.Order.UnmarshalText([]byte(o.order)))
}

// batchRun is one run of a batch.
type batchRun struct {
	s         *streams
	o         *runOptions
	accounts  *accounts
	batch     *batch.Batch
	pending   int // parts that earlier runs left
	pauses    *work.Pauses
	collector *cluster.Remote // nil: calls are made here

	observers observers // of all that happens; complete before the first call

	abandoned int // calls that were open at the second interrupt

	failures firstFailures

	mu        sync.Mutex
	lastErr   map[string]string // of the last call that failed, by lane
	reached   bool              // something was answered, or broke off: the provider is there
	strangers map[string]bool   // models that were warned of
	refused   map[refusal]int   // how often
}

func newBatchRun(s *streams, o *runOptions) *batchRun {
	r := &batchRun{
		s: s, o: o, pauses: &work.Pauses{IgnoreEarlier: o.ignorePause},
		lastErr: make(map[string]string), strangers: make(map[string]bool), refused: make(map[refusal]int),
	}
	r.observers = observers{r.pauses, sluice.ObserverFunc(r.warn)}
	return r
}

// openAccounts makes ready where calls go.
func (r *batchRun) openAccounts(shared *shared) (err error) {
	o := r.o
	if r.accounts, err = o.account.open(sluice.Config{Attempts: o.attempts, Observer: &r.observers, IgnorePauses: o.ignorePause}, r.s); err != nil {
		return err
	}
	r.accounts.prices.told, r.accounts.shared = o.budget.told(), shared
	if o.distribute.on {
		return nil // who makes the calls has upstreams of their own
	}
	if err := r.accounts.openUpstreams(&o.upstreams, o.attempts, r.leftOut); err != nil {
		return errors.Join(err, r.accounts.Close())
	}
	if err := r.accounts.checkVia(o.via.way); err != nil {
		return errors.Join(err, r.accounts.Close())
	}
	return nil
}

// complete adds to what the flags say of the batch what the run has made ready.
func (r *batchRun) complete(cfg *batch.Config) {
	a := r.accounts
	cfg.Stdin, cfg.Logger, cfg.Pauses = r.s.in, slog.New(&logHandler{s: r.s, verbose: r.o.verbose}), r.pauses
	cfg.Observer = &r.observers
	cfg.Provider, cfg.ExtraHeader, cfg.Transport, cfg.Registry = a.provider, a.headers, a.transport, a.settings.registry
	cfg.Key, cfg.Scheduler, cfg.Price = a.Key, a.Scheduler, a.Price
	cfg.OnResult, cfg.Workers = r.result, a.room.calls
	if a.upstreams != nil {
		cfg.Upstreams = a.upstreams.Upstreams
	}
	to := &targets{accounts: a, known: make(map[string]begun)}
	live := &forecast.Live{Models: func() map[string]int { return r.batch.Models() }, Place: to.place, MaxTokens: r.o.maxTokens}
	cfg.Batches.LiveTime = live.Time
}

// run runs the batch, shows its progress, and says what it came to.
func (r *batchRun) run(ctx context.Context) error {
	ctx, abandon := context.WithCancel(ctx)
	defer abandon()
	p := startProgress(r.s, r.o.progress, r.status)
	defer p.stop()
	signals := listen(func(os.Signal) {
		r.batch.Drain()
		p.drain()
	}, func(os.Signal) {
		st := r.status()
		r.abandoned, _, _ = st.sum()
		abandon()
	}, r.rereader())
	defer signals.stop()
	rep, err := r.batch.Run(ctx)
	signals.stop()
	p.stop()
	if r.o.input == "-" { // before the run nobody knows what will come
		noteFields(r.s, r.batch.PromptFields())
	}
	return r.conclude(rep, err)
}

// result takes in what came of an item.
func (r *batchRun) result(res *work.Result) {
	r.accounts.upstreams.observe(res)
	r.failures.note(res)
}

// conclude prints the summary of a run that returned err, and returns what the program ends with.
func (r *batchRun) conclude(rep batch.Report, err error) error {
	sum := summarize(rep, r.accounts.Snapshot())
	sum.Input, sum.Output, sum.Events = r.o.input, r.o.output, r.o.events
	sum.Journal = r.batch.Aside()
	sum.Via = newViaSummary(r.o.via.way, &rep.Batches)
	r.mu.Lock()
	sum.Upstreams = blame(r.accounts.upstreams.summary(), r.lastErr)
	together := sum.together(r.refused)
	r.mu.Unlock()
	sum.First = r.failures.byKind()
	err = r.verdict(sum, rep.Retryable(), err)
	if r.o.asJSON {
		if jsonErr := r.s.printJSON(sum); jsonErr != nil {
			return jsonErr
		}
	}
	if r.o.progress != progressJSON { // else what is on standard error is for programs
		sum.print(r.s)
	}
	if sum.Error == "" && sum.Hint != "" {
		r.s.errorf("hint: %s\n", sum.Hint)
	}
	if b := together; b != nil && len(sum.Upstreams) == 0 && r.accounts.shared == nil {
		r.s.errorf("hint: several models were refused though none used half of its %[1]s. If the account has that limit for all of them together, tell it: --%[1]s %[2]d\n",
			b.Dimension, b.Limit)
	}
	return err
}

// verdict says how the run ended, in sum and as an error. mendable says that another try may mend a failure.
func (r *batchRun) verdict(sum *summary, mendable bool, err error) error {
	switch {
	case err == nil && r.o.via.cancel && sum.Left > 0:
		sum.Outcome, sum.Hint = "called_off", r.o.calledOff(r.pending, sum.Left)
		return nil
	case err == nil && sum.Failed == 0:
		sum.Outcome = "done"
		if r.o.via.cancel {
			sum.Hint = r.o.calledOff(r.pending, 0)
		}
		return nil
	case err == nil:
		sum.Outcome = "items_failed"
		if mendable {
			sum.Hint = fmt.Sprintf("try the failed items again: %s", r.o.withoutCancel().command("--retry-failed"))
		}
		return silent(exitItems)
	}
	end := explain(r.explainJob(err), r.o, r.accounts)
	end.explainPending(r.batch.Parts(), r.o)
	sum.Outcome, sum.Error, sum.Hint = end.outcome(), end.Error(), end.hint
	if r.abandoned > 0 {
		format := "%w, with %d calls open: they may be billed"
		if r.collector != nil {
			format = "%w, with %d calls at workers: those go on, and what comes of them is kept for the same command"
		}
		end.err = fmt.Errorf(format, end.err, r.abandoned)
		sum.Error = end.Error()
	}
	return end
}

// status is how the run stands, for the progress.
func (r *batchRun) status() status {
	p, snap := r.batch.Progress(), r.accounts.Snapshot()
	st := status{
		total: p.Total, done: p.Already + p.Done, failed: p.Failed, usage: p.Usage, lanes: snap.Lanes, retrying: snap.Retrying,
		cost: p.Cost, estimate: p.Estimated, rationed: r.batch.Rationed(), far: r.collector.Status(), limited: p.Throttles,
	}
	if r.o.via.way != batch.ViaLive {
		st.parts = sumParts(r.batch.Parts())
	}
	if r.o.input == "-" {
		st.total = 0 // what has come so far is no total
	}
	return st
}
