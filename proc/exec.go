// Package proc runs commands as items: coding agents, scripts, or programs that stay and take one item after the other.
//
// Each command runs in a process group of its own, which ends with it, under a permit of a Scheduler. However it ends, its end
// becomes a result: what it wrote is read for what it says of limits, and a limit pauses all commands until it resets, is
// never a result, and never costs an item one of its attempts. What became of every item stands in a directory that the same
// run goes on from.
package proc

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/work"
)

// Config configures an Exec. Items, Dir, Command and Scheduler are required.
type Config struct {
	Items  string    // path of the file with the items; "-" is Stdin
	Stdin  io.Reader // for Items "-". Its last Read may outlive a run that is stopped
	Format Format

	// Dir is the directory of the run. Open makes it if it is missing. See ResultsPath for its contents.
	Dir string

	Command Command
	CLI     *CLI // reads the output. Default: recognised by the command's name

	// Persistent has each process take one item after the other, as JSON lines. Silence is how long it may say nothing
	// meanwhile. Default 60 s.
	Persistent bool
	Silence    time.Duration

	// ResultFile is a file in which a command says what became of it, as a word of Command. A relative one is below the
	// item's directory or, where it is not there, below the command's.
	ResultFile string

	// Output is how much of each of a command's streams is kept. Default 16 MiB.
	Output int64

	// Scheduler admits the commands. It does not give an item up for throttles alone: its MaxThrottles is high.
	Scheduler *sluice.Scheduler
	Lane      string // in which all commands are

	Preflight Preflight

	// Windows are the account's usage windows. Nil: none are kept. PaceWindow spreads their remaining allowance over the time to
	// their resets.
	Windows    *Windows
	PaceWindow bool

	// Run runs a command. Default: command.Run. That of a *command.Guard ends all that commands leave behind.
	Run func(context.Context, command.Spec) (command.Result, error)

	Only []string // tiers that run again, alone
	From string   // a tier that runs again, with all that needs it

	Forget bool // limits that an earlier run met and that are not over are not waited for

	RetryFailed bool    // items that failed run again; the first new result drops theirs
	Changed     Changed // what happens to items that changed, or whose command did
	Limit       int     // number of items that run, from the first; 0 means all

	Sync    work.SyncMode
	Workers int // see work.Config

	OnResult func(*work.Result) // see work.Config
	Observer sluice.Observer    // see work.Config; the Scheduler has its own
	Pauses   *work.Pauses       // see work.Config
	Control  string             // see work.Config
	Logger   *slog.Logger       // nil discards
}

// Format says how the items are parted.
type Format = rows.Format

// Formats.
const (
	FormatByName = rows.FormatByName // FormatCSV for .csv, FormatTSV for .tsv, with .gz or .zst behind it or not; else FormatLines
	FormatLines  = rows.FormatLines  // lines, each recognised by itself
	FormatText   = rows.FormatText   // lines of plain text, whatever they begin with
	FormatCSV    = rows.FormatCSV    // a table: the first line names its columns
	FormatTSV    = rows.FormatTSV    // a table whose columns are parted by tabs
)

// Changed says what happens to items that changed since they were done, or whose command did.
type Changed = rows.Changed

// What may happen to them.
const (
	ChangedRefused = rows.ChangedRefused // the run is refused
	ChangedRedo    = rows.ChangedRedo    // they run again
	ChangedKeep    = rows.ChangedKeep    // their results stay
)

// Exec is a run of commands over items. Use Open, then Run once, then Close.
type Exec struct {
	cfg      Config
	log      *slog.Logger
	dir      string // absolute
	template *template
	file     []piece // of ResultFile
	settings work.Hash

	input   *input
	journal *work.Journal
	runner  *work.Runner
	probe   *probe
	lane    *lane
	workers *workers
	tally   *tally
	since   time.Time // results of the chosen tiers from before it do not count
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
	cfg.Output = cmp.Or(cfg.Output, usualOutput)
	cfg.Command.Grace = cmp.Or(cfg.Command.Grace, commandGrace)
	if cfg.Run == nil {
		cfg.Run = command.Run
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
		return &ConfigError{Field: "Command", Err: err}
	}
	if cfg.Persistent && x.template.values {
		return &ConfigError{Field: "Command", Err: errValues}
	}
	if _, err := command.Find(cfg.Command.Dir, x.literal()); err != nil {
		return &ConfigError{Field: "Command", Err: err}
	}
	if cfg.CLI == nil {
		cfg.CLI = recognise(&cfg.Command)
	}
	if cfg.ResultFile != "" {
		x.file = pieces(cfg.ResultFile)
	}
	if x.dir, err = filepath.Abs(cfg.Dir); err != nil {
		return &ConfigError{Field: "Dir", Err: err}
	}
	x.settings = cfg.hash()
	x.lane = newLane(cfg, x.log)
	x.probe = newProbe(x)
	return nil
}

