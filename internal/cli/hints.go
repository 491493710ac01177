package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// explain gives an error of a batch its exit code and a hint of what to do.
func explain(err error, o *runOptions, keys *account.Accounts) *fault.Error {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e
	}
	e := fault.Of(err)
	again := "resume with the same command: " + o.command()
	if spent, ok := errors.AsType[*batch.BudgetError](err); ok {
		o.explainBudget(e, spent)
		return e
	}
	if stopped, ok := errors.AsType[*work.StoppedError](err); ok {
		explainStop(e, stopped, keys, again)
		return e
	}
	if wrong, ok := errors.AsType[*batch.ConfigError](err); ok {
		e.Code = fault.Value
		explainConfig(e, wrong)
		return e
	}
	if explainVia(e, err) {
		return e
	}
	switch {
	case fault.Is[*batch.InputError](err), fault.Is[*batch.InputErrors](err):
		e.Code, e.List = fault.Input, true
		if e.Hint == "" {
			e.Hint = "correct the line"
		}
	case fault.Is[*batch.ChangedError](err):
		e.Code, e.List = fault.Changed, true
	case fault.Is[*batch.OtherInputError](err):
		e.Code, e.Hint = fault.Output, "use another output with -o"
	case fault.Is[*batch.UnpackError](err): // it says where room is wanted
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		e.Hint = "raise the limit of open files with ulimit -n 4096, or lower --concurrency, then " + again
	case fault.Is[*batch.UnreachableError](err):
		e.Hint = fmt.Sprintf("check the network and %s, then %s", addressHint(keys), again)
	case explainRun(e, err, again, "another output with -o"):
	case fault.Is[*fs.PathError](err), fault.Is[*os.LinkError](err):
		e.Code = fault.File
		e.Hint = "check that the directory of -o exists and that you can write the file"
	}
	return e
}

// explainRun explains what a run of any items may end with, and reports whether it was that. Elsewhere is where a run can go
// whose place another one has.
func explainRun(e *fault.Error, err error, again, elsewhere string) bool {
	locked, isLocked := errors.AsType[*work.LockedError](err)
	journal, isJournal := errors.AsType[*work.JournalError](err)
	switch {
	case isLocked && locked.PID != 0:
		e.Code = fault.InUse
		e.Hint = fmt.Sprintf("wait for that run, stop it with kill -INT %d, or use %s", locked.PID, elsewhere)
	case isLocked:
		e.Code, e.Hint = fault.InUse, "wait for that run, or use "+elsewhere
	case errors.Is(err, work.ErrDrained), errors.Is(err, context.Canceled):
		e.Code, e.Err, e.Hint = fault.Interrupted, errors.New("interrupted"), again
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EFBIG), errors.Is(err, syscall.EDQUOT):
		e.Hint = "free space on the disk, then " + again
	case isJournal && journal.Line == 1:
		e.Code, e.Hint = fault.Output, "the file is not an output of Sluice: use "+elsewhere
	case isJournal:
		e.Hint = cmp.Or(e.Hint, "repair the file or make it writable, then "+again)
	default:
		return false
	}
	return true
}

// addressHint returns the flag or field of the address of requests.
func addressHint(a *account.Accounts) string {
	if a != nil && a.Upstreams() != nil {
		return "the field base_url of the upstreams"
	}
	return "--base-url"
}

// explainStop says why no item can succeed any more.
func explainStop(e *fault.Error, stopped *work.StoppedError, keys *account.Accounts, again string) {
	e.Err = stopped.Err
	if none, ok := errors.AsType[*provider.NoUpstreamError](stopped.Err); ok {
		e.Err = none
		e.Hint = "correct the cause for each upstream, then " + again
		return
	}
	switch stopped.Kind {
	case sluice.Auth:
		e.Err = fmt.Errorf("the key was rejected: %w", stopped.Err)
		e.Hint = keyHint(keys, stopped.Err) + ", then " + again
	case sluice.QuotaExhausted:
		e.Err = fmt.Errorf("the account's quota is spent: %w", stopped.Err)
		e.Hint = "add credit or raise the spend limit, then " + again
	case sluice.OK:
	default:
		e.Err = fmt.Errorf("the last items all failed with the same error: %w", stopped.Err)
		e.Hint = "correct the cause of the error, then " + again
	}
}

// keyHint says which key to check after the provider rejected one.
func keyHint(a *account.Accounts, err error) string {
	if refused, ok := errors.AsType[*provider.Error](err); ok {
		if name := a.KeyFrom(refused.Provider); name != "" {
			return "check the key in " + name
		}
	}
	return "name the variable of the key with --key-env, or check the key in --header"
}

// explainConfig says what is wrong in the words of the command line.
func explainConfig(e *fault.Error, wrong *batch.ConfigError) {
	e.Err = wrong.Err
	if e.Hint != "" && (wrong.Field == "Provider" || wrong.Field == "Output") {
		return // it is about batches that are pending, and says all of it
	}
	switch wrong.Field {
	case "Input":
		e.Err = fmt.Errorf("input: %w", wrong.Err)
		e.Hint = cmp.Or(e.Hint, "name a file of JSON lines or a .csv table, compressed or not, or - for standard input")
	case "Template":
		e.Err = fmt.Errorf("--template: %w", wrong.Err)
		e.Hint = "correct the template, for example {{.question}} for the field question"
	case "Output":
		e.Err = fmt.Errorf("the output %w", wrong.Err)
		e.Hint = "use another file with -o"
	case "BaseURL":
		e.Hint = "write an address such as --base-url https://api.example.com/v1"
	case "Set":
		e.Err = fmt.Errorf("--set %w", wrong.Err)
		e.Hint = `write --set temperature=0.2 or --set 'user="me"'`
	case "Cache":
		e.Err, e.Hint = fmt.Errorf("--cache: %w", wrong.Err), cmp.Or(fault.HintOf(wrong.Err), "set --cache to a directory that you can write to")
	default:
		e.Err = wrong
		e.Hint = "see sluice run --help"
	}
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
