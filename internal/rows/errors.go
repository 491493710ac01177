package rows

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/fault"
)

// mostNamed is how many rows an error names.
const mostNamed = 10

// Errors are the wrong rows of an input. It unwraps to Problems. The zero value has no error.
type Errors struct {
	Problems []*Error // the first row of each problem, up to ten
	More     int      // rows with further problems
}

// Add adds a wrong row.
func (e *Errors) Add(problem *Error) {
	if i := slices.IndexFunc(e.Problems, func(p *Error) bool { return p.Problem == problem.Problem }); i >= 0 {
		e.Problems[i].More++
		return
	}
	if len(e.Problems) == mostNamed {
		e.More++
		return
	}
	e.Problems = append(e.Problems, problem)
}

// Err returns the errors, or nil where there are none.
func (e *Errors) Err() error {
	if len(e.Problems) == 0 {
		return nil
	}
	return e
}

// Error lists the problems, a line each.
func (e *Errors) Error() string {
	var all []string
	for _, p := range e.Problems {
		all = append(all, p.Error())
	}
	if e.More > 0 {
		all = append(all, fmt.Sprintf("and %d more lines with other problems", e.More))
	}
	return strings.Join(all, "\n")
}

// Unwrap returns the problems.
func (e *Errors) Unwrap() []error {
	errs := make([]error, len(e.Problems))
	for i, p := range e.Problems {
		errs[i] = p
	}
	return errs
}

// Hint returns the first problem's hint.
func (e *Errors) Hint() string { return e.Problems[0].Hint }

// FaultCode is the code of the error in the catalogue of errors.
func (e *Errors) FaultCode() string { return fault.Input }

// Missing is the error of a row that a file had when it was read before. Its number is that of a line, or of an item of an array.
func Missing(path string, number int, array bool) *Error {
	return Numbered(number, array).Wrong(path, &Problem{Text: "the item is missing: the file was truncated after the check",
		Hint: "restore the file and run the same command again: the recorded results are kept"})
}

// Changed says what happens to rows that changed since they were done, or whose settings did.
type Changed uint8

// What may happen to them.
const (
	ChangedRefused Changed = iota // nothing runs: a *ChangedError
	ChangedRedo                   // they run again, and the first new result drops the old ones
	ChangedKeep                   // the recorded results count
)

// ChangedError is returned when rows have ids that are recorded in the results for something else.
type ChangedError struct {
	Path   string
	Array  bool // Number is a place in a JSON array, not a line
	Number int  // the lowest of a changed row
	ID     string
	More   int // further changed rows
}

// Add adds a changed row. Rows come in any order.
func (e *ChangedError) Add(number int, id string) {
	if e.Number > 0 {
		e.More++
	}
	if e.Number == 0 || number < e.Number {
		e.Number, e.ID = number, id
	}
}

// Err returns the error, or nil if no row was added.
func (e *ChangedError) Err() error {
	if e.Number == 0 {
		return nil
	}
	return e
}

// Error names the first row and the number of others.
func (e *ChangedError) Error() string {
	first := Numbered(e.Number, e.Array).Wrong(e.Path, &Problem{Text: fmt.Sprintf("item %q differs from the recorded item", e.ID)})
	first.More = e.More
	return first.Error()
}

// Hint names the flag that decides.
func (e *ChangedError) Hint() string {
	return "run the changed items again with --redo changed, or keep the recorded results with --redo none"
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *ChangedError) FaultCode() string { return fault.Changed }
