// Package proc runs commands as items: coding agents, scripts, or programs that stay and take one item after the other.
//
// Each command runs in a process group of its own, which ends with it, under a permit of a Scheduler. However it ends, its end
// becomes a result: what it wrote is read for what it says of limits, and a limit pauses all commands until it resets, is
// never a result, and never costs an item one of its attempts. What became of every item stands in a directory that the same
// run goes on from.
package proc

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/budget"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// Config configures an Exec. Items.Path, Dir, Command and Limits.Scheduler are required.
type Config struct {
	Items   Items
	Dir     string // of the run. Open makes it if it is missing. See ResultsPath for its contents
	Command Command
	Verdict Verdict
	Limits  Limits

	Sync    work.SyncMode
	Workers int // see work.Config

	OnResult func(*work.Result) // see work.Config
	Observer sluice.Observer    // see work.Config; the Scheduler has its own
	Pauses   *work.Pauses       // see work.Config
	Logger   *slog.Logger       // nil discards
}

// Items are those that commands run for.
type Items struct {
	Path  string    // of the file; "-" is Stdin
	Stdin io.Reader // its last Read may outlive a run that is stopped

	Limit       int          // number of items that run, from the first; 0 means all
	Only        []string     // stages that run again, alone
	From        string       // a stage that runs again, with all that needs it
	RetryFailed bool         // items that failed run again; the first new result drops theirs
	Changed     rows.Changed // what happens to items that changed, or whose command did
}

// Verdict is how the end of a command is read.
type Verdict struct {
	CLI *agents.CLI // reads the output. Default: recognised by the command's name

	// ResultFile is a file in which a command says what became of it, as a word of Command. A relative one is below the
	// item's directory or, where it is not there, below the command's.
	ResultFile string

	// Check rejects the answer of a command that ended well, or of a worker, which counts as a failed attempt of kind InvalidOutput.
	// Nil accepts all. It must be safe for concurrent use.
	Check func(provider.Reply) error
}

// Limits are what commands start by.
type Limits struct {
	// Scheduler admits the commands. It does not give an item up for throttles alone: its MaxThrottles is high.
	Scheduler *sluice.Scheduler
	Lane      string // in which all commands are

	// Preflight is a command that asks whether a limit is reached, before the first command and after each pause: its end is read as
	// that of an item's. Nil asks nothing.
	Preflight []string

	IgnorePause bool // a limit that an earlier run met and that is not over is not waited for

	// Budget bounds the run, which then stops with a *budget.Error. Of the cost it knows what commands state: no command starts whose
	// expected cost would exceed the rest, beside the expected costs of those that run.
	Budget budget.Budget
}

// Exec is a run of commands over items. Use Open, then Run once, then Close.
type Exec struct {
	cfg      Config
	log      *slog.Logger
	dir      string // absolute
	template *template
	settings work.Hash

	input   *input
	journal *work.Journal
	runner  *work.Runner
	guard   *budget.Guard
	probe   *probe
	lane    *lane
	workers *workers
	tally   *tally
	claims  claims
	since   time.Time // results of the chosen stages from before it do not count
	reopens bool      // an earlier run may have left results that did not come to the journal
}

// Open checks the command and the items, and finds what earlier runs in the directory did. It runs nothing.
func Open(cfg Config) (*Exec, error) {
	x := newExec(cfg)
	if err := x.prepare(); err != nil {
		return nil, err
	}
	input, err := openInput(x)
	if err != nil {
		return nil, err
	}
	x.input = input
	if err := x.openState(); err != nil {
		x.input.close()
		return nil, err
	}
	if err := x.openRunner(); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	return x, nil
}

