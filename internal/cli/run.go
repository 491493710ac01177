package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
)

// runOptions are the flags of the run command.
type runOptions struct {
	cfg      batch.Config // fields that flags set as they are; config adds the rest
	account  accountFlags
	bounds   boundFlags
	price    priceFlag
	redo     redoFlag
	redis    string
	checks   checkFlags
	watch    watchFlags
	template string
	dryRun   bool
	workers  bool // --distribute
	batch    bool
	cancel   bool
	attempts int
	system   string
	ignore   bool // --ignore-pause
}

// newRun returns the command that runs the items of a file.
func newRun(s *term.Streams) *cobra.Command {
	o := runOptions{attempts: 6}
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
		Args: one("input", "name a file of JSON lines, or - for standard input: sluice run IN.jsonl -o OUT.jsonl"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.cfg.Input = args[0]
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
			{name: "output,o", field: &o.cfg.Output, metavar: "FILE", help: "Write results to this file, or resume from it (required)",
				common: true, sets: "Output", fix: "use another file with -o"},
			o.redo.flag("failed,changed,lost,none"),
			{name: "max-items", field: countFrom(&o.cfg.Limit, 1), metavar: "N", help: "Stop after the first N items of the input", common: true},
			{name: "cache", field: &o.cfg.Cache, metavar: "DIR", help: "Send equal requests once; cache successful results in DIR",
				sets: "Cache", fix: "set --cache to a directory that you can write to"},
			fsyncFlag(&o.cfg.Sync),
		}},
		{"Requests", slices.Concat(target, caller(o.account.keyFile("env-file"), o.account.headerFlag()), []flag{
			{name: "system", field: &o.system, metavar: "TEXT|@FILE", help: "Set the system prompt of items that are prompts"},
			{name: "max-tokens", field: &o.cfg.MaxTokens, metavar: "N", help: "Limit output tokens of items that are prompts"},
			{name: "set", field: setFlag(&o.cfg.Set), help: "Set a field of items that are prompts; repeatable",
				sets: "Set", fix: `write a JSON value, with quotes around a string: --set temperature=0.2 --set 'user="me"'`},
			{name: "template", field: &o.template, metavar: "FILE", help: "Make the prompt of each row from a template with {{.field}}",
				sets: "Template", fix: "correct the template, for example {{.question}} for the field question"},
			{name: "timeout", field: &o.cfg.Timeout, metavar: "DURATION", help: "Limit an attempt's time (default: 10 × p99 latency, min 30s)"},
			attemptsFlag(&o.attempts),
		}, o.checks.flags())},
		{"Limits", slices.Concat([]flag{configFlag(&o.account.Sources)}, caller(limitFlags(&o.account.Limits, "learned")...), []flag{
			{name: "ignore-pause", field: &o.ignore, help: "Ignore limits and pauses learned by earlier runs"},
			redisFlag(&o.redis),
			{name: "distribute", field: &o.workers, help: "Let workers at --redis send the requests", without: "dry-run batch"},
		})},
		{"Spending", slices.Concat(o.bounds.flags(), []flag{
			{name: "max-total-tokens", field: countFrom(&o.bounds.Tokens, 1), help: "Stop before the run uses more than N tokens"},
			o.price.flag(),
			{name: "batch", field: &o.batch, help: "Use the Batch API (half price, results within a day)", common: true},
			{name: "cancel", field: &o.cancel, help: "Cancel pending batches at the Batch API", without: "distribute"},
			{name: "dry-run", field: &o.dryRun, help: "Print items, cost and time without sending requests", common: true},
		})},
		{"Watching", o.watch.flags()},
	}
}

