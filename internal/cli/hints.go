package cli

import (
	"errors"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// sameCommand is how hints of libraries name the command that resumes a run.
const sameCommand = "resume with the same command"

// explain returns the error of a run, with a hint in words of its command line.
func explain(err error, o *runOptions, keys *account.Accounts) *fault.Error {
	e := fault.Of(err)
	if spent, ok := errors.AsType[*batch.BudgetError](err); ok {
		o.explainBudget(e, spent)
		return e
	}
	return e.Say("another output", "another output with -o", "check the key", keyHint(keys, err), sameCommand, sameCommand+": "+o.command())
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

// command returns the command line of this run. change is a flag to leave out, and its new value if it has one.
func (o *runOptions) command(change ...string) string {
	words := changeFlag(o.args, change...)
	for i, word := range words {
		words[i] = term.Quote(word)
	}
	return "sluice " + strings.Join(words, " ")
}

// changeFlag returns words without a flag and its value, and with a new value of it at the end if one is given. Without a flag it
// returns a copy.
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
