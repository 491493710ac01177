package rows

import (
	"fmt"
	"slices"
	"strings"
)

// mostNamed is how many rows an error names.
const mostNamed = 10

// Errors is what is wrong with the rows of an input. It unwraps to those that it names. The zero value is nothing.
type Errors struct {
	Problems []*Error // the first few
	More     int      // how many others there are
}

// Add adds what is wrong with one more row.
func (e *Errors) Add(problem *Error) {
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
	if e.Problems[0].Item > 0 {
		return e.list(" bad items")
	}
	return e.list(" bad lines")
}

// list lists the problems, and how many others there are.
func (e *Errors) list(others string) string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Error())
	}
	if e.More > 0 {
		fmt.Fprintf(&b, "\nand %d more%s", e.More, others)
	}
	return b.String()
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

// Missing is the error of a row that a file had when it was read before. Its number is that of a line, or of an item of an array.
func Missing(path string, number int, array bool) *Error {
	return Numbered(number, array).Wrong(path, &Problem{Text: "it is missing: the file was truncated after the check",
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

// ChangedError is returned when ids of an input are recorded in the results for something else.
type ChangedError struct {
	Path  string
	Array bool  // Lines are places in a JSON array
	Lines []int // the first few, in order
	IDs   []string
	More  int
}

// Add adds a line and its id, in whatever order the results come.
func (e *ChangedError) Add(line int, id string) {
	if at, _ := slices.BinarySearch(e.Lines, line); at < mostNamed {
		e.Lines = slices.Insert(e.Lines, at, line)
		e.IDs = slices.Insert(e.IDs, at, id)
		if len(e.Lines) <= mostNamed {
			return
		}
		e.Lines, e.IDs = e.Lines[:mostNamed], e.IDs[:mostNamed]
	}
	e.More++
}

// Err returns the error, or nil where no line is named.
func (e *ChangedError) Err() error {
	if len(e.Lines) == 0 {
		return nil
	}
	return e
}

// Error names the lines and their ids.
func (e *ChangedError) Error() string {
	named := Errors{More: e.More}
	for i, line := range e.Lines {
		problem := &Problem{Text: fmt.Sprintf("item %q is not the one that was recorded", e.IDs[i])}
		named.Problems = append(named.Problems, Numbered(line, e.Array).Wrong(e.Path, problem))
	}
	return named.list("")
}

// Hint says what can be done.
func (e *ChangedError) Hint() string {
	return "run them again with --redo changed, or keep the recorded results with --redo none"
}
