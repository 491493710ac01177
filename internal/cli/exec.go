package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/runinfo"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// execOptions are the flags of the exec command.
type execOptions struct {
	args []string    // of the command line
	cfg  proc.Config // what flags set as it is; config adds the rest

	settings   account.Sources
	jobs       string
	limits     sluice.Limits
	attempts   int
	agent      string
	preflight  string
	redo       redoFlag
	checks     checkFlags
	notBetween []string
	bounds     boundFlags
	dryRun     bool
	watch      watchFlags
}

// newExec returns the command that runs commands.
func newExec(s *term.Streams) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec [--items F|-] [flags] -- CMD ARGS...",
		Short: "Run a command for each item, such as a coding agent",
		Long: `Run a command for each item, several commands at once, such as coding agents, scripts or persistent processes.

An item is a line of text, a JSON object or a row of a table. In the arguments of CMD, {} is the item and {name} is a
field of the item. Each inserted value stays one argument, and no shell interprets the value. If a command prints that
its limit is reached, all commands pause until the reset, and the attempt is not counted.

The directory of --state contains results.jsonl and one directory per item. To resume a run, repeat the command. After
the first interrupt, exec waits for running commands. A second interrupt ends running commands.`,
		Example: `  sluice exec --items prompts.txt -- claude -p --output-format json {}
  sluice exec --items tasks.jsonl --jobs 4 -- claude -p {prompt}
  sluice exec --items tasks.jsonl --preflight 'claude -p ping' -- claude -p {prompt}
  sluice exec --items repos.csv --timeout 20m --state runs/fix -- ./fix.sh {repo} {issue}
  ls *.md | sluice exec --stdin --jobs auto -- python3 grade.py
  sluice exec --items tasks.jsonl --state runs/fix --stage T5 -- ./fix.sh {repo} {issue}
  sluice exec --items tasks.jsonl --persistent --jobs 8 -- python3 worker.py`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fault.New(fault.Missing, errors.New("no command is given"), "write it after two dashes: sluice exec --items F -- CMD ARGS...")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if at := slices.Index(args, "--"); at > 0 && cmd.ArgsLenAtDash() < 0 {
				if _, err := command.Find(args); err != nil { // else -- is the command's own
					return fault.New(fault.Usage, fmt.Errorf("unexpected argument %q before the command", args[0]),
						"name the file of items: --items %s", term.Quote(args[0]))
				}
			}
			o.args, o.cfg.Command.Args = s.Args, args
			return runExec(cmd.Context(), s, &o)
		},
	}
	cmd.Flags().SetInterspersed(false) // the command's own flags follow it
	define(cmd, o.table()...)
	return cmd
}

// table returns the flags of exec.
func (o *execOptions) table() []flagGroup {
	o.cfg.Items.Path, o.cfg.Dir, o.jobs, o.attempts = "-", ".sluice-exec", "auto", 3
	items, cmd := &o.cfg.Items, &o.cfg.Command
	cmd.Timeout = time.Hour
	return []flagGroup{
		{"Items and results", []flag{
			{name: "items", field: &items.Path, metavar: "FILE", help: "Read items from this file; - is standard input", common: true,
				sets: "Items", fix: "set --items to a file of lines, JSON objects or a table, or to - for standard input"},
			{name: "state", field: &o.cfg.Dir, metavar: "DIR", help: "Keep results in this directory, or resume from it",
				common: true, sets: "Dir", fix: "use another directory with --state"},
			o.redo.flag("failed,changed,none"),
			{name: "max-items", field: countFrom(&items.Limit, 1), help: "Stop after the first N items", common: true},
			{name: "stage", field: &items.Only, metavar: "NAME", help: "Run only this stage again; repeatable", without: "from-stage",
				sets: "Only", fix: "set --stage to a stage of the items"},
			{name: "from-stage", field: &items.From, metavar: "NAME", help: "Run this stage and all dependent stages again",
				sets: "From", fix: "set --from-stage to a stage of the items"},
			fsyncFlag(&o.cfg.Sync),
		}},
		{"Commands", []flag{
			{name: "stdin", field: &cmd.Stdin, help: "Write each item to the standard input of its command"},
			{name: "persistent", field: &cmd.Persistent, help: "Keep commands running, and send them items as JSON lines", without: "stdin"},
			{name: "timeout", field: &cmd.Timeout, metavar: "DURATION", help: "Limit the time of an attempt; 0 means no limit", common: true},
			attemptsFlag(&o.attempts),
			{name: "agent", field: &o.agent, metavar: strings.Join(agents.Names(), "|"),
				help: "Parse output of this agent (default: by command name)"},
			{name: "result-file", field: &o.cfg.Verdict.ResultFile, metavar: "FILE",
				help: "Read the result from this file in the item's directory"},
			{name: "preflight", field: &o.preflight, metavar: "COMMAND", help: "At start and after pauses, wait until this check succeeds"},
		}},
		{"Checks", o.checks.flags()},
		{"Limits", slices.Concat(o.bounds.flags(), []flag{
			configFlag(&o.settings),
			{name: "jobs,j", field: &o.jobs, metavar: "N", help: "Run N commands at once; auto adapts the number", common: true},
			{name: "rpm", field: countFrom(&o.limits.RPM, 1), help: "Start at most N commands per minute", common: true, sets: "Limits.RPM"},
			{name: "not-between", field: &o.notBetween, metavar: "HOURS", help: "Pause in these hours: '12:00-19:00 Mon-Fri UTC'; repeatable"},
			{name: "ignore-pause", field: &o.cfg.Limits.IgnorePause, help: "Ignore limits and pauses learned by earlier runs"},
			{name: "dry-run", field: &o.dryRun, help: "Print commands without running them", common: true},
		})},
		{"Watching", o.watch.flags()},
	}
}