// check rejects flags that cannot be combined.
func (o *runOptions) check() error {
	batches := o.usesBatches()
	return cmp.Or(checkRules(
		rule{o.cfg.Output == "" && !o.dryRun, fault.Missing, "no output file: -o is missing", "name the file of results, such as -o out.jsonl"},
		rule{o.cfg.Output == "-", fault.Value, "the output is the checkpoint and cannot be a pipe", "name a file, such as -o out.jsonl"},
		rule{o.workers && o.redis == "", fault.Missing, "--distribute needs --redis, the server from which workers take requests",
			"name the server with --redis redis://HOST"},
		rule{!batches && o.redo.has("lost"), fault.Conflict, "--redo lost needs --batch or --cancel",
			"add --batch, or --cancel to drop the lost batches"},
		rule{batches && o.cfg.Input == "-", fault.Conflict, "--batch cannot read standard input, because it reads the input again later",
			"write the items to a file"},
		rule{batches && o.redis != "", fault.Conflict, "--redis shares limits, which do not apply to --batch", "omit --redis"},
		rule{o.cancel && o.dryRun, fault.Conflict, "--dry-run and --cancel cannot be combined",
			"list pending batches with sluice status OUT.jsonl"},
	), o.redo.check(), o.watch.check(), o.checkFiles())
}

// usesBatches reports whether the run uses Batch APIs.
func (o *runOptions) usesBatches() bool { return o.batch || o.cancel }

// goesLive reports whether a run with Batch APIs sends requests live to meet its deadline.
func (o *runOptions) goesLive() bool { return o.batch && !o.cancel && o.bounds.deadline.text != "" }

// checkFiles rejects files that would overwrite each other or an input.
func (o *runOptions) checkFiles() error {
	system, isFile := strings.CutPrefix(o.system, "@")
	if !isFile {
		system = ""
	}
	return regular.Apart(
		regular.Named{What: "the input", Path: o.cfg.Input},
		regular.Named{What: "the output", Path: o.cfg.Output, Own: true},
		regular.Named{What: "--events", Path: o.watch.events, Own: true},
		regular.Named{What: "--template", Path: o.template, Own: true},
		regular.Named{What: "--schema", Path: o.checks.schema},
		regular.Named{What: "--system", Path: system},
		regular.Named{What: "--env-file", Path: o.account.Keys.File},
	)
}

// texts reads the system prompt and the template.
func (o *runOptions) texts(cfg *batch.Config) (err error) {
	cfg.System = o.system
	if name, isFile := strings.CutPrefix(o.system, "@"); isFile {
		if cfg.System, err = readText("system prompt", name, 16, "set --system to the text, or to @FILE"); err != nil {
			return err
		}
		cfg.System = strings.TrimSpace(cfg.System)
	}
	if o.template == "" {
		return nil
	}
	text, err := readText("--template", o.template, 1, "name a file with a template, such as: Answer in one word: {{.question}}")
	if err != nil {
		return err
	}
	cfg.TemplateName, cfg.Template = o.template, strings.TrimSuffix(strings.TrimSuffix(text, "\n"), "\r") // editors end the last line
	return nil
}

// setFlag is a flag that sets one field of request bodies each time it is given.
func setFlag(field *map[string]json.RawMessage) *option {
	return &option{kind: "NAME=JSON", set: func(text string) error {
		name, value, ok := strings.Cut(text, "=")
		if !ok || name == "" || !json.Valid([]byte(value)) {
			return badValue("is not of the form name=json")
		}
		if *field == nil {
			*field = make(map[string]json.RawMessage)
		}
		(*field)[name] = json.RawMessage(value)
		return nil
	}}
}

