package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/command"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/proc"
	"github.com/sluice-llm/sluice/internal/rows"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
)

// explain gives an error of a run its exit code and a hint of what to do.
func (o *execOptions) explain(err error) *fault.Error {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e
	}
	again := "resume with the same command: " + o.command()
	e := fault.Of(err)
	if stopped, ok := errors.AsType[*work.StoppedError](err); ok {
		e.Err = stopped.Err
		e.Hint = again
		switch stopped.Kind {
		case sluice.Auth:
			e.Err = fmt.Errorf("%s is not logged in, or its key was rejected: %w", o.cfg.Command.Args[0], stopped.Err)
			e.Hint = "log in, or correct the key, then " + again
		case sluice.QuotaExhausted:
			e.Err = fmt.Errorf("the account's quota is spent: %w", stopped.Err)
			e.Hint = "add credit, or raise the spending cap of the account, then " + again
		}
		err = stopped.Err
	}
	if spent, ok := errors.AsType[*batch.BudgetError](err); ok {
		explainBudget(e, spent)
		return e
	}
	if wrong, ok := errors.AsType[*proc.ConfigError](err); ok {
		e.Code, e.Err = fault.Value, wrong.Err
		e.Hint = o.configHint(wrong)
		return e
	}
	if missing, ok := errors.AsType[*command.NotStartedError](err); ok {
		e.Err = missing
		e.Hint = "check that the program exists and is executable, then " + again
		return e
	}
	switch {
	case fault.Is[*rows.Error](err), fault.Is[*rows.ChangedError](err):
		e.Code, e.List = fault.Input, true
	case fault.Is[*proc.DirectoryError](err), fault.Is[*proc.HungError](err):
		e.Code = fault.InUse
	case explainRun(e, err, again, "another directory with --state"):
	case fault.Is[*fs.PathError](err):
		e.Hint = "check that --state is a directory that you can write to, then " + again
	}
	return e
}

// configHint says what to do about a field that is wrong.
func (o *execOptions) configHint(wrong *proc.ConfigError) string {
	if hint := fault.HintOf(wrong.Err); hint != "" {
		return hint
	}
	switch _, missing := errors.AsType[*command.NotStartedError](wrong.Err); {
	case missing:
		return "name an executable in PATH or by its path, or run a shell command with sh -c"
	case wrong.Field == "Items":
		return "set --items to a file of lines, JSON objects or a table, or to - for standard input"
	case wrong.Field == "Only", wrong.Field == "From":
		return "set --stage and --from-stage to stages of the items"
	}
	return "see sluice exec --help"
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
