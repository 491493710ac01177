package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/provider"
)

// execOptions are the flags of the exec command.
type execOptions struct {
	args []string    // of the command line
	cfg  proc.Config // what flags set as it is; config adds the rest

	words      execWords
	at         execRate
	checks     checkFlags
	notBetween []string
	bounds     execBounds
	dryRun     bool

	progress string
	asJSON   bool
	verbose  bool
	events   string
	watch    watchFlags
}

// execWords are flags that are to be read.
type execWords struct {
	format, changed, sync string
	cli, preflight        string
}

// execRate is how many commands start.
type execRate struct {
	jobs         string
	rpm, attempt int
}

// newExec returns the command that runs commands.
func newExec(s *streams) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec [--items F|-] [flags] -- CMD ARGS...",
		Short: "Run a command for each item: coding agents and other programs, within their limits",
		Long: `Run a command for each item, so many at once: coding agents, scripts, programs that stay.

An item is a line of text, a JSON object, or the record of a table. In the words of CMD, {} is the item and {name} a member
of it; each stays one word, and no shell reads it. Every command runs in a process group of its own
that ends with it. What it says of limits, on its streams or by how it ends, pauses all of them until the limit resets: such
a try is no result, and costs the item no attempt.

What became of every item stands in the directory --state, in results.jsonl and a directory for each item. The same command
again does what is left. The first interrupt lets commands that run end, the second ends them.`,
		Example: `  sluice exec --items prompts.txt -- claude -p --output-format json {}
  sluice exec --items tasks.jsonl --jobs 4 --preflight 'claude -p ping' -- claude -p {prompt}
  sluice exec --items repos.csv --timeout 20m --state runs/fix -- ./fix.sh {repo} {issue}
  ls *.md | sluice exec --stdin --jobs auto -- python3 grade.py
  sluice exec --items tasks.jsonl --state runs/fix --only T5 -- ./fix.sh {repo} {issue}
  sluice exec --items tasks.jsonl --persistent --jobs 8 -- python3 worker.py`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(errors.New("no command is given"), "put it behind two dashes: sluice exec --items F -- CMD ARGS...")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if at := slices.Index(args, "--"); at > 0 && cmd.ArgsLenAtDash() < 0 {
				if _, err := command.Find(args); err != nil { // else -- is the command's own
					return usageError(fmt.Errorf("%q stands before the command", args[0]), "items are a file: --items %s", shellQuote(args[0]))
				}
			}
			o.args, o.cfg.Command.Args = s.args, args
			return runExec(cmd.Context(), s, &o)
		},
	}
	o.register(cmd.Flags())
	return cmd
}

func (o *execOptions) register(fs *pflag.FlagSet) {
	fs.SortFlags = false
	fs.SetInterspersed(false) // what follows the command is its own
	fs.StringVar(&o.cfg.Items.Path, "items", "-", "file of items, one a line or record; - is standard input")
	fs.StringVar(&o.words.format, "format", "", "form of the items: jsonl, text, csv or tsv (default: by name)")
	fs.StringVar(&o.cfg.Dir, "state", ".sluice-exec", "directory of the run")
	fs.StringVarP(&o.at.jobs, "jobs", "j", "auto", "how many commands run at once, or auto: as many as help")
	fs.IntVar(&o.at.rpm, "rpm", 0, "start at most so many commands a minute (0: no limit)")
	fs.IntVar(&o.at.attempt, "attempts", 3, "tries per item, those that met a limit aside")
	fs.DurationVar(&o.cfg.Command.Timeout, "timeout", time.Hour, "time for one try (0: no limit)")
	fs.BoolVar(&o.cfg.Command.Stdin, "stdin", false, "give each item on standard input, which is closed otherwise")
	fs.StringVar(&o.words.cli, "cli", "", fmt.Sprintf("whose words the output is in: %s (absent: by the command's name)", prose.Either(agents.Names())))
	fs.StringVar(&o.words.preflight, "preflight", "", "command that tells whether a limit is reached, before the first item and after each pause")
	fs.StringVar(&o.cfg.Verdict.ResultFile, "result-file", "", "file in which a command says what became of it, below the item's directory or the command's")
	o.checks.registerRules(fs)
	fs.BoolVar(&o.cfg.Command.Persistent, "persistent", false, "keep processes, which take items as JSON lines, one after the other")
	fs.StringSliceVar(&o.cfg.Items.Only, "only", nil, "run these tiers, again if they were run, and no others")
	fs.StringVar(&o.cfg.Items.From, "from", "", "run this tier and what needs it, again if they were run")
	fs.BoolVar(&o.cfg.Items.RetryFailed, "retry-failed", false, "try the failed items again")
	fs.StringVar(&o.words.changed, "changed", "", "what to do with items that changed since, or whose command did: redo or keep (absent: refuse)")
	fs.IntVar(&o.cfg.Items.Limit, "limit", 0, "take only the first N items (0: all)")
	fs.StringVar(&o.words.sync, "sync", "interval", "force results to the disk: each, interval (100 ms) or none")
	fs.StringArrayVar(&o.notBetween, "not-between", nil, "start nothing in these hours, such as '12:00-19:00 Mon-Fri UTC' (repeatable)")
	fs.BoolVar(&o.cfg.Limits.IgnorePause, "ignore-pause", false, "ignore learned limits and pauses of earlier runs")
	o.bounds.register(fs)
	fs.BoolVar(&o.dryRun, "dry-run", false, "print the command of each item that is left to do, and run nothing")
	fs.StringVar(&o.progress, "progress", progressAuto, "auto, plain, json or none")
	fs.BoolVar(&o.asJSON, "json", false, "print the summary as one JSON document on standard output")
	fs.BoolVar(&o.verbose, "verbose", false, "say more on standard error")
	fs.StringVar(&o.events, "events", "", "append every event of the scheduler to FILE, as JSON lines")
	o.watch.register(fs)
}

