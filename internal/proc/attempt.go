package proc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// job is an item that is left to do.
type job struct {
	args       []string
	stdin      []byte // nil: none
	item       json.RawMessage
	text       string // the item, for the environment
	stage      string
	dir        itemDir
	resultFile string // "" is none

	cost   float64 // of its tries so far, in dollars
	costed bool    // some try said

	limits streak // of its last tries
}

// try is one run of a job.
type try struct {
	number         int
	started, ended time.Time
	end            command.Result
	ran            bool
	meaning        agents.Meaning
	answer         json.RawMessage // of a persistent worker
	cause          error           // how a persistent worker ended, where it did
	quarantined    bool
	stage          string
	adopted        bool // it was made by an earlier run, which did not come to write it to the results
	result         *Result
}

// EndError is how a command failed.
type EndError struct {
	Text  string
	From  string    // where that was read
	Until time.Time // when a limit resets, or the next attempt where that is not stated; zero of another end

	Err    error // nil: Text is all
	stated bool
}

// Unwrap returns what is behind it.
func (e *EndError) Unwrap() error { return e.Err }

// Error says what the command said.
func (e *EndError) Error() string { return e.Text }

// Source says where it was read.
func (e *EndError) Source() string { return e.From }

// Stated reports whether Until rests on what the command said.
func (e *EndError) Stated() bool { return e.stated }

// attempt runs a job's command once, under a permit.
func (x *Exec) attempt(ctx context.Context, permit *sluice.Permit, item work.Item) (work.Result, sluice.Outcome) {
	if o, held := x.hold(ctx); held {
		return work.Result{}, o
	}
	j := item.Data.(*job)
	t := &try{number: permit.Attempt(), started: time.Now(), stage: j.stage}
	result := work.Result{Data: t}
	err := j.dir.begin()
	if err == nil {
		permit.Sent()
		err = x.run(ctx, t, j, item.ID)
	}
	if short(err) {
		t.meaning, err = fewer(err), nil
	}
	t.ended = time.Now()
	if t.meaning.HasCost {
		j.cost, j.costed = prose.RoundDollars(j.cost+t.meaning.Cost), true
	}
	result.Cost, result.HasCost = j.cost, j.costed
	switch {
	case ctx.Err() != nil && (t.meaning.Kind != sluice.OK || t.end.Asked): // some end well when they are asked to, half done
		return result, abandoned(ctx)
	case err != nil:
		return result, x.broken(err)
	}
	x.lane.bound(&j.limits, t)
	o, another := x.outcome(t)
	j.limits.reset = o.Until
	if another { // to the Scheduler, what a command says that started before a pause only lengthens that
		x.pause(o)
	}
	if o.Kind == sluice.UsageWindow || o.Kind == sluice.RateLimit && o.Dimension != limits.Concurrency {
		x.probe.again()
	}
	if o.Kind != sluice.OK {
		if err := x.keepTry(item, j, t, &o); err != nil {
			return result, x.broken(err)
		}
	}
	return result, o
}

// hold keeps a command that has its permit until it may start, or says why it may not.
func (x *Exec) hold(ctx context.Context) (o sluice.Outcome, held bool) {
	ctx, done := x.lane.starting(ctx)
	defer done()
	if o, limited := x.probe.pass(ctx); limited {
		return o, true
	}
	switch {
	case ctx.Err() != nil:
		return unstarted(), true
	case x.cfg.Limits.Preflight != nil && x.lane.paused(): // since it has the permit: it waits for another
		return later(), true
	}
	return o, false
}

// later is the outcome of a try that did not start because of a pause that the Scheduler knows of: the item waits for another permit.
func later() sluice.Outcome {
	return sluice.Outcome{Kind: sluice.RateLimit, Unsent: true, Abandoned: true}
}

// unstarted is the outcome of a try that did not begin before the run ended: the item is left to do, whether it has attempts
// left or not.
func unstarted() sluice.Outcome {
	return sluice.Outcome{Kind: sluice.Network, Err: context.Canceled, Unsent: true, Abandoned: true, Final: true}
}

// abandoned is the outcome of a try that was given up: it says nothing of the provider, and the item is left to do.
func abandoned(ctx context.Context) sluice.Outcome {
	return sluice.Outcome{Kind: sluice.Network, Err: context.Cause(ctx), Abandoned: true, Final: true}
}

// broken stops the run: nothing can be kept of what would be done, or nothing can be started. The item is left to do.
func (x *Exec) broken(err error) sluice.Outcome {
	x.Stop(err)
	return sluice.Outcome{Kind: sluice.Network, Err: fmt.Errorf("%w: %w", context.Canceled, err), Abandoned: true, Final: true}
}