// config returns the configuration of the run, as far as the flags have it.
func (o *execOptions) config(s *term.Streams) (proc.Config, error) {
	cfg := o.cfg
	jobs, notNumber := strconv.Atoi(o.jobs)
	err := cmp.Or(checkRules(
		rule{cfg.Items.Path == "-" && term.IsTerminal(s.In), fault.Missing, "no items are given",
			"name a file with --items FILE, or pipe the items in"},
		rule{o.jobs != "auto" && (notNumber != nil || jobs < 1 || jobs > limits.MaxLimit), fault.Value,
			fmt.Sprintf("--jobs %q is neither a number of commands nor auto", o.jobs), "set --jobs to a number from 1, or to auto"},
	), checkLimits(&o.limits), o.redo.check(), o.watch.check())
	if err != nil {
		return cfg, err
	}
	if o.jobs != "auto" {
		o.limits.Concurrency = jobs
	}
	cfg.Items.Stdin, cfg.Limits.Budget = s.In, o.bounds.from(time.Now())
	cfg.Items.RetryFailed, cfg.Items.Changed = o.redo.has("failed"), o.redo.changed()
	cfg.Command.Env = provider.WithoutAdminKeys(os.Environ())
	if o.agent != "" {
		cfg.Verdict.CLI, _ = agents.Known(o.agent)
	}
	rules, err := o.checks.rules()
	if err != nil {
		return cfg, err
	}
	if rules != (batch.Rules{}) {
		cfg.Verdict.Check = rules.CheckReply
	}
	cfg.Limits.Preflight, err = preflightOf(o.preflight)
	return cfg, err
}

// preflightOf parses --preflight.
func preflightOf(text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	args, err := command.Split(text)
	if err == nil {
		_, err = command.Find(args)
	}
	if err != nil {
		return nil, fault.New(fault.Value, fmt.Errorf("--preflight: %w", err), "give a command such as 'claude -p ping'")
	}
	return args, nil
}

// line returns the command line, for hints.
func (o *execOptions) line() runinfo.CommandLine {
	own := o.args[:max(0, len(o.args)-len(o.cfg.Command.Args))]
	if n := len(own); n > 0 && own[n-1] == "--" {
		own = own[:n-1]
	}
	return runinfo.CommandLine{
		Own: own, Rest: append([]string{"--"}, o.cfg.Command.Args...),
		Phrases: []string{"another output", "another directory with --state", "check the key", "log in, or correct the key"},
	}
}

// explain returns the error of a run, with a hint in words of its command line.
func (o *execOptions) explain(err error) *fault.Error {
	e := o.line().Explain(err)
	if stopped, ok := errors.AsType[*work.StoppedError](err); ok && e.Code == fault.KeyRejected {
		e.Err = fmt.Errorf("%s is not logged in, or its key was rejected: %w", o.cfg.Command.Args[0], stopped.Err)
	}
	return e
}

// execRun is a run of commands.
type execRun struct {
	*session
	o        *execOptions
	commands *sluice.Scheduler
	hours    proc.Hours
	exec     atomic.Pointer[proc.Exec] // nil before it is open, when observers may already ask for waiting
}

