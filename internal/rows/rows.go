// Package rows reads the rows of an input: lines of JSON or of text, the items of a JSON array, or the records of a table as JSON
// objects, compressed or not. Standard input is read once, as it comes; a file as often as one likes, and single rows of it by their offset.
package rows

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/work"
)

// MaxBytes bounds a row.
const MaxBytes = 64 << 20

// stdin is the path of standard input.
const stdin = "-"

// mark is the byte order mark, with which some editors and spreadsheets begin a text in UTF-8.
const mark = "\ufeff"

// Row is a line of an input, or a record of a table as a JSON object, with the line on which it begins; or an item of a JSON
// array, whose Number is its place in the array.
type Row struct {
	work.Line
	Source int      // the line of an item of an array, or unknownLine; 0: the row is not of an array
	Text   bool     // it is plain text, whatever it begins with
	Bad    *Problem // why it cannot be used
}

// unknownLine is the Source of an item that was read by its offset.
const unknownLine = -1

// Wrong is the error of the row with that problem.
func (r *Row) Wrong(path string, p *Problem) *Error {
	if r.Source == 0 {
		return p.At(path, r.Number)
	}
	return &Error{Path: path, Line: max(0, r.Source), Item: r.Number, Problem: p.Text, Hint: p.Hint}
}

// Numbered returns a row of which only the number is known.
func Numbered(number int, array bool) *Row {
	row := &Row{Line: work.Line{Number: number}}
	if array {
		row.Source = unknownLine
	}
	return row
}

// Place names the row with that number: a line, or an item of a JSON array.
func Place(number int, array bool) string {
	if array {
		return placeOf(0, number)
	}
	return placeOf(number, 0)
}

// Problem is why a row cannot be used.
type Problem struct {
	Text string
	Hint string // what to do about it; may be empty
}

// At is the error of a row with that problem.
func (p *Problem) At(path string, line int) *Error {
	return &Error{Path: path, Line: line, Problem: p.Text, Hint: p.Hint}
}

// Error is a line of an input, or an item of a JSON array, that cannot be used.
type Error struct {
	Path    string // "-" is standard input
	Line    int    // 0: unknown, of an item of an array
	Item    int    // its place in a JSON array; 0: the input is not one
	Problem string
	Hint    string // what to do about it; may be empty
	More    int    // further rows with the same problem
}

// Error names the line, the item and the problem.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s %s: %s", spoken(e.Path), placeOf(e.Line, e.Item), e.Problem)
	if e.More > 0 {
		text += fmt.Sprintf(" (and %d more)", e.More)
	}
	return text
}

// FaultCode is the code of the error in the catalogue of errors.
func (e *Error) FaultCode() string { return fault.Input }

// spoken is how an input is called in messages.
func spoken(path string) string {
	if path == stdin {
		return "standard input"
	}
	return path
}

// Lines gives the lines of r that have something on them, without the end of a line that other systems write. One that is
// too long comes as a bad row without its bytes. A row is valid until the next. An error is the last.
func Lines(r *work.LineReader) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for line, err := range r.All() {
			var bad *Problem
			if err != nil {
				if _, long := errors.AsType[*work.TooLongError](err); !long {
					yield(Row{}, err)
					return
				}
				bad = tooLong()
			}
			if (bad != nil || clean(&line)) && !yield(Row{Line: line, Bad: bad}, nil) {
				return
			}
		}
	}
}

// part gives the rows of a text that have something on them. An error is the last; one that is about a line is an *Error.
func part(r io.Reader, path string, columns func([]string) *Problem, yield func(Row, error) bool) {
	if !Table(path) {
		text := bufio.NewReaderSize(r, tableBuffer)
		if startsArray(text) {
			each(newArray(path, text).next, yield)
		} else {
			Lines(work.NewLineReader(text, MaxBytes))(yield)
		}
		return
	}
	t := newTable(path)
	t.reset(r, 0, 1)
	if err := t.header(columns); err != nil {
		if err != io.EOF {
			yield(Row{}, err)
		}
		return
	}
	each(t.next, yield)
}

// each gives rows until io.EOF, which it leaves out, or another error.
func each(next func() (Row, error), yield func(Row, error) bool) {
	for {
		row, err := next()
		if err == io.EOF || !yield(row, err) || err != nil {
			return
		}
	}
}

// clean strips the end of a line that other systems write, and reports whether the line has any text.
func clean(line *work.Line) bool {
	line.Bytes = bytes.TrimSuffix(line.Bytes, []byte("\r"))
	return len(bytes.TrimSpace(line.Bytes)) > 0
}

func tooLong() *Problem {
	return &Problem{Text: fmt.Sprintf("the item is longer than %d MiB", MaxBytes>>20)}
}
