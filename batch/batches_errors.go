package batch

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/batchjob"
	"github.com/sluice-llm/sluice/internal/fault"
)

// PendingError is returned by Open where requests of the output are pending at Batch APIs, and this run would pay for them again,
// or lose their answers.
type PendingError struct {
	Output   string
	Parts    int
	Lines    int
	Accounts []string // providers, sorted
	Lost     int      // of the parts, those that the provider does not have any more
	LeftOut  int      // of the lines, those that this run leaves out; 0: it calls live
}

// Error says what is pending.
func (e *PendingError) Error() string {
	if e.LeftOut > 0 {
		return fmt.Sprintf("%s: %d requests of items outside this run are pending at the Batch API of %s",
			e.Output, e.LeftOut, strings.Join(e.Accounts, " and "))
	}
	parts := "1 part"
	if e.Parts > 1 {
		parts = fmt.Sprintf("%d parts", e.Parts)
	}
	return fmt.Sprintf("%s: %d requests in %s are pending at the Batch API of %s: sending them live would cost twice",
		e.Output, e.Lines, parts, strings.Join(e.Accounts, " and "))
}

// Hint says what can be done.
func (e *PendingError) Hint() string {
	if e.LeftOut > 0 {
		return "use the same input and --max-items as before, or drop the results of removed items with --redo changed"
	}
	if e.Lost == e.Parts {
		return "the provider lost these requests: send and pay for them again with --batch --redo lost, or drop them with --cancel --redo lost"
	}
	return "resume with --batch, or cancel with --batch --cancel: finished items are kept"
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *PendingError) FaultCode() string { return fault.Pending }

// pendingOf returns the error of a live run on an output with rows. It has no Parts if none is pending.
func pendingOf(output string, rows []Part) *PendingError {
	e := &PendingError{Output: output}
	for _, s := range rows {
		if !s.Open() {
			continue
		}
		e.Parts++
		e.Lines += s.Requests
		if s.Lost {
			e.Lost++
		}
		if !slices.Contains(e.Accounts, s.Account) {
			e.Accounts = append(e.Accounts, s.Account)
		}
	}
	slices.Sort(e.Accounts)
	return e
}

// LostError is returned by a run if the provider does not know batches or no longer has their results. Nothing is recorded of their lines,
// which remain. Everything else is recorded.
type LostError = batchjob.LostError

// RefusedError is returned by a run of which a provider refused a part as a whole. Nothing of it was run or paid, nothing is
// recorded of its lines, which are left to do, and everything else is.
type RefusedError struct {
	Account string // the provider
	Batch   string // its id; "" where there was none
	Lines   int    // of all parts that were refused
	Parts   int
	Code    string // in the provider's words; may be empty
	Message string // likewise

	broken bool // it was the provider's own fault
}

// Error gives the provider's words.
func (e *RefusedError) Error() string {
	what := fmt.Sprintf("%s rejected a batch part of %d lines", e.Account, e.Lines)
	if e.Parts > 1 {
		what = fmt.Sprintf("%s rejected %d batch parts with a total of %d lines", e.Account, e.Parts, e.Lines)
	}
	if e.Batch != "" {
		what += ", such as batch " + e.Batch
	}
	if e.Code != "" {
		return fmt.Sprintf("%s: %s: %s", what, e.Code, e.Message)
	}
	return what + ": " + e.Message
}

// Hint says what can be done.
func (e *RefusedError) Hint() string {
	if e.broken {
		return "run the same command again later, or without --batch: the provider processed none of these lines"
	}
	hint := "correct the error in the provider's message and run the same command again, or run without --batch"
	if e.Lines > e.Parts {
		hint += "; if a part is too large, limit its size in the settings: providers: [{name: ..., batches: {requests: N}}]"
	}
	return hint
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *RefusedError) FaultCode() string { return fault.Batches }

// add counts a refused part.
func (e *RefusedError) add(s *Part) *RefusedError {
	if e == nil {
		e = &RefusedError{Account: s.Account, Batch: s.Batch, Message: "the provider gives no reason"}
		if s.Problem != nil {
			e.Code, e.Message, e.broken = s.Problem.Code, s.Problem.Message, s.Problem.Kind == batchjob.Broken
		}
	}
	e.Parts++
	e.Lines += s.Requests
	return e
}

// advisedError is an error with a hint.
type advisedError struct{ text, hint string }

func (e *advisedError) Error() string { return e.text }

// Hint says what can be done.
func (e *advisedError) Hint() string { return e.hint }
