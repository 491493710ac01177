package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/signals"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
)

// execRun is one run of commands.
type execRun struct {
	settings  *account.Settings
	limits    sluice.Limits // of the flags and the settings
	s         *term.Streams
	o         *execOptions
	scheduler *sluice.Scheduler
	exec      *proc.Exec
	pauses    *work.Pauses
	printed   atomic.Pointer[work.RateLimit] // the last limit
	hours     proc.Hours
	observers observers
	failures  runinfo.Failures

	rejections runinfo.Rejections
}

// runExec is the exec command.
func runExec(ctx context.Context, s *term.Streams, o *execOptions) (err error) {
	cfg, err := o.config(s)
	if err != nil {
		return err
	}
	if o.dryRun {
		return o.dry(s, cfg)
	}
	r := &execRun{s: s, o: o, pauses: &work.Pauses{}}
	r.observers = observers{r.pauses, sluice.ObserverFunc(r.observe)}
	if r.hours, err = proc.ParseHours(o.notBetween); err != nil {
		return err
	}
	if o.watch.events != "" {
		log, err := openEvents(s, o.watch.events)
		if err != nil {
			return err
		}
		r.observers = append(r.observers, log)
		defer func() { r.s.Warn(log.Close()) }()
	}
	watch, err := o.watch.open(ctx, s)
	if err != nil {
		return err
	}
	defer func() { r.s.Warn(watch.close()) }()
	r.observers = append(r.observers, watch.observers()...)
	if err := r.openScheduler(&cfg); err != nil {
		return err
	}
	defer func() { r.s.Warn(r.scheduler.Close()) }() // what was learned cannot be kept, perhaps: the results are
	watch.at(r.scheduler)
	guard, err := r.startGuard()
	if err != nil {
		return err
	}
	defer func() { r.s.Warn(guard.Close()) }()
	cfg.Command.Run = guard.Run
	cfg.Pauses, cfg.Observer, cfg.OnResult = r.pauses, &r.observers, r.failures.Observe
	cfg.Logger = s.Logger(o.watch.verbose)
	if r.exec, err = proc.Open(cfg); err != nil {
		return o.explain(err)
	}
	defer func() { err = cmp.Or(err, r.exec.Close()) }()
	watch.follow(r.exec.Progress)
	if r.exec.Alike() && r.exec.Total() != 1 && !strings.Contains(strings.Join(o.cfg.Command.Args, " "), "SLUICE_ITEM") {
		s.Errorf("sluice: the command contains no {}: it gets its item only in the environment variable SLUICE_ITEM\n")
	}
	return r.run(ctx)
}

// startGuard starts what ends all that commands leave behind, whatever becomes of this process.
func (r *execRun) startGuard() (*command.Guard, error) {
	args, err := guardCommand()
	if err != nil {
		return nil, err
	}
	g, err := command.StartGuard(args, r.s.Warn)
	if err != nil {
		return nil, fmt.Errorf("start the process that stops leftover processes of commands: %w", err)
	}
	return g, nil
}

// openScheduler makes what admits the commands.
func (r *execRun) openScheduler(cfg *proc.Config) (err error) {
	o := r.o
	if r.settings, err = o.settings.Open(); err != nil {
		return err
	}
	r.limits = o.limits(&r.settings.File)
	cli := cfg.Verdict.CLI
	if cli == nil {
		cli = agents.Recognise(o.cfg.Command.Args[0])
	}
	name, lane, dir := o.account(cli)
	cfg.Limits.Lane = lane
	if r.limits.Concurrency == 0 { // else the Scheduler bounds them, and an item that waits before it is tried again takes no one's place
		cfg.Workers = jobsPerCPU * runtime.NumCPU()
	}
	r.scheduler, err = sluice.New(sluice.Config{
		Name: name, Limits: r.limits, Attempts: o.attempts, MaxThrottles: math.MaxInt32,
		Observer: &r.observers, StateDir: dir, IgnorePauses: o.cfg.Limits.IgnorePause,
	})
	cfg.Limits.Scheduler = r.scheduler
	if err != nil && dir != "" {
		return fault.New(fault.File, err, "set XDG_STATE_HOME to a directory that you can write to, because learned limits are kept in %s", dir)
	}
	return err
}

// limits are those of commands: flags win over the settings.
func (o *execOptions) limits(file *config.File) (all sluice.Limits) {
	if file.Limits != nil {
		told, _ := file.Limits.Split()
		all = sluice.Limits{RPM: told.RPM, Concurrency: told.Concurrency}
	}
	atOnce, _ := o.atOnce() // it was checked
	return account.Over(sluice.Limits{RPM: o.rpm, Concurrency: atOnce}, all)
}

// reread applies the limits of changed settings. It returns lines that say what changed.
func (r *execRun) reread() ([]string, error) {
	next, err := r.o.settings.Open()
	if err != nil {
		return nil, err
	}
	change := account.Change{Before: r.limits, After: r.o.limits(&next.File)}
	if err := r.scheduler.SetLimits(change.After, sluice.Limits{}); err != nil {
		return nil, err
	}
	r.limits = change.After
	return change.Lines(), nil
}

// jobsPerCPU bounds how many commands --jobs auto runs at once: most of the time agents wait for their provider.
const jobsPerCPU = 8

