package proc

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/work"
)

// job is an item that is left to do.
type job struct {
	args       []string
	stdin      []byte // nil: none
	item       json.RawMessage
	text       string // the item, for the environment
	tier       string
	dir        itemDir
	resultFile string // "" is none
}

// try is one run of a job.
type try struct {
	number         int
	started, ended time.Time
	end            command.Result
	ran            bool
	meaning        Meaning
	answer         json.RawMessage // of a persistent worker
	cause          error           // how a persistent worker ended, where it did
	quarantined    bool
	tier           string
	adopted        bool // it was made by an earlier run, which did not come to write it to the results
	result         *Result
}

// EndError is how a command failed.
type EndError struct {
	Kind  sluice.Kind
	Text  string
	From  string    // where that was read
	Until time.Time // when a limit resets; zero where nobody says
	Err   error     // nil: Text is all
}

// Unwrap returns what is behind it.
func (e *EndError) Unwrap() error { return e.Err }

// Error says what the command said.
func (e *EndError) Error() string { return e.Text }

// Source says where it was read.
func (e *EndError) Source() string { return e.From }

// attempt runs a job's command once, under a permit.
func (x *Exec) attempt(ctx context.Context, permit *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
	if o, limited := x.probe.pass(ctx); limited {
		return work.Result{}, o
	}
	if !x.lane.pace(ctx) {
		return work.Result{}, sluice.Outcome{Kind: sluice.Network, Unsent: true, Abandoned: true, Err: errNotPaced}
	}
	if ctx.Err() != nil {
		return work.Result{}, abandoned(ctx)
	}
	j := item.Data.(*job)
	t := &try{number: permit.Attempt(), started: time.Now(), tier: j.tier}
	result := work.Result{Data: t}
	err := j.dir.begin()
	if err == nil {
		permit.Sent()
		err = x.run(ctx, t, j, item.ID)
	}
	t.ended = time.Now()
	switch {
	case ctx.Err() != nil && (t.meaning.Kind != sluice.OK || t.end.Asked): // some end well when they are asked to, half done
		return result, abandoned(ctx)
	case err != nil:
		return result, x.broken(err)
	}
	result.Payload, result.Status = t.answer, max(0, t.end.ExitCode)
	o := x.outcome(t)
	if o.Kind != sluice.OK {
		if err := x.keepTry(item, j, t, &o); err != nil {
			return result, x.broken(err)
		}
	}
	return result, o
}

// errNotPaced is why a command was not started that waited for its turn in a usage window: the run ends before.
var errNotPaced = errors.New("the run ended before the command's turn in the usage window")

// abandoned is the outcome of a try that was given up: it says nothing of the provider, and the item is left to do.
func abandoned(ctx context.Context) sluice.Outcome {
	return sluice.Outcome{Kind: sluice.Network, Err: context.Cause(ctx), Abandoned: true, Final: true}
}

// broken stops the run: nothing can be kept of what would be done, or nothing can be started.
func (x *Exec) broken(err error) sluice.Outcome {
	x.Stop(err)
	return sluice.Outcome{Kind: sluice.Network, Err: err, Abandoned: true}
}

// run runs the command and reads its end. Its error is one of the run, not of the item.
func (x *Exec) run(ctx context.Context, t *try, j *job, id string) error {
	if x.workers != nil {
		return x.ask(ctx, t, j, id)
	}
	out, err := newSpool(filepath.Join(j.dir.path, stdoutName), x.cfg.Output)
	if err != nil {
		return err
	}
	errs, err := newSpool(filepath.Join(j.dir.path, stderrName), x.cfg.Output)
	if err != nil {
		return errors.Join(err, out.close())
	}
	spec := x.spec()
	spec.Args = j.args
	spec.Env = append(spec.Env, j.environment(id, t.number)...)
	spec.Stdout, spec.Stderr = out.write, errs.write
	spec.Started = func(*os.Process) {
		out.started()
		errs.started()
	}
	if j.stdin != nil {
		spec.Stdin = strings.NewReader(string(j.stdin))
	}
	before := x.recordsBefore(j)
	limited, done := within(ctx, x.cfg.Command.Timeout)
	defer done()
	t.end, err = command.Run(limited, spec)
	timedOut := t.end.Asked && ctx.Err() == nil
	if wrong := errors.Join(out.close(), errs.close()); wrong != nil {
		return wrong
	}
	if refused, ok := errors.AsType[*command.NotStartedError](err); ok {
		return t.notStarted(refused)
	}
	t.ran = true
	end := End{ExitCode: t.end.ExitCode, Signal: t.end.Signal, TimedOut: timedOut, Stdout: out.kept, Stderr: errs.kept}
	end.Records = x.records(j, before)
	t.meaning = x.cfg.CLI.Read(end, time.Now())
	return nil
}

// within returns a context that ends after d, unless that is zero.
func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}