// config returns the configuration of the batch, as far as the flags have it.
func (o *runOptions) config() (cfg batch.Config, err error) {
	if err := o.check(); err != nil {
		return cfg, err
	}
	if o.workers {
		o.account.Purpose = account.Submit
	}
	if o.account.Provider == "sim" {
		o.account.Model = cmp.Or(o.account.Model, "sim-small")
	}
	o.account.Rate = o.price.rate
	o.account.Scheduler = sluice.Config{Attempts: o.attempts, IgnorePauses: o.ignore}
	cfg = o.cfg
	cfg.Model, cfg.RetryFailed, cfg.Changed = o.account.Model, o.redo.has("failed"), o.redo.changed()
	if o.usesBatches() {
		cfg.Batches = &batch.Batches{Cancel: o.cancel, Resubmit: o.redo.has("lost")}
	}
	cfg.Budget = o.bounds.from(time.Now())
	cfg.Budget.Attempts = o.attempts
	if err := o.texts(&cfg); err != nil {
		return cfg, err
	}
	return cfg, o.checks.fill(&cfg)
}

// batchRun is a run of requests.
type batchRun struct {
	*session
	o         *runOptions
	batch     *batch.Batch
	collector *cluster.Remote // nil: this process sends the requests
}

// runBatch is the run command.
func runBatch(ctx context.Context, s *term.Streams, o *runOptions) (err error) {
	cfg, err := o.config()
	if err != nil {
		return err
	}
	if o.dryRun {
		return o.dry(s, cfg)
	}
	r := &batchRun{o: o}
	if r.session, err = openSession(ctx, s, "run", &o.watch, o.redis); err != nil {
		return err
	}
	defer r.close()
	if err := r.openAccounts(&o.account); err != nil {
		return err
	}
	if err := r.complete(&cfg); err != nil {
		return err
	}
	if r.batch, err = batch.Open(cfg); err != nil {
		return explainRun(s.Args, r.accounts, err)
	}
	defer func() { err = cmp.Or(err, r.batch.Close()) }()
	r.watch.FollowItems(r.batch.Progress)
	if r.collector != nil { // after the output is locked: if another run has the same output, that error says more
		if err := r.collector.Start(ctx, r.shared.Cluster); err != nil {
			return explainRun(s.Args, r.accounts, err)
		}
		defer func() { s.Warn(r.collector.Close(ctx, r.batch.Progress().Left() == 0)) }()
		for _, doubt := range r.shared.Doubts() {
			s.Errorf("sluice: warning: %s\n", doubt)
		}
	}
	r.printStart()
	return r.run(ctx)
}

// complete sets the fields of the batch that need the session.
func (r *batchRun) complete(cfg *batch.Config) (err error) {
	o := r.o
	r.accounts.Fill(cfg)
	r.pauses.IgnoreEarlier = o.ignore
	cfg.Stdin, cfg.Logger, cfg.Pauses = r.s.In, r.s.Logger(o.watch.verbose), r.pauses
	cfg.Observer, cfg.OnResult = r.session, r.results.Observe
	if cfg.Batches != nil {
		if err := forecast.CheckBatches(r.accounts, o.goesLive()); err != nil {
			return err
		}
		cfg.Batches.LiveTime = forecast.LiveTime(r.accounts, o.cfg.MaxTokens, func() map[string]int { return r.batch.Models() })
	}
	if !o.workers {
		return nil
	}
	job, err := cluster.JobOf(o.cfg.Input, o.cfg.Output, batch.Terms{
		Attempts: o.attempts, Throttles: r.accounts.MaxThrottles(), Timeout: o.cfg.Timeout,
		Schema: o.checks.text, FailOn: strings.Join(o.checks.reject, ","), Feedback: o.checks.schema != "",
	})
	r.collector = cluster.NewRemote(job)
	cfg.Remote = r.collector
	return err
}

