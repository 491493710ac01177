package proc

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/proc/agents"
	"github.com/sluice-llm/sluice/provider"
)

// ask has a persistent worker do a job. Its error is one of the run, not of the item.
func (x *Exec) ask(ctx context.Context, t *try, j *job, id string) error {
	said, err := os.OpenFile(filepath.Join(j.dir.path, stderrName), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer said.Close()
	limited, done := within(ctx, x.cfg.Command.Timeout)
	defer done()
	a, err := x.workers.Call(limited, request{ID: id, Attempt: t.number, Item: j.item, Stderr: said})
	timedOut := limited.Err() != nil && ctx.Err() == nil
	t.end.ExitCode = -1 // a worker lives on
	switch {
	case err == nil:
		t.answered(&a)
		x.check(t, func() provider.Reply { return provider.Reply{Text: plain(a.Result)} })
		return nil
	case timedOut:
		t.meaning = agents.Meaning{Kind: sluice.Timeout, Source: "timeout", Text: "no result within " + x.cfg.Command.Timeout.String()}
		return nil
	case ctx.Err() != nil:
		t.meaning = agents.Meaning{Kind: sluice.Network, Text: err.Error()}
		return nil
	}
	if futile, ok := errors.AsType[*futileError](err); ok {
		return futile
	}
	if missing, ok := errors.AsType[*command.NotStartedError](err); ok {
		return t.notStarted(missing)
	}
	if short(err) {
		return err
	}
	t.failed(err)
	return nil
}

// failed takes in how a worker ended with the job in hand.
func (t *try) failed(err error) {
	t.meaning = agents.Meaning{Kind: sluice.CommandFailed, Source: "worker", Text: err.Error()}
	t.cause = err
	if _, ok := errors.AsType[*silentError](err); ok {
		t.meaning.Kind = sluice.Timeout
	}
	if died, ok := errors.AsType[*workerDiedError](err); ok {
		t.ran, t.end.ExitCode, t.end.Signal = true, died.ExitCode, died.Signal
	}
	if _, ok := errors.AsType[*quarantinedError](err); ok {
		t.meaning.Kind, t.quarantined = sluice.CommandFailed, true
	}
}

// answered takes in what a worker said of the job.
func (t *try) answered(a *answer) {
	t.meaning, t.answer = a.Meaning, a.Result
	if !a.OK {
		t.meaning.Source = "worker"
		t.meaning.Kind = cmp.Or(a.Kind, sluice.CommandFailed)
		t.meaning.Text = cmp.Or(a.Text, "the worker reported a failure without a reason")
	}
}
