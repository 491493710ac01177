package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
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
