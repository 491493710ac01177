package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// explain returns the error of a run, with a hint in words of its command line.
func (o *execOptions) explain(err error) *fault.Error {
	e := fault.Of(err)
	if spent, ok := errors.AsType[*batch.BudgetError](err); ok {
		explainBudget(e, spent)
	}
	if stopped, ok := errors.AsType[*work.StoppedError](err); ok && e.Code == fault.KeyRejected {
		e.Err = fmt.Errorf("%s is not logged in, or its key was rejected: %w", o.cfg.Command.Args[0], stopped.Err)
	}
	return e.Say("another output", "another directory with --state", "check the key", "log in, or correct the key", sameCommand, sameCommand+": "+o.command())
}

// command returns the command line, with a change as that of a run has.
func (o *execOptions) command(change ...string) string {
	own := slices.Clone(o.args[:max(0, len(o.args)-len(o.cfg.Command.Args))])
	dashed := len(own) > 0 && own[len(own)-1] == "--"
	if dashed {
		own = own[:len(own)-1]
	}
	words := append(append(changeFlag(own, change...), "--"), o.cfg.Command.Args...)
	for i, word := range words {
		words[i] = term.Quote(word)
	}
	return "sluice " + strings.Join(words, " ")
}

// print writes the summary for people.
func (sum *execSummary) print(s *term.Streams) {
	if sum.Items == 0 && sum.Error == "" {
		s.Errorf("nothing to do: there are no items\n")
		return
	}
	s.Errorf("%s\n", doneText(&sum.Summary, sum.Succeeded-sum.Done))
	for _, stage := range sum.Stages {
		pass := ""
		if stage.PassRate != nil {
			pass = "pass rate " + prose.Percent(*stage.PassRate)
		}
		s.Row("stage", "%s: %s", stage.Stage, prose.Fields(doneText(&stage, 0), pass))
	}
	kinds := make(map[string]int)
	for kind, n := range sum.Kinds {
		kinds[kind.String()] = n
	}
	failedRows(s, kinds, sum.First)
	if sum.RateLimited > 0 {
		s.Row("limited", "%s without a recorded result: they run again on resume", prose.Count(sum.RateLimited, "item"))
	}
	if ran := sum.Run.Done + sum.Run.Failed; ran+sum.Left > 0 {
		thisRun(s, ran, ran, sum.WallMS, sum.Throttles)
		if sum.InputTokens+sum.OutputTokens > 0 {
			s.SubRow("tokens", "%s in, %s out", prose.Group(sum.InputTokens), prose.Group(sum.OutputTokens))
		}
		costRow(s, sum.Cost, sum.Costed, ran, "")
		if sum.Throttles > 0 {
			s.SubRow("paused", "%s", prose.Times(sum.Pauses))
		}
	}
	if sum.Outlook != "" {
		s.Row("usage", "%s", sum.Outlook)
	}
	s.Row("results", "%s", sum.Results)
	if sum.Error == "" && sum.Hint == "" {
		s.Errorf("next: sluice answers %s\n", term.Quote(sum.Dir))
	}
}

// doneText counts the items of a run or a stage by what became of them.
func doneText(t *proc.Summary, earlier int) string {
	return prose.Fields(earlierText(prose.Group(t.Succeeded)+" of "+prose.Group(t.Items)+" done", earlier),
		prose.If(t.Failed, prose.Group(t.Failed)+" failed"), prose.If(t.Quarantined, prose.Group(t.Quarantined)+" quarantined"),
		prose.If(t.Blocked, prose.Group(t.Blocked)+" blocked"), prose.If(t.Left-t.Blocked, prose.Group(t.Left-t.Blocked)+" remaining"))
}