// run runs the command and reads its end. Its error is one of the run, not of the item.
func (x *Exec) run(ctx context.Context, t *try, j *job, id string) error {
	if x.workers != nil {
		return x.ask(ctx, t, j, id)
	}
	out, err := newSpool(filepath.Join(j.dir.path, stdoutName), maxOutput)
	if err != nil {
		return err
	}
	errs, err := newSpool(filepath.Join(j.dir.path, stderrName), maxOutput)
	if err != nil {
		_, wrong := out.close()
		return errors.Join(err, wrong)
	}
	spec := x.spec()
	spec.Args = j.args
	spec.Env = append(spec.Env, j.environment(id, t.number)...)
	spec.Stdout, spec.Stderr, spec.NoLinger = out, errs, true
	if j.stdin != nil {
		spec.Stdin = strings.NewReader(string(j.stdin))
	}
	leave := x.claims.take(x.sharedFile(j))
	defer leave()
	files := x.watch(j)
	limited, done := within(ctx, x.cfg.Command.Timeout)
	defer done()
	t.end, err = x.cfg.Command.Run(limited, spec)
	cut := err != nil && limited.Err() != nil // it was asked to end, which it may have done in good order
	stdout, outErr := out.close()
	stderr, errsErr := errs.close()
	if wrong := errors.Join(outErr, errsErr); wrong != nil {
		return wrong
	}
	if cut && ctx.Err() != nil {
		t.meaning = agents.Meaning{Kind: sluice.Network, Text: err.Error()}
		return nil
	}
	if refused, ok := errors.AsType[*command.NotStartedError](err); ok && !cut {
		return t.notStarted(refused)
	}
	t.ran = true
	t.meaning = x.cfg.Verdict.CLI.Read(agents.End{
		ExitCode: t.end.ExitCode, Signal: t.end.Signal, TimedOut: cut, Stdout: stdout, Stderr: stderr, Records: files.read(leave()),
	}, time.Now())
	x.check(t, func() provider.Reply { return x.cfg.Verdict.CLI.Reply(stdout) })
	return nil
}

// check holds the answer of a command that ended well to Config.Check.
func (x *Exec) check(t *try, answer func() provider.Reply) {
	if x.cfg.Verdict.Check == nil || t.meaning.Kind != sluice.OK {
		return
	}
	if err := x.cfg.Verdict.Check(answer()); err != nil {
		t.meaning.Kind, t.meaning.Source, t.meaning.Text = sluice.InvalidOutput, "answer", err.Error()
	}
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
		t.meaning = agents.Meaning{Kind: sluice.BadRequest, Source: "start", Text: err.Error() + ": the item is too long for an argument: use --stdin"}
	case short(err):
		t.meaning = fewer(err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOEXEC):
		return err
	default:
		t.meaning = agents.Meaning{Kind: sluice.CommandFailed, Source: "start", Text: err.Error()}
	}
	return nil
}

// short reports whether the system is short of what an error says: it takes no more commands at once.
func short(err error) bool {
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// fewer has fewer commands run at once.
func fewer(err error) agents.Meaning {
	return agents.Meaning{Kind: sluice.RateLimit, Dimension: limits.Concurrency, Source: "start", Text: err.Error()}
}

// mostVariable is how long an item may be that a variable holds.
const mostVariable = 64 << 10

// environment tells the command of its item.
func (j *job) environment(id string, attempt int) []string {
	env := []string{"SLUICE_ITEM_DIR=" + j.dir.path, "SLUICE_ATTEMPT=" + strconv.Itoa(attempt)}
	for name, value := range map[string]string{"SLUICE_ITEM": j.text, "SLUICE_ITEM_ID": id, "SLUICE_ITEM_STAGE": j.stage} {
		if len(value) <= mostVariable && !strings.ContainsRune(value, 0) {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// outcome is what the Scheduler is told of a try. another says that it met another limit than that of the pause since it started.
func (x *Exec) outcome(t *try) (o sluice.Outcome, another bool) {
	m := &t.meaning
	o = sluice.Outcome{
		Kind: m.Kind, Wait: m.Wait, Until: m.Until, Dimension: m.Dimension, Usage: m.Usage, HasUsage: m.HasUsage,
		Abandoned: m.Kind == sluice.Timeout, // a command that takes too long is no sign that the provider is away
		Final:     t.quarantined,
	}
	another = x.lane.ended(t, &o)
	if o.Kind != sluice.OK {
		stated := m.Wait > 0 || o.Until.Sub(m.Until) <= resetSlack // else it is that of our own pause
		o.Err = &EndError{Err: t.cause, Text: m.Text, From: m.Source, Until: o.Until, stated: stated}
	}
	return o, another
}

// keepTry writes what became of a try that failed: it is the last word where a kill ends all.
func (x *Exec) keepTry(item work.Item, j *job, t *try, o *sluice.Outcome) error {
	rec := &Result{
		ID: item.ID, Line: item.Seq, Kind: o.Kind, State: stateOf(o.Kind, t.quarantined), Input: item.Hash.String(), Dir: j.dir.name,
		Stage: j.stage, Attempts: t.number, Fault: faultOf(o.Kind, o.Err),
	}
	if o.HasUsage {
		rec.InputTokens, rec.OutputTokens = o.Usage.Input, o.Usage.Output
	}
	if t.meaning.HasCost {
		rec.Cost = &t.meaning.Cost
	}
	t.describe(rec)
	rec.Latency = millis(t.ended.Sub(t.started))
	x.tally.met(item.ID, j.stage, rec.State)
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
	rec.Started, rec.Ended, rec.Stage, rec.Result = t.started.UTC(), t.ended.UTC(), t.stage, t.answer
}