func newExec(cfg Config) *Exec {
	if cfg.Command.Run == nil {
		cfg.Command.Run = command.Run
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Exec{cfg: cfg, log: cfg.Logger, tally: newTally()}
}

// prepare reads the command.
func (x *Exec) prepare() (err error) {
	cfg := &x.cfg
	if x.template, err = cfg.Command.parse(); err != nil {
		return &fault.FieldError{Field: "Command", Err: err}
	}
	if cfg.Command.Persistent && x.template.values {
		return &fault.FieldError{Field: "Command", Err: errValues}
	}
	if _, err := command.Find(x.literal()); err != nil {
		return &fault.FieldError{Field: "Command", Err: err}
	}
	if cfg.Verdict.CLI == nil {
		cfg.Verdict.CLI = agents.Recognise(cfg.Command.Args[0])
	}
	if cfg.Verdict.ResultFile != "" {
		x.template.file = pieces(cfg.Verdict.ResultFile)
	}
	if x.dir, err = filepath.Abs(cfg.Dir); err != nil {
		return &fault.FieldError{Field: "Dir", Err: err}
	}
	x.settings = cfg.hash()
	x.lane = newLane(cfg)
	x.probe = newProbe(x)
	return nil
}

// errValues refuses items in the words of a command that stays.
var errValues = errors.New("a persistent command reads its items from standard input, and cannot contain placeholders such as {name}: write {{name}} for a literal {name}")

// literal is the program that is run, as Find wants it.
func (x *Exec) literal() []string { return []string{x.template.words[0][0].text} }

// literals are the command's words of a run whose items are not in them.
func (x *Exec) literals() (words []string) {
	for _, word := range x.template.words {
		words = append(words, word[0].text)
	}
	return words
}

// hash returns the hash of the settings that the results depend on: not concurrency, attempts or timeouts.
func (c *Config) hash() work.Hash {
	parts := [][]byte{[]byte("exec 1\x00")}
	add := func(s string) { parts = append(parts, []byte(s), []byte{0}) }
	for _, word := range c.Command.Args {
		add(word)
	}
	for _, set := range []struct {
		on   bool
		name string
	}{{c.Command.Stdin, "stdin"}, {c.Command.Persistent, "persistent"}} {
		if set.on {
			add("\x01" + set.name)
		}
	}
	add("\x01result-file " + c.Verdict.ResultFile)
	return work.HashOf(slices.Concat(parts...))
}

// spec is what all commands have in common.
func (x *Exec) spec() command.Spec {
	return command.Spec{Env: slices.Clip(x.cfg.Command.Env), Grace: commandGrace}
}

// openRunner makes what runs the items.
func (x *Exec) openRunner() (err error) {
	cfg := &x.cfg
	if cfg.Command.Persistent {
		spec := x.spec()
		spec.Args = x.literals()
		x.workers = newWorkers(workersConfig{Run: cfg.Command.Run, Spec: spec, Log: x.log})
	}
	x.guard = x.newGuard()
	x.runner, err = work.New(work.Config{
		Handler: work.NewCalls(work.CallsConfig{Scheduler: cfg.Limits.Scheduler, Attempt: x.attempt, Ration: x.guard.Ration()}),
		Feed:    x.input.feed, Earlier: x.earlier,
		Workers: cfg.Workers, Journal: x.journal, Encode: x.encode, Accept: x.keep, OnResult: x.recorded, Observer: cfg.Observer,
		Failed: func() { x.guard.Finished(true) }, Name: "exec", Pauses: cfg.Pauses, Outlook: x.Outlook, Logger: x.log, Conclude: x.conclude,
	})
	return err
}

// earlier returns the number of all items, zero while it is unknown, and the numbers of items that earlier runs recorded.
func (x *Exec) earlier() (total, recorded, failed int) {
	recorded, failed = x.tally.already()
	return x.input.known(), recorded, failed
}

// recorded counts a result that is in the journal.
func (x *Exec) recorded(r *work.Result) {
	t, _ := r.Data.(*try)
	stage := ""
	if t != nil {
		stage = t.stage
	}
	x.tally.add(r.ID, stage, r.Kind, stateOf(r.Kind, t != nil && t.quarantined))
	x.input.settle(int(r.Seq)-1, r.Kind == sluice.OK)
	if r.Kind == sluice.OK { // a failure was counted before
		x.guard.Finished(false)
	}
	if x.cfg.OnResult != nil {
		x.cfg.OnResult(r)
	}
}

// Run runs the items without a result, and reports on all runs in the directory.
func (x *Exec) Run(ctx context.Context) (Report, error) {
	x.honour()
	defer x.guard.Watch()()
	done, err := x.runner.Run(ctx)
	rep := x.report(done)
	if wrong := writeJSON(ReportPath(x.dir), rep); wrong != nil && err == nil {
		err = wrong
	}
	return rep, err
}

// conclude is what there is to say of a run that recorded all that it took in.
func (x *Exec) conclude() error {
	if err := x.endRerun(); err != nil {
		return err
	}
	if blocked := x.input.blocked(); len(blocked) > 0 {
		return &BlockedError{Blocked: blocked}
	}
	return nil
}

// Drain lets commands that run end, and starts no more.
func (x *Exec) Drain() {
	x.runner.Drain()
	x.lane.drain()
}

// Stop is Drain for a reason, which the run returns.
func (x *Exec) Stop(cause error) {
	x.runner.Stop(cause)
	x.lane.drain()
}

// Progress says how far the run is.
func (x *Exec) Progress() work.Report { return x.runner.Report() }

// Outlook returns what the agent states of the usage windows of its account: the share used and the reset of each.
func (x *Exec) Outlook() string { return x.lane.outlook(time.Now()) }

// Alike reports whether all commands have the same words and no standard input: only what the environment says of its item tells
// one from another.
func (x *Exec) Alike() bool {
	return !x.cfg.Command.Persistent && !x.cfg.Command.Stdin && !x.template.values
}

// Total is how many items there are; 0 while standard input may bring more.
func (x *Exec) Total() int { return x.input.known() }

// Close lets go of the directory. It must come after Run.
func (x *Exec) Close() error {
	var errs []error
	if x.workers != nil {
		errs = append(errs, x.workers.Close())
	}
	if x.journal != nil {
		errs = append(errs, x.journal.Close())
	}
	x.input.close()
	return errors.Join(errs...)
}