// runExec is the exec command.
func runExec(ctx context.Context, s *term.Streams, o *execOptions) (err error) {
	cfg, err := o.config(s)
	if err != nil {
		return err
	}
	if o.dryRun {
		if err := printPlanned(s, cfg, o.watch.json); err != nil {
			return o.explain(err)
		}
		return nil
	}
	r := &execRun{o: o}
	if r.hours, err = proc.ParseHours(o.notBetween); err != nil {
		return err
	}
	if r.session, err = openSession(ctx, s, "exec", &o.watch, ""); err != nil {
		return err
	}
	defer r.close()
	r.notices.Commands, r.notices.Waiting = true, r.waiting
	if err := r.openCommands(&cfg); err != nil {
		return err
	}
	guard, err := startGuard(s)
	if err != nil {
		return err
	}
	r.opened = append(r.opened, guard.Close)
	cfg.Command.Run = guard.Run
	cfg.Pauses, cfg.Observer, cfg.OnResult = r.pauses, r.session, r.results.Observe
	cfg.Logger = s.Logger(o.watch.verbose)
	exec, err := proc.Open(cfg)
	if err != nil {
		return o.explain(err)
	}
	defer func() { err = cmp.Or(err, exec.Close()) }()
	r.exec.Store(exec)
	r.watch.FollowItems(exec.Progress)
	if exec.Alike() && exec.Total() != 1 && !strings.Contains(strings.Join(o.cfg.Command.Args, " "), "SLUICE_ITEM") {
		s.Errorf("sluice: the command contains no {}: it gets its item only in the environment variable SLUICE_ITEM\n")
	}
	return r.run(ctx, exec)
}

// jobsPerCPU is the maximum number of commands per CPU with --jobs auto: agents mostly wait for their provider.
const jobsPerCPU = 8

// openCommands opens the account of the commands.
func (r *execRun) openCommands(cfg *proc.Config) (err error) {
	o := r.o
	r.accounts, err = account.Open(account.Config{
		Purpose: account.Start, Sources: o.settings, Limits: o.limits, Hide: r.s.Hide, Logger: r.s.Logger(o.watch.verbose),
		Scheduler: sluice.Config{Attempts: o.attempts, Observer: r.session, IgnorePauses: cfg.Limits.IgnorePause},
	})
	if err != nil {
		return err
	}
	r.opened = append(r.opened, r.accounts.Close)
	if r.commands, cfg.Limits.Lane, err = r.accounts.OpenCommands(o.cfg.Command.Args, cfg.Verdict.CLI); err != nil {
		return err
	}
	r.watch.Follow(r.accounts)
	cfg.Limits.Scheduler = r.commands
	if r.commands.Snapshot().Limits.Concurrency == 0 { // else the Scheduler limits commands, and an item in its backoff uses no place
		cfg.Workers = jobsPerCPU * runtime.NumCPU()
	}
	return nil
}

// run runs the commands and prints the summary.
func (r *execRun) run(ctx context.Context, exec *proc.Exec) error {
	ctx, abandon := context.WithCancel(ctx)
	defer abandon()
	var rep proc.Report
	var err error
	r.supervise(supervised{r.status, exec.Drain, abandon}, func(refresh func()) {
		stop := r.hours.Keep(r.commands, r.pauses, r.s.Logger(true), refresh)
		defer stop()
		rep, err = exec.Run(ctx)
	})
	sum := runinfo.SummarizeExec(rep, r.commands.Snapshot())
	sum.Dir, sum.First, sum.Pauses = r.o.cfg.Dir, r.results.FirstFailures(), r.pauses.Count()
	sum.AllRuns = runinfo.AllRuns(sum.Dir)
	switch {
	case err != nil:
		err = sum.Fail(r.o.explain(err))
	case sum.Failed+sum.Quarantined == 0:
		sum.Outcome = "done"
	default:
		sum.Outcome, err = "items_failed", fault.Exit(fault.ExitItems)
		if work.Retryable(sum.Kinds) > 0 {
			sum.Hint = "retry the failed items: " + r.o.line().RedoFailed()
		}
	}
	if jsonErr := r.printEnding(sum, &sum.Ending, func() { printExecSummary(r.s, sum) }); jsonErr != nil {
		return jsonErr
	}
	return err
}

// status returns the state of the run, for the progress.
func (r *execRun) status() runinfo.Status {
	exec := r.exec.Load()
	st := runinfo.New(exec.Progress(), r.commands.Snapshot())
	st.Total, st.Held, st.Outlook, st.Commands = exec.Total(), r.hours.Reason(time.Now()), exec.Outlook(), true
	return st
}

// waiting returns the number of waiting items; 0 if it is unknown.
func (r *execRun) waiting() int {
	exec := r.exec.Load()
	if exec == nil || exec.Total() == 0 {
		return 0
	}
	return max(0, exec.Progress().Left())
}

// guardName is the hidden command that outlives a killed run, and stops its commands.
const guardName = "guard-commands"

// newGuard returns the hidden command.
func newGuard(s *term.Streams) *cobra.Command {
	return &cobra.Command{
		Use: guardName + " RUN", Short: "Stop leftover processes of a run that was killed", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return command.ServeGuard(s.In, args[0]) },
	}
}

// startGuard starts this program with the hidden command.
func startGuard(s *term.Streams) (*command.Guard, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	g, err := command.StartGuard([]string{program, guardName}, s.Warn)
	if err != nil {
		return nil, fmt.Errorf("start the process that stops leftover processes of commands: %w", err)
	}
	return g, nil
}
