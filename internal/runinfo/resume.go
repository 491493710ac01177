package runinfo

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
)

// SameCommand is how hints of libraries name the command that resumes a run.
const SameCommand = "resume with the same command"

// CommandLine is the command line of a run. It makes hints that resume the run.
type CommandLine struct {
	Own     []string // arguments of Sluice
	Rest    []string // "--" and the command of exec
	Phrases []string // phrases in hints of libraries and their form for this command, see fault.Error.Say
}

// With returns the command line as text, without a flag and its value, and with a new value if one is given.
func (c CommandLine) With(change ...string) string {
	words := c.Own
	if len(change) > 0 {
		words, _ = c.without(change[0])
	}
	if len(change) > 1 {
		words = append(words, change...)
	}
	text := "sluice"
	for _, word := range slices.Concat(words, c.Rest) {
		text += " " + term.Quote(word)
	}
	return text
}

// without returns the arguments of Sluice without a flag, and the value of the flag; "" if it is not given.
func (c CommandLine) without(flag string) (words []string, value string) {
	for i := 0; i < len(c.Own); i++ {
		word := c.Own[i]
		if given, ok := strings.CutPrefix(word, flag+"="); ok {
			value = given
		} else if word != flag {
			words = append(words, word)
		} else if i++; i < len(c.Own) {
			value = c.Own[i]
		}
	}
	return words, value
}

// RedoFailed returns the command line that repeats failed items. Results that --redo none keeps stay.
func (c CommandLine) RedoFailed() string {
	states := "failed"
	if _, given := c.without("--redo"); slices.Contains(strings.Split(given, ","), "none") {
		states += ",none"
	}
	return c.With("--redo", states)
}

// resume returns the hint to repeat the command.
func (c CommandLine) resume() string { return SameCommand + ": " + c.With() }

// Explain returns the error of the run, with a hint in words of the command line.
func (c CommandLine) Explain(err error) *fault.Error {
	e := fault.Of(err)
	spent, ok := errors.AsType[*batch.BudgetError](err)
	if !ok {
		return e.Say(append(slices.Clone(c.Phrases), SameCommand, c.resume())...)
	}
	flag := "--" + strings.ReplaceAll(string(spent.What), "_", "-")
	_, value := c.without(flag)
	_, noInstant := time.Parse(time.RFC3339, value)
	e.Code, e.Err = fault.Cap, fmt.Errorf("stopped by %s: %w", flag, spent)
	switch {
	case spent.Alone():
		unit := 1.0
		if spent.Unit == "usd" {
			unit = 1e-6
		}
		enough := strconv.FormatFloat(math.Ceil((spent.Used.Used+spent.Next)/unit)*unit, 'f', int(-math.Log10(unit)), 64)
		e.Hint = "limit responses with --max-tokens, or resume with a higher cap: " + c.With(flag, enough)
	case spent.What == batch.LimitedTime && noInstant == nil:
		e.Hint = "resume without a deadline: " + c.With(flag)
	case spent.What == batch.LimitedFailures && c.Rest == nil:
		e.Hint = "check the errors, then send the failed items again: " + c.RedoFailed()
	default:
		e.Hint = SameCommand + ", which has a full new cap: " + c.With()
	}
	return e
}

// ExplainPending adds the batches that continue at the provider to the error of a run, and how to collect or cancel them. canceling is
// true for a run with --cancel.
func (c CommandLine) ExplainPending(e *fault.Error, all []batch.Part, canceling bool) {
	text := NewParts(all).Continuing(time.Now())
	if text == "" || fault.Is[*batch.LostError](e.Err) {
		return
	}
	join := "%w; %s"
	if strings.HasSuffix(e.Err.Error(), ".") { // as messages of providers end
		join = "%w %s"
	}
	e.Err = fmt.Errorf(join, e.Err, text)
	switch {
	case canceling: // other hints suggest --cancel
		e.Hint = cmp.Or(e.Hint, c.resume())
	case e.Hint == "" || e.Code == fault.Interrupted:
		e.Hint = "collect pending batches with the same command, or add --cancel to cancel the batches: " + c.With()
	}
}

// WithoutCancel returns the command line that sends the remaining items after --cancel, by Batch APIs too.
func (c CommandLine) WithoutCancel() CommandLine {
	n := len(c.Own)
	c.Own = slices.DeleteFunc(slices.Clone(c.Own), func(word string) bool {
		return word == "--cancel" || word == "--cancel=true"
	})
	if len(c.Own) < n && !slices.Contains(c.Own, "--batch") {
		c.Own = append(c.Own, "--batch")
	}
	return c
}

// Canceled describes the end of a run with --cancel: the batches that were pending before, and the remaining items.
func (c CommandLine) Canceled(pending, left int) string {
	var words []string
	if pending == 0 {
		words = append(words, "no batches were pending")
	}
	if left > 0 {
		words = append(words, fmt.Sprintf("%s %s remaining: %s", prose.Count(left, "item"), prose.Verb(left, "is", "are"), c.WithoutCancel().With()))
	}
	return strings.Join(words, "; ")
}