// config is what the flags say of the run.
func (o *execOptions) config(s *streams) (proc.Config, error) {
	cfg := o.cfg
	cfg.Items.Stdin, cfg.Limits.MaxCost = s.in, o.bounds.cost
	if err := o.check(s); err != nil {
		return cfg, err
	}
	err := errors.Join(cfg.Items.Format.UnmarshalText([]byte(o.words.format)), cfg.Items.Changed.UnmarshalText([]byte(o.words.changed)), cfg.Sync.UnmarshalText([]byte(o.words.sync)))
	if err != nil {
		return cfg, err
	}
	cfg.Command.Env = provider.WithoutAdminKeys(os.Environ())
	if o.words.cli != "" {
		var known bool
		if cfg.Verdict.CLI, known = agents.Known(o.words.cli); !known {
			return cfg, usageError(fmt.Errorf("--cli %q is not known", o.words.cli), "it takes %s", prose.Either(agents.Names()))
		}
	}
	rules, err := o.checks.rules()
	if err != nil {
		return cfg, err
	}
	if rules != (batch.Rules{}) {
		cfg.Verdict.Check = rules.CheckReply
	}
	cfg.Limits.Preflight, err = preflightOf(o.words.preflight)
	return cfg, err
}

// check refuses flags that make no sense, alone or together.
func (o *execOptions) check(s *streams) error {
	for _, n := range []struct {
		flag  string
		wrong bool
	}{
		{"rpm", o.at.rpm < 0}, {"limit", o.cfg.Items.Limit < 0}, {"timeout", o.cfg.Command.Timeout < 0},
	} {
		if n.wrong {
			return usageError(fmt.Errorf("--%s is below what it can be", n.flag), "leave --%s out for the usual", n.flag)
		}
	}
	stdin, isFile := s.in.(*os.File)
	tty := isFile && term.IsTerminal(int(stdin.Fd()))
	switch {
	case o.at.attempt < 1:
		return usageError(fmt.Errorf("--attempts %d is no number of tries", o.at.attempt), "give 1 or more")
	case o.cfg.Items.Path == "-" && tty:
		return usageError(errors.New("no items are given"), "name a file by --items F, or pipe them in")
	case o.cfg.Items.Path == "":
		return usageError(errors.New("--items is empty"), "name a file, or - for standard input")
	case o.cfg.Dir == "":
		return usageError(errors.New("--state is empty"), "name a directory")
	case o.cfg.Command.Persistent && o.cfg.Command.Stdin:
		return usageError(errors.New("--persistent does not go with --stdin"), "its processes get items as JSON lines on standard input")
	case len(o.cfg.Items.Only) > 0 && o.cfg.Items.From != "":
		return usageError(errors.New("--only and --from choose twice"), "leave one of them out")
	}
	err := cmp.Or(checkWordIfAny("format", o.words.format), checkWordIfAny("changed", o.words.changed), checkWord("sync", o.words.sync), checkWord("progress", o.progress))
	if err != nil {
		return err
	}
	if _, err := o.atOnce(); err != nil {
		return err
	}
	return o.bounds.check()
}

// atOnce is how many commands may run at once; 0 is as many as help.
func (o *execOptions) atOnce() (int, error) {
	if o.at.jobs == "auto" {
		return 0, nil
	}
	n, err := strconv.Atoi(o.at.jobs)
	if err != nil || n < 1 {
		return 0, usageError(fmt.Errorf("--jobs %q is no number of commands", o.at.jobs), "give 1 or more, or auto")
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
		return nil, usageError(fmt.Errorf("--preflight: %w", err), "give a command such as 'claude -p ping'")
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
	return "exec " + path, cli.Name(), stateDir(provider.Provider{Name: cli.Name()})
}
