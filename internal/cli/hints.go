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
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/work"
	"github.com/sluice-llm/sluice/provider"
)

// explain gives an error of a batch its exit code and a hint of what to do.
func explain(err error, o *runOptions, keys *accounts) *exitError {
	if e, ok := errors.AsType[*exitError](err); ok {
		return e
	}
	e := &exitError{code: exitFailed, err: err}
	e.hint = hintOf(err)
	again := "resume with the same command: " + o.command()
	if spent, ok := errors.AsType[*batch.BudgetError](err); ok {
		o.explainBudget(e, spent)
		return e
	}
	if stopped, ok := errors.AsType[*work.StoppedError](err); ok {
		e.explainStop(stopped, keys, again)
		return e
	}
	if wrong, ok := errors.AsType[*batch.ConfigError](err); ok {
		e.code = exitUsage
		e.explainConfig(wrong)
		return e
	}
	if e.explainVia(err) {
		return e
	}
	switch {
	case isAny[*batch.InputError](err), isAny[*batch.InputErrors](err):
		e.code, e.list = exitUsage, true
		if e.hint == "" {
			e.hint = "correct the line"
		}
	case isAny[*batch.ChangedError](err):
		e.code, e.list = exitUsage, true
	case isAny[*batch.OtherInputError](err):
		e.code, e.hint = exitUsage, "use another output with -o"
	case isAny[*batch.UnpackError](err): // it says where room is wanted
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		e.hint = "raise the limit of open files with ulimit -n 4096, or lower --concurrency, then " + again
	case isAny[*batch.UnreachableError](err):
		e.hint = fmt.Sprintf("check the network and %s, then %s", keys.address(), again)
	case e.explainRun(err, again, "another output with -o"):
	case isAny[*fs.PathError](err), isAny[*os.LinkError](err):
		e.code = exitUsage
		e.hint = "check that the directory of -o exists and that you can write the file"
	}
	return e
}

// explainRun explains what a run of any items may end with, and reports whether it was that. Elsewhere is where a run can go
// whose place another one has.
func (e *exitError) explainRun(err error, again, elsewhere string) bool {
	locked, isLocked := errors.AsType[*work.LockedError](err)
	journal, isJournal := errors.AsType[*work.JournalError](err)
	switch {
	case isLocked && locked.PID != 0:
		e.code = exitUsage
		e.hint = fmt.Sprintf("wait for that run, stop it with kill -INT %d, or use %s", locked.PID, elsewhere)
	case isLocked:
		e.code, e.hint = exitUsage, "wait for that run, or use "+elsewhere
	case errors.Is(err, work.ErrDrained), errors.Is(err, context.Canceled):
		e.code, e.err, e.hint = exitInterrupted, errors.New("interrupted"), again
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EFBIG), errors.Is(err, syscall.EDQUOT):
		e.hint = "free space on the disk, then " + again
	case isJournal && journal.Line == 1:
		e.code, e.hint = exitUsage, "the file is not an output of Sluice: use "+elsewhere
	case isJournal:
		e.hint = cmp.Or(e.hint, "repair the file or make it writable, then "+again)
	default:
		return false
	}
	return true
}

// address is what says where calls go.
func (a *accounts) address() string {
	if a != nil && a.upstreams != nil {
		return "the field base_url of the upstreams"
	}
	return "--base-url"
}

// explainStop says why no item can succeed any more.
func (e *exitError) explainStop(stopped *work.StoppedError, keys *accounts, again string) {
	e.err = stopped.Err
	if none, ok := errors.AsType[*provider.NoUpstreamError](stopped.Err); ok {
		e.err = none
		e.hint = "correct the cause for each upstream, then " + again
		return
	}
	switch stopped.Kind {
	case sluice.Auth:
		e.err = fmt.Errorf("the key was rejected: %w", stopped.Err)
		e.hint = keys.check(stopped.Err) + ", then " + again
	case sluice.QuotaExhausted:
		e.err = fmt.Errorf("the account's quota is spent: %w", stopped.Err)
		e.hint = "add credit or raise the spend limit, then " + again
	case sluice.OK:
	default:
		e.err = fmt.Errorf("the last items all failed with the same error: %w", stopped.Err)
		e.hint = "correct the cause of the error, then " + again
	}
}

// check says which key to look at after one was rejected.
func (a *accounts) check(err error) string {
	if refused, ok := errors.AsType[*provider.Error](err); ok {
		if name := a.KeyFrom(refused.Provider); name != "" {
			return "check the key in " + name
		}
	}
	return "name the variable of the key with --key-env, or check the key in --header"
}

// explainConfig says what is wrong in the words of the command line.
func (e *exitError) explainConfig(wrong *batch.ConfigError) {
	e.err = wrong.Err
	if e.hint != "" && (wrong.Field == "Provider" || wrong.Field == "Output") {
		return // it is about batches that are pending, and says all of it
	}
	switch wrong.Field {
	case "Input":
		e.err = fmt.Errorf("input: %w", wrong.Err)
		e.hint = cmp.Or(e.hint, "name a file of JSON lines or a .csv table, compressed or not, or - for standard input")
	case "Template":
		e.err = fmt.Errorf("--template: %w", wrong.Err)
		e.hint = "correct the template, for example {{.question}} for the field question"
	case "Output":
		e.err = fmt.Errorf("the output %w", wrong.Err)
		e.hint = "use another file with -o"
	case "BaseURL":
		e.hint = "write an address such as --base-url https://api.example.com/v1"
	case "Set":
		e.err = fmt.Errorf("--set %w", wrong.Err)
		e.hint = `write --set temperature=0.2 or --set 'user="me"'`
	case "Cache":
		e.err, e.hint = fmt.Errorf("--cache: %w", wrong.Err), cmp.Or(hintOf(wrong.Err), "set --cache to a directory that you can write to")
	default:
		e.err = wrong
		e.hint = "see sluice run --help"
	}
}

// hintOf returns the hint that an error brings along.
func hintOf(err error) string {
	var hinting interface {
		error
		Hint() string
	}
	if errors.As(err, &hinting) {
		return hinting.Hint()
	}
	if in, ok := errors.AsType[*batch.InputError](err); ok {
		return in.Hint
	}
	return ""
}

func isAny[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
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
