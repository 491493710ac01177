package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// workerOptions are the flags of the worker command.
type workerOptions struct {
	account  accountFlags
	redis    string
	watch    watchFlags
	job      string
	maxItems int
	idleExit time.Duration
}

// newWorker returns the command that sends the requests of runs on other hosts.
func newWorker(s *term.Streams) *cobra.Command {
	var o workerOptions
	cmd := &cobra.Command{
		Use:   "worker --redis URL",
		Short: "Send the requests of runs with --distribute at the same Redis",
		Long: `Send the requests of runs with --distribute, from any host that uses the same Redis or Valkey.

The worker sets the API key, address, headers and limits. The run sets the requests, attempts and timeouts. Workers with
the same key and address share their limits. Workers can start and stop at any time. If a worker dies, another worker
sends its items. After the first interrupt, the worker waits for open requests and returns waiting items to the queue. A
second interrupt aborts open requests.`,
		Example: `  sluice worker --redis redis://10.0.0.5
  sluice worker --redis rediss://sluice@10.0.0.5 --rpm 500 --tpm 30000
  sluice worker --redis redis://10.0.0.5 --base-url http://127.0.0.1:8000/v1 --concurrency 32
  sluice worker --redis redis://10.0.0.5 --idle-exit 10m`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runWorker(cmd.Context(), s, &o)
		},
	}
	define(cmd, o.table()...)
	return cmd
}

// table returns the flags of worker.
func (o *workerOptions) table() []flagGroup {
	watch := slices.DeleteFunc(o.watch.flags(), func(f flag) bool { return f.name == "json" })
	redis := redisFlag(&o.redis)
	redis.common, redis.help = true, "Receive requests through this Redis server"
	return []flagGroup{
		{"Queue", []flag{
			redis,
			{name: "job", field: &o.job, metavar: "NAME", help: "Work for this run only (default: all runs)", common: true},
			{name: "max-items", field: countFrom(&o.maxItems, 1), help: "Exit after N items", common: true},
			{name: "idle-exit", field: &o.idleExit, metavar: "DURATION", help: "Exit after this time without an item", common: true},
		}},
		{"Provider", append(o.account.target("Use the limits of this model"), o.account.headerFlag(), configFlag(&o.account.Sources))},
		{"Limits", limitFlags(&o.account.Limits, "learned")},
		{"Watching", watch},
	}
}

// check rejects flags that cannot be combined.
func (o *workerOptions) check() error {
	if err := cluster.CheckJobName(o.job); err != nil {
		return fault.New(fault.Value, fmt.Errorf("--job: %w", err), "give a short name, such as --job labels")
	}
	return cmp.Or(o.watch.check(), checkRules(rule{o.redis == "", fault.Missing,
		"a worker needs --redis, the server to which runs send requests", "name the server: sluice worker --redis redis://HOST"}))
}

// workerRun is a run of a worker.
type workerRun struct {
	*session
	o      *workerOptions
	worker *batch.Worker
	source *cluster.Source
}

// runWorker is the worker command.
func runWorker(ctx context.Context, s *term.Streams, o *workerOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	o.account.Purpose = account.Work
	w := &workerRun{o: o}
	if w.session, err = openSession(ctx, s, "worker", &o.watch, o.redis); err != nil {
		return err
	}
	defer w.close()
	if err := w.openAccounts(&o.account); err != nil {
		return err
	}
	if p := w.accounts.Provider; p.Name != "" && w.accounts.Upstreams() == nil { // a missing key is reported before the first item
		if _, err := w.accounts.Key(p); err != nil {
			return err
		}
	}
	ctx, abandon := context.WithCancel(ctx) // also of the source, which then returns its items
	defer abandon()
	source := cluster.SourceConfig{Job: o.job, MaxItems: o.maxItems, IdleExit: o.idleExit, Lane: w.accounts.Lanes()}
	if w.source, err = w.shared.Source(ctx, source); err != nil {
		return err
	}
	cfg := batch.Config{Observer: w.session, Logger: s.Logger(o.watch.verbose)}
	w.accounts.Fill(&cfg)
	if w.worker, err = batch.NewWorker(cfg, w.source); err != nil {
		return err
	}
	w.watch.FollowItems(w.worker.Progress)
	return w.run(ctx, abandon)
}

// run sends requests until the worker is stopped or has no work, and prints the result.
func (w *workerRun) run(ctx context.Context, abandon func()) error {
	var rep work.Report
	var returned int
	var err, returnErr error
	aborted, _ := w.supervise(supervised{w.status, w.worker.Drain, abandon}, func(func()) {
		rep, err = w.worker.Run(ctx)
		var cause error
		if stopped, ok := errors.AsType[*work.StoppedError](err); ok && stopped.Kind != sluice.OK || fault.Is[*batch.UnreachableError](err) {
			cause = w.explain(err)
		}
		returned, returnErr = w.source.Close(cause)
	})
	w.s.Warn(returnErr)
	if w.o.watch.progress != term.ProgressJSON {
		w.s.Errorf("%s done%s%s in %s\n", prose.Group(rep.Done), prose.If(rep.Failed, ", "+prose.Group(rep.Failed)+" failed"),
			prose.If(returned, ", "+prose.Group(returned)+" given back"), prose.Span(rep.Wall))
	}
	if aborted == 0 && (err == nil || errors.Is(err, work.ErrDrained)) { // a worker usually ends by a signal
		return nil
	}
	end := w.explain(err)
	if aborted > 0 {
		end.Err = fmt.Errorf("%w, with %d requests in flight: they may be billed, and another worker sends them again", end.Err, aborted)
	}
	return end
}

// explain returns the error of the worker, with a hint in words of its command line.
func (w *workerRun) explain(err error) *fault.Error {
	return explainRun(w.s.Args, w.accounts, err)
}

// status returns the state of the worker, for the progress.
func (w *workerRun) status() runinfo.Status {
	st := runinfo.New(w.worker.Progress(), w.accounts.Snapshot())
	st.Total, st.Outlook = 0, w.source.Status()
	return st
}
