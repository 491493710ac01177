package cli

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// sameCommand is how hints of libraries name the command that resumes a run.
const sameCommand = "resume with the same command"

// commandLine is the command line of a run, for hints.
type commandLine struct {
	own  []string // arguments of Sluice
	rest []string // "--" and the command of exec
}

// with returns the command line as text, without a flag and its value, and with a new value if one is given.
func (c commandLine) with(change ...string) string {
	words := slices.Concat([]string{"sluice"}, changeFlag(c.own, change...), c.rest)
	for i, word := range words {
		words[i] = term.Quote(word)
	}
	return strings.Join(words, " ")
}

// resume returns the hint to repeat the command.
func (c commandLine) resume() string { return sameCommand + ": " + c.with() }

// changeFlag returns words without a flag and its value, and with its new value at the end if one is given. Without a flag, it returns a
// copy.
func changeFlag(words []string, change ...string) (all []string) {
	if len(change) == 0 {
		return slices.Clone(words)
	}
	flag := change[0]
	for i := 0; i < len(words); i++ {
		switch {
		case words[i] == flag:
			i++ // its value
		case !strings.HasPrefix(words[i], flag+"="):
			all = append(all, words[i])
		}
	}
	if len(change) > 1 {
		all = append(all, change...)
	}
	return all
}

// explain returns the error of a run, with a hint in words of its command line.
func explain(err error, o *runOptions, keys *account.Accounts) *fault.Error {
	e := fault.Of(err)
	if spent, ok := errors.AsType[*batch.BudgetError](err); ok {
		e.Hint = o.budgetHint(spent, nameBudget(e, spent))
		return e
	}
	return e.Say("another output", "another output with -o", "check the key", keyHint(keys, err), sameCommand, o.line().resume())
}

// keyHint names the rejected key.
func keyHint(a *account.Accounts, err error) string {
	if refused, ok := errors.AsType[*provider.Error](err); ok {
		if name := a.KeyFrom(refused.Provider); name != "" {
			return "check the key in " + name
		}
	}
	return "name the variable of the key with --key-env, or check the key in --header"
}

// nameBudget names the flag that stopped a run, and returns it.
func nameBudget(e *fault.Error, spent *batch.BudgetError) (flag string) {
	flag = "--" + strings.ReplaceAll(string(spent.What), "_", "-")
	e.Code, e.Err = fault.Cap, fmt.Errorf("stopped by %s: %w", flag, spent)
	return flag
}

// budgetHint says how to resume a run that a flag stopped.
func (o *runOptions) budgetHint(spent *batch.BudgetError, flag string) string {
	switch line := o.line(); {
	case spent.Alone():
		unit := 1.0
		if spent.Unit == "usd" {
			unit = 1e-6
		}
		enough := strconv.FormatFloat(math.Ceil((spent.Used.Used+spent.Next)/unit)*unit, 'f', int(-math.Log10(unit)), 64)
		return "limit responses with --max-tokens, or resume with a higher cap: " + line.with(flag, enough)
	case spent.What == batch.LimitedTime && o.budget.deadline.after == 0:
		return "resume without a deadline: " + line.with("--deadline")
	case spent.What == batch.LimitedFailures:
		return "check the errors, then send the failed items again: " + line.with("--redo", "failed")
	default:
		return sameCommand + ", which has a full new cap: " + line.with()
	}
}
