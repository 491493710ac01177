package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// execOptions are the flags of the exec command.
type execOptions struct {
	args []string    // of the command line
	cfg  proc.Config // what flags set as it is; config adds the rest

	settings   account.Sources
	jobs       string
	rpm        int
	attempts   int
	agent      string
	preflight  string
	redo       redoFlag
	fsync      string
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
					return fault.New(fault.Usage, fmt.Errorf("unexpected argument %q before the command", args[0]), "name the file of items: --items %s", term.Quote(args[0]))
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
	o.cfg.Items.Path, o.cfg.Dir, o.jobs, o.attempts, o.fsync = "-", ".sluice-exec", "auto", 3, fsyncInterval
	o.cfg.Command.Timeout = time.Hour
	return []flagGroup{
		{"Items and results", []flag{
			{name: "items", field: &o.cfg.Items.Path, metavar: "FILE", help: "Read items from this file; - is standard input", common: true,
				sets: "Items", fix: "set --items to a file of lines, JSON objects or a table, or to - for standard input"},
			{name: "state", field: &o.cfg.Dir, metavar: "DIR", help: "Keep results in this directory, or resume from it", common: true, sets: "Dir"},
			o.redo.flag("failed,changed,none"),
			{name: "max-items", field: countFrom(&o.cfg.Items.Limit, 1), help: "Stop after the first N items", common: true},
			{name: "stage", field: &o.cfg.Items.Only, metavar: "NAME", help: "Run only this stage again; repeatable", without: "from-stage",
				sets: "Only", fix: "set --stage to a stage of the items"},
			{name: "from-stage", field: &o.cfg.Items.From, metavar: "NAME", help: "Run this stage and all dependent stages again",
				sets: "From", fix: "set --from-stage to a stage of the items"},
			fsyncFlag(&o.fsync),
		}},
		{"Commands", []flag{
			{name: "stdin", field: &o.cfg.Command.Stdin, help: "Write each item to the standard input of its command"},
			{name: "persistent", field: &o.cfg.Command.Persistent, help: "Keep commands running, and send them items as JSON lines", without: "stdin"},
			{name: "timeout", field: &o.cfg.Command.Timeout, metavar: "DURATION", help: "Limit the time of an attempt; 0 means no limit", common: true},
			attemptsFlag(&o.attempts),
			{name: "agent", field: &o.agent, metavar: strings.Join(agents.Names(), "|"), help: "Parse output of this agent (default: by command name)"},
			{name: "result-file", field: &o.cfg.Verdict.ResultFile, metavar: "FILE", help: "Read the result from this file in the item's directory"},
			{name: "preflight", field: &o.preflight, metavar: "COMMAND", help: "At start and after pauses, wait until this check succeeds"},
		}},
		{"Checks", o.checks.flags()},
		{"Limits", slices.Concat(o.bounds.flags(), []flag{
			configFlag(&o.settings),
			{name: "jobs,j", field: &o.jobs, metavar: "N", help: "Run N commands at once; auto adapts the number", common: true},
			{name: "rpm", field: &o.rpm, metavar: "N", help: "Start at most N commands per minute", common: true},
			{name: "not-between", field: &o.notBetween, metavar: "HOURS", help: "Pause in these hours: '12:00-19:00 Mon-Fri UTC'; repeatable"},
			{name: "ignore-pause", field: &o.cfg.Limits.IgnorePause, help: "Ignore limits and pauses learned by earlier runs"},
			{name: "dry-run", field: &o.dryRun, help: "Print commands without running them", common: true},
		})},
		{"Watching", o.watch.flags()},
	}
}

// config is what the flags say of the run.
func (o *execOptions) config(s *term.Streams) (proc.Config, error) {
	cfg := o.cfg
	cfg.Items.Stdin, cfg.Limits.Budget = s.In, o.bounds.budget(time.Now())
	if err := o.check(s); err != nil {
		return cfg, err
	}
	cfg.Items.RetryFailed, cfg.Items.Changed = o.redo.has("failed"), o.redo.changed()
	cfg.Command.Env = provider.WithoutAdminKeys(os.Environ())
	if err := cfg.Sync.UnmarshalText([]byte(o.fsync)); err != nil {
		return cfg, err
	}
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

// check refuses flags that make no sense together.
func (o *execOptions) check(s *term.Streams) error {
	if o.cfg.Items.Path == "-" && term.IsTerminal(s.In) {
		return fault.New(fault.Missing, errors.New("no items are given"), "name a file with --items FILE, or pipe the items in")
	}
	_, err := o.atOnce()
	return cmp.Or(err, o.redo.check(), o.watch.check())
}

// atOnce is how many commands may run at once; 0 is as many as help.
func (o *execOptions) atOnce() (int, error) {
	if o.jobs == "auto" {
		return 0, nil
	}
	n, err := strconv.Atoi(o.jobs)
	if err != nil || n < 1 {
		return 0, fault.New(fault.Value, fmt.Errorf("--jobs %q is neither a number of commands nor auto", o.jobs), "set --jobs to a number from 1, or to auto")
	}
	return n, nil
}

// preflightOf reads --preflight.
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

// account names what commands are limited together by: the program, where a run on this host found it.
func (o *execOptions) account(cli *agents.CLI) (name, lane, dir string) {
	lane = filepath.Base(o.cfg.Command.Args[0])
	if cli == nil { // of a script nobody knows whose limits it meets: nothing is kept beyond its directory
		return "exec", lane, ""
	}
	path, err := command.Find(o.cfg.Command.Args)
	if err != nil {
		path = o.cfg.Command.Args[0]
	}
	if whole, err := filepath.Abs(path); err == nil {
		path = whole
	}
	return "exec " + path, cli.Name(), account.StateDir()
}