// errValues refuses items in the words of a command that stays.
var errValues = errors.New("a word is of an item: a process that stays gets items as JSON lines on standard input, and {{name}} is {name} itself")

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
	}{{c.Command.Shell, "shell"}, {c.Command.Stdin, "stdin"}, {c.Persistent, "persistent"}} {
		if set.on {
			add("\x01" + set.name)
		}
	}
	add("\x01result-file " + c.ResultFile)
	return work.HashOf(slices.Concat(parts...))
}

// spec is what all commands have in common.
func (x *Exec) spec() command.Spec {
	c := &x.cfg.Command
	return command.Spec{
		Dir: c.Dir, Env: slices.Clip(c.Env), Grace: c.Grace, Memory: c.Memory, CPU: c.CPU,
	}
}

// openRunner makes what runs the items.
func (x *Exec) openRunner() (err error) {
	cfg := &x.cfg
	if cfg.Persistent {
		spec := x.spec()
		spec.Args = x.literals()
		x.workers = newWorkers(workersConfig{Run: cfg.Run, Spec: spec, Silence: cfg.Silence, Log: x.log})
	}
	x.runner, err = work.New(work.Config{
		Handler: work.Calls(cfg.Scheduler, x.attempt), Feed: x.input.feed, Total: x.input.known(), Already: x.tally.already(),
		AlreadyFailed: x.tally.alreadyFailed, Workers: cfg.Workers, Journal: x.journal, Encode: x.encode, Accept: x.keep, OnResult: x.recorded, Observer: cfg.Observer,
		Name: "exec", Control: cfg.Control, Pauses: cfg.Pauses, Outlook: x.Outlook, Logger: x.log, Conclude: x.conclude,
	})
	return err
}

// recorded counts a result that is in the journal.
func (x *Exec) recorded(r *work.Result) {
	t, _ := r.Data.(*try)
	tier := ""
	if t != nil {
		tier = t.tier
	}
	x.tally.add(r.ID, tier, r.Kind, stateOf(r.Kind, t != nil && t.quarantined))
	x.input.settle(int(r.Seq)-1, r.Kind == sluice.OK)
	if x.cfg.OnResult != nil {
		x.cfg.OnResult(r)
	}
}

// Run runs the items without a result, and reports on all runs in the directory.
func (x *Exec) Run(ctx context.Context) (Report, error) {
	x.honour()
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
func (x *Exec) Progress() work.Progress { return x.runner.Progress() }

// Outlook says how long the first usage window lasts that does not last until its reset, at the pace of late, or else the
// first of which enough is known, and when the next command starts where PaceWindow holds it back; "" where nothing is known.
func (x *Exec) Outlook() string {
	if x.cfg.Windows == nil {
		return ""
	}
	now := time.Now()
	var parts []string
	all := x.cfg.Windows.Forecasts(now)
	at := slices.IndexFunc(all, func(f Forecast) bool { return !f.EndsAt.IsZero() })
	if len(all) > 0 {
		f := all[max(at, 0)]
		parts = append(parts, f.String()+" ("+f.Detail()+")")
	}
	if next := x.lane.paced(); next.After(now) {
		parts = append(parts, "paced: the next command starts "+clock(next, now))
	}
	return strings.Join(parts, "; ")
}

// Alike reports whether all commands have the same words and no standard input: only what the environment says of its item tells
// one from another.
func (x *Exec) Alike() bool { return !x.cfg.Persistent && !x.cfg.Command.Stdin && !x.template.values }

// Total is how many items there are; 0 while standard input may bring more.
func (x *Exec) Total() int { return x.input.known() }

// Already is how many of them earlier runs did.
func (x *Exec) Already() int { return x.tally.already() }

// Close lets go of the directory. It must come after Run.
func (x *Exec) Close() error {
	var errs []error
	if x.cfg.Windows != nil && x.runner != nil {
		x.lane.saveWindows()
	}
	if x.workers != nil {
		errs = append(errs, x.workers.Close())
	}
	if x.journal != nil {
		errs = append(errs, x.journal.Close())
	}
	x.input.close()
	return errors.Join(errs...)
}