// notStarted says what it means for the item that its command could not be started. Where no other item's can either, it is
// an error.
func (t *try) notStarted(err *command.NotStartedError) error {
	t.end.ExitCode = -1
	switch {
	case errors.Is(err, syscall.E2BIG):
		t.meaning = Meaning{Kind: sluice.BadRequest, Source: "start", Text: err.Error() + ": the item is too long for a word of a command: give it by --stdin"}
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM), errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		// The system takes no more at once: fewer are run.
		t.meaning = Meaning{Kind: sluice.RateLimit, Dimension: sluice.Concurrency, Source: "start", Text: err.Error()}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, exec.ErrNotFound):
		return err
	default:
		t.meaning = Meaning{Kind: sluice.CommandFailed, Source: "start", Text: err.Error()}
	}
	return nil
}

// mostVariable is how long an item may be that a variable holds.
const mostVariable = 64 << 10

// environment tells the command of its item.
func (j *job) environment(id string, attempt int) []string {
	env := []string{"SLUICE_ITEM_DIR=" + j.dir.path, "SLUICE_ATTEMPT=" + strconv.Itoa(attempt)}
	for name, value := range map[string]string{"SLUICE_ITEM": j.text, "SLUICE_ITEM_ID": id, "SLUICE_ITEM_TIER": j.tier} {
		if len(value) <= mostVariable && !strings.ContainsRune(value, 0) {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// outcome is what the Scheduler is told of a try.
func (x *Exec) outcome(t *try) sluice.Outcome {
	m := &t.meaning
	o := sluice.Outcome{
		Kind: m.Kind, Wait: m.Wait, Until: m.Until, Dimension: m.Dimension, Usage: m.Usage, HasUsage: m.HasUsage,
		Abandoned: m.Kind == sluice.Timeout, // a command that takes too long is no sign that the provider is away
		Final:     t.quarantined,
	}
	x.lane.ended(t, &o)
	if o.Kind != sluice.OK && o.Err == nil {
		o.Err = &EndError{Err: t.cause, Kind: o.Kind, Text: m.Text, From: m.Source, Until: o.Until}
	}
	return o
}

// keepTry writes what became of a try that failed: it is the last word where a kill ends all.
func (x *Exec) keepTry(item work.Item, j *job, t *try, o *sluice.Outcome) error {
	rec := &Result{
		ID: item.ID, Line: item.Seq, Kind: o.Kind, State: stateOf(o.Kind, t.quarantined), Input: item.Hash.String(), Dir: j.dir.name,
		Tier: j.tier, Attempts: t.number, Fault: faultOf(o.Kind, o.Err),
	}
	if o.HasUsage {
		rec.InputTokens, rec.OutputTokens = o.Usage.Input, o.Usage.Output
	}
	t.describe(rec)
	rec.Latency = millis(t.ended.Sub(t.started))
	x.tally.met(item.ID, j.tier, rec.State)
	if err := own(j.dir.path); err != nil { // the command may have removed it
		return err
	}
	return writeJSON(filepath.Join(j.dir.path, resultName), rec)
}

// describe adds to a record what is known of the try.
func (t *try) describe(rec *Result) {
	if t.adopted {
		*rec = *t.result
		return
	}
	if t.ran && t.end.ExitCode >= 0 {
		rec.ExitCode = &t.end.ExitCode
	}
	rec.Signal, rec.CPU, rec.MaxRSS = t.end.Signal, millis(t.end.CPU), t.end.MaxRSS
	rec.Started, rec.Ended, rec.Tier, rec.Result = t.started.UTC(), t.ended.UTC(), t.tier, t.answer
}

// mostRecord is how much of a file is read in which a command says what became of it.
const mostRecord = 1 << 20

// recordNames are the files in which a command may say what became of it: the one that is named, and those of tries of its own
// that it put aside as failed.
func (x *Exec) recordNames(j *job) []string {
	var names []string
	switch {
	case j.resultFile == "":
	case filepath.IsAbs(j.resultFile):
		names = append(names, j.resultFile)
	default:
		names = append(names, filepath.Join(j.dir.path, j.resultFile), filepath.Join(x.cfg.Command.Dir, j.resultFile))
	}
	for _, pattern := range []string{"*/result.json", "*/*/result.json"} {
		found, _ := filepath.Glob(filepath.Join(globQuote(j.dir.path), failedName, pattern))
		names = append(names, found...)
	}
	return names
}

// recordsBefore is which of them there are before a try: they are not of it. Among them are the results of the tries before, which
// are ours.
func (x *Exec) recordsBefore(j *job) map[string]fs.FileInfo {
	before := make(map[string]fs.FileInfo)
	for _, name := range x.recordNames(j) {
		if info, err := os.Stat(name); err == nil {
			before[name] = info
		}
	}
	return before
}

// records reads those that a try wrote.
func (x *Exec) records(j *job, before map[string]fs.FileInfo) []Record {
	var all []Record
	for _, name := range x.recordNames(j) {
		info, err := os.Stat(name)
		if err != nil || !info.Mode().IsRegular() || info.Size() > mostRecord {
			continue
		}
		was := before[name]
		if was != nil && os.SameFile(was, info) && was.Size() == info.Size() && was.ModTime().Equal(info.ModTime()) {
			continue
		}
		if body, err := os.ReadFile(name); err == nil {
			all = append(all, Record{Name: name, Body: body})
		}
	}
	return all
}