// run runs the commands, shows the progress, and says what they came to.
func (r *execRun) run(ctx context.Context) error {
	ctx, abandon := context.WithCancel(ctx)
	defer abandon()
	p := startProgress(r.s, r.o.watch.progress, r.status)
	defer p.stop()
	stopHours := r.hours.Keep(r.scheduler, r.pauses, r.s.Logger(true), p.refresh)
	defer stopHours()
	listener := signals.Listen(signals.Config{Reread: rereading(r.s, r.settings, r.reread), Abandon: func(os.Signal) { abandon() }, Drain: func(os.Signal) {
		r.exec.Drain()
		p.drain()
	}})
	defer listener.Stop()
	rep, err := r.exec.Run(ctx)
	listener.Stop()
	stopHours()
	p.stop()
	return r.conclude(rep, err)
}

// status returns the state of the run, for the progress.
func (r *execRun) status() runinfo.Status {
	st := runinfo.New(r.exec.Progress(), r.scheduler.Snapshot())
	st.Total, st.Held, st.Outlook, st.Commands = r.exec.Total(), r.hours.Reason(time.Now()), r.exec.Outlook(), true
	return st
}

// observe tells what the user should know while the run goes on: above all of limits, and of what waits for them.
func (r *execRun) observe(e sluice.Event) {
	if text := r.rejections.Observe(e); text != "" {
		r.s.Errorf("sluice: %s: lower --jobs, or set --rpm\n", text)
	}
	switch e.Type {
	case limits.EventCooldownStarted:
		if text := r.limitText(e); text != "" {
			r.s.Errorf("sluice: %s\n", text)
		}
	case limits.EventCooldownEnded:
		r.s.Errorf("sluice: the pause for the limit is over: commands start again\n")
	case limits.EventShared:
		r.s.Errorf("sluice: another process runs %s too: together both may exceed its limits\n", e.Lane)
	case limits.EventBreaker:
		if e.Until.IsZero() {
			r.s.Errorf("sluice: %s: resumed\n", e.Lane)
		} else {
			r.s.Errorf("sluice: %s: the provider keeps failing, next attempt at %s\n", e.Lane, prose.Clock(e.Until, e.At, time.TimeOnly))
		}
	case limits.EventThrottled, limits.EventGaveUp, limits.EventAttemptFailed:
		if r.o.watch.verbose {
			r.s.Errorf("sluice: %s: %s: %v\n", e.Call, e.Outcome.Kind, e.Outcome.Err)
		}
	}
}

// limitText says what limit was met and when, how many items wait for it, and when it resets or, where that is not stated, is tried
// again. It is "" for what was said before.
func (r *execRun) limitText(e sluice.Event) string {
	limit := r.pauses.Limit(e.Lane)
	if last := r.printed.Swap(&limit); last != nil && last.SeenAt.Equal(limit.SeenAt) && limit.Until.Sub(last.Until) < time.Second {
		return ""
	}
	left := "items wait"
	if x := r.exec; x != nil {
		if n := x.Progress().Left(); n > 0 && x.Total() > 0 {
			left = prose.Count(n, "item") + " " + map[bool]string{true: "waits", false: "wait"}[n == 1]
		}
	}
	next, until := "next attempt at", limit.Until.Local()
	if limit.Stated {
		next = "reset"
	}
	if end, ok := errors.AsType[*proc.EndError](e.Outcome.Err); ok && end.Stated() {
		until = end.Until // in the zone of its words
	}
	what := strings.ReplaceAll(limit.Kind.String(), "_", " ")
	text := fmt.Sprintf("%s because of a limit reached at %s (%s), %s %s", left, prose.Clock(limit.SeenAt, e.At, time.TimeOnly), what, next, prose.Zoned(until, e.At))
	if limit.Text != "" {
		text += ": " + term.Clip(limit.Text, mostMessage)
	}
	return text
}

// conclude prints the summary of a run that returned err, and returns what the program ends with.
func (r *execRun) conclude(rep proc.Report, err error) error {
	sum := runinfo.SummarizeExec(rep, r.scheduler.Snapshot())
	sum.Dir, sum.First, sum.Pauses = r.o.cfg.Dir, r.failures.ByKind(), r.pauses.Count()
	sum.AllRuns = runinfo.AllRuns(sum.Dir)
	err = r.verdict(sum, err)
	if jsonErr := printEnding(r.s, &r.o.watch, sum, &sum.Ending, func() { printExecSummary(r.s, sum) }); jsonErr != nil {
		return jsonErr
	}
	return err
}

// verdict says how the run ended, in sum and as an error.
func (r *execRun) verdict(sum *runinfo.ExecSummary, err error) error {
	blocked, isBlocked := errors.AsType[*proc.BlockedError](err)
	switch {
	case err == nil && sum.Failed+sum.Quarantined == 0:
		sum.Outcome = "done"
		return nil
	case err == nil:
		sum.Outcome = "items_failed"
		if sum.Retryable() {
			sum.Hint = "retry the failed items: " + r.o.command("--redo", "failed")
		}
		return fault.Exit(fault.ExitItems)
	case isBlocked:
		sum.Outcome, sum.Error, sum.Hint = "items_failed", blocked.Error(), blocked.Hint()
		return &fault.Error{Code: fault.Blocked, Err: blocked, List: true, Hint: blocked.Hint()}
	}
	end := r.o.explain(err)
	sum.Outcome, sum.Error, sum.Hint = end.Outcome(), end.Error(), end.Hint
	return end
}
