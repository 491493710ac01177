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
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

// workerOptions are the flags of the worker command.
type workerOptions struct {
	account  accountFlags
	shared   sharedFlags
	watch    watchFlags
	job      string
	maxItems int
	idleExit time.Duration
}

// newWorker returns the command that makes the calls of runs on other hosts.
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
	redis := o.shared.flag()
	redis.common, redis.help = true, "Receive requests through this Redis server"
	return []flagGroup{
		{"Queue", []flag{
			redis,
			{name: "job", field: &o.job, metavar: "NAME", help: "Work for this run only (default: all runs)", common: true},
			{name: "max-items", field: countFrom(&o.maxItems, 1), help: "Exit after N items", common: true},
			{name: "idle-exit", field: &o.idleExit, metavar: "DURATION", help: "Exit after this time without an item", common: true},
		}},
		{"Provider", append(o.account.target("Use the limits of this model"), o.account.headerFlag(), configFlag(&o.account.Sources))},
		{"Limits", o.account.limits.flags("learned")},
		{"Watching", watch},
	}
}

// check finds what is wrong with the flags together.
func (o *workerOptions) check() error {
	if o.shared.url == "" {
		return fault.New(fault.Missing, errors.New("a worker needs --redis, the server to which runs send requests"), "name the server: sluice worker --redis redis://HOST")
	}
	return cmp.Or(o.watch.check(), checkJob(o.job))
}

// workerRun is one run of a worker. It tells of its accounts as a batchRun does, and has no batch.
type workerRun struct {
	*batchRun
	o      *workerOptions
	worker *batch.Worker
	source *cluster.Source
}

// runWorker is the worker command.
func runWorker(ctx context.Context, s *term.Streams, o *workerOptions) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	w := &workerRun{o: o, batchRun: newBatchRun(s, &runOptions{account: o.account, shared: o.shared, args: s.Args, watch: o.watch})}
	recorded, err := w.record()
	if err != nil {
		return err
	}
	defer recorded()
	watch, err := o.watch.open(ctx, s)
	if err != nil {
		return err
	}
	defer func() { w.s.Warn(watch.close()) }()
	w.observers = append(w.observers, watch.observers()...)
	shared, err := o.shared.open(ctx, s, "worker", o.watch.verbose)
	if err != nil {
		return err
	}
	defer func() { w.s.Warn(shared.Close()) }()
	if err := w.open(shared); err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, w.accounts.Close()) }()
	watch.of(w.accounts)
	ctx, abandon := context.WithCancel(ctx)
	defer abandon()
	if err := w.begin(ctx, shared); err != nil {
		return err
	}
	watch.follow(w.worker.Progress)
	return w.run(ctx, abandon)
}

// open makes ready where calls go.
func (w *workerRun) open(shared *account.Shared) (err error) {
	w.o.account.Scheduler.Observer, w.o.account.Excluded = &w.observers, w.leftOut
	if w.accounts, err = w.o.account.open(w.s); err != nil {
		return err
	}
	w.accounts.Share(shared)
	w.accounts.Settings.File.MaxThrottles = nil // each task has its own
	if err := w.accounts.OpenUpstreams(); err != nil {
		return errors.Join(err, w.accounts.Close())
	}
	explainSettings(w.s, w.accounts.Settings, w.o.watch.verbose)
	return nil
}

// begin makes the worker ready. A provider that is named is looked at now: a key that is missing is missed before there is a task.
func (w *workerRun) begin(ctx context.Context, shared *account.Shared) (err error) {
	a := w.accounts
	if p := a.Provider; p.Name != "" && a.Upstreams() == nil {
		if _, err := a.Key(p); err != nil {
			return err
		}
	}
	source := cluster.SourceConfig{Job: w.o.job, MaxItems: w.o.maxItems, IdleExit: w.o.idleExit, Lane: (&lanes{accounts: a}).of}
	if w.source, err = shared.Source(ctx, source); err != nil {
		return err
	}
	cfg := batch.Config{Observer: &w.observers, Logger: w.s.Logger(w.o.watch.verbose)}
	a.Fill(&cfg)
	w.worker, err = batch.NewWorker(cfg, w.source)
	return err
}

// lanes are how the worker's lanes are, as they were a moment ago: a whole snapshot for each task were too much.
type lanes struct {
	accounts *account.Accounts

	mu  sync.Mutex
	at  time.Time
	all map[string]limits.LaneSnapshot
}

// lanesAge is how old a look may be.
const lanesAge = 250 * time.Millisecond

// of is how the lane of a model is. With upstreams a call goes wherever it can: then it is all of them, and pauses are theirs.
func (l *lanes) of(model string) limits.LaneSnapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.at) >= lanesAge {
		l.at, l.all = now, make(map[string]limits.LaneSnapshot)
		for _, lane := range l.accounts.Snapshot().Lanes {
			if l.accounts.Upstreams() != nil {
				all := l.all[""]
				all.InFlight += lane.InFlight
				lane = all
			}
			l.all[lane.Lane] = lane
		}
	}
	if l.accounts.Upstreams() != nil {
		model = ""
	}
	return l.all[model]
}

// run works until it is stopped, or there is nothing to do. abandon ends ctx, which is also that of the source.
func (w *workerRun) run(ctx context.Context, abandon func()) error {
	p := startProgress(w.s, w.o.watch.progress, w.status)
	defer p.stop()
	listener := signals.Listen(signals.Config{Reread: rereading(w.s, w.accounts.Settings, w.accounts.Reread), Drain: func(os.Signal) {
		w.worker.Drain()
		p.drain()
	}, Abandon: func(os.Signal) {
		st := w.status()
		w.abandoned = st.InFlight
		abandon()
	}})
	defer listener.Stop()
	rep, err := w.worker.Run(ctx)
	var cause error
	if stopped, ok := errors.AsType[*work.StoppedError](err); ok && stopped.Kind != sluice.OK || fault.Is[*batch.UnreachableError](err) {
		cause = explain(err, w.batchRun.o, w.accounts)
	}
	returned, returnErr := w.source.Close(cause)
	listener.Stop()
	p.stop()
	w.s.Warn(returnErr)
	return w.conclude(rep, returned, err)
}

// conclude says what the worker did, and returns what the program ends with.
func (w *workerRun) conclude(rep work.Report, returned int, err error) error {
	if w.o.watch.progress != term.ProgressJSON {
		line := fmt.Sprintf("%s done", prose.Group(rep.Done))
		if rep.Failed > 0 {
			line += fmt.Sprintf(", %s failed", prose.Group(rep.Failed))
		}
		if returned > 0 {
			line += fmt.Sprintf(", %s given back", prose.Group(returned))
		}
		w.s.Errorf("%s in %s\n", line, prose.Span(rep.Wall))
	}
	if w.abandoned == 0 && (err == nil || errors.Is(err, work.ErrDrained)) { // an end by a signal is the usual one
		return nil
	}
	end := explain(err, w.batchRun.o, w.accounts)
	if w.abandoned > 0 {
		end.Err = fmt.Errorf("%w, with %d requests in flight: they may be billed, and another worker sends them again", end.Err, w.abandoned)
	}
	return end
}

// status returns the state of the worker, for the progress.
func (w *workerRun) status() runinfo.Status {
	st := runinfo.New(w.worker.Progress(), w.accounts.Snapshot())
	st.Total, st.Outlook = 0, w.source.Status()
	return st
}