// run runs the batch and prints its summary.
func (r *batchRun) run(ctx context.Context) error {
	ctx, abandon := context.WithCancel(ctx)
	defer abandon()
	pending := runinfo.NewParts(r.batch.Parts()).Pending
	var rep batch.Report
	var err error
	aborted, outages := r.supervise(supervised{r.status, r.batch.Drain, abandon}, func(func()) {
		rep, err = r.batch.Run(ctx)
	})
	if r.o.cfg.Input == "-" { // before the run, the fields were unknown
		noteFields(r.s, r.batch.PromptFields())
	}
	sum := runinfo.Summarize(rep, r.accounts.Snapshot())
	sum.AddOutages(outages)
	sum.Input, sum.Output, sum.Events = r.o.cfg.Input, r.o.cfg.Output, r.o.watch.events
	if r.o.usesBatches() {
		sum.Batch = runinfo.NewBatches(rep.Batches)
	}
	sum.Upstreams = r.results.Upstreams(r.accounts.Upstreams(), &r.notices)
	sum.First, sum.AllRuns = r.results.FirstFailures(), runinfo.AllRuns(r.o.cfg.Output)
	if err != nil {
		err = sum.Fail(r.failed(err, aborted))
	} else {
		err = r.finished(sum, rep.Retryable(), pending)
	}
	if jsonErr := r.printEnding(sum, &sum.Ending, func() { printSummary(r.s, sum) }); jsonErr != nil {
		return jsonErr
	}
	if line := r.notices.SharedLimitLine(sum); line != "" {
		r.print(line)
	}
	return err
}

// finished sets the ending of a run that was not stopped. pending is the number of batches before the run.
func (r *batchRun) finished(sum *runinfo.Summary, retryable bool, pending int) error {
	switch line := (runinfo.CommandLine{Own: r.s.Args}); {
	case r.o.cancel && sum.Left > 0:
		sum.Outcome, sum.Hint = "called_off", line.Canceled(pending, sum.Left)
	case sum.Failed == 0:
		sum.Outcome = "done"
		if r.o.cancel {
			sum.Hint = line.Canceled(pending, 0)
		}
	default:
		sum.Outcome = "items_failed"
		if retryable {
			sum.Hint = "retry the failed items: " + line.WithoutCancel().RedoFailed()
		}
		return fault.Exit(fault.ExitItems)
	}
	return nil
}

// failed returns the error of a run that err stopped, when requests in flight were aborted.
func (r *batchRun) failed(err error, aborted int) *fault.Error {
	end := explainRun(r.s.Args, r.accounts, err)
	runinfo.CommandLine{Own: r.s.Args}.ExplainPending(end, r.batch.Parts(), r.o.cancel)
	switch {
	case aborted > 0 && r.collector != nil:
		end.Err = fmt.Errorf("%w, with %d requests at workers: they continue, and the same command records their results", end.Err, aborted)
	case aborted > 0:
		end.Err = fmt.Errorf("%w, with %d requests in flight: they may be billed", end.Err, aborted)
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
	if r.o.cfg.Input == "-" {
		st.Total = 0 // more items may come
	}
	return st
}

// printStart prints the limit of requests in flight, and the fields of rows.
func (r *batchRun) printStart() {
	wanted := r.batch.Progress().Left()
	if r.o.cfg.Input == "-" { // the number of items is unknown
		wanted = r.accounts.Config.Limits.Concurrency
	}
	if note := r.accounts.RoomNote(wanted); note != "" {
		r.s.Errorf("sluice: %s\n", note)
	}
	if r.o.cfg.Input != "-" {
		noteFields(r.s, r.batch.PromptFields())
	}
}

// dry prints what the run would do. Nothing is sent, and no file is written.
func (o *runOptions) dry(s *term.Streams, cfg batch.Config) error {
	o.account.Purpose = account.Estimate
	accounts, err := o.account.open(s, o.watch.verbose)
	if err != nil {
		return err
	}
	defer func() { _ = accounts.Close() }() // nothing was opened
	if err := accounts.OpenUpstreams(); err != nil {
		return err
	}
	cfg.Stdin = s.In
	d, err := forecast.MakeDryRun(accounts, cfg)
	if err != nil {
		return explainRun(s.Args, accounts, err)
	}
	if o.watch.json {
		return s.JSON(d)
	}
	noteFields(s, d.Fields)
	if err := printDryRun(s, d); err != nil {
		return err
	}
	return nil
}
