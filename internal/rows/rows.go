// Package rows reads the rows of an input: lines of JSON or of text, or the records of a table as JSON objects, compressed
// or not. Standard input is read once, as it comes; a file as often as one likes, and single rows of it by their offset.
package rows

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/sluice-llm/sluice/work"
)

// MaxBytes bounds a row.
const MaxBytes = 64 << 20

// stdin is the path of standard input.
const stdin = "-"

// Row is a line of an input, or a record of a table as a JSON object, with the line on which it begins.
type Row struct {
	work.Line
	Bad *Problem // why it is no row; its bytes, if there are any, are what tells it from others
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

// Error is a line of an input that cannot be used.
type Error struct {
	Path    string // "-" is standard input
	Line    int
	Problem string
	Hint    string // what to do about it; may be empty
}

// Error names the line and the problem.
func (e *Error) Error() string {
	return fmt.Sprintf("%s line %d: %s", spoken(e.Path), e.Line, e.Problem)
}

// spoken is how an input is called in messages.
func spoken(path string) string {
	if path == stdin {
		return "standard input"
	}
	return path
}

// Config says how an input is read. The zero value will do.
type Config struct {
	// Format is how the input is parted. FormatByName goes by its path, and takes standard input for FormatLines. A
	// compressed input is unpacked whatever its format.
	Format Format

	// Columns says what is wrong with the names of a table's columns, which it does not keep; nil takes any.
	Columns func(names []string) *Problem
}

// Lines gives the lines of r that have something on them, without the mark of a beginning and the end of a line that other
// systems write. One that is too long comes as a bad row without its bytes. A row is valid until the next. An error is the
// last.
func Lines(r *work.LineReader) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		for {
			line, err := r.Next()
			if err == io.EOF {
				return
			}
			var bad *Problem
			if err != nil {
				if _, long := errors.AsType[*work.TooLongError](err); !long {
					yield(Row{}, err)
					return
				}
				bad = tooLong()
			}
			if (bad != nil || clean(&line)) && !yield(Row{line, bad}, nil) {
				return
			}
		}
	}
}

// part gives the rows of a text that have something on them. An error is the last; one that is about a line is an *Error.
func part(r io.Reader, path string, cfg Config, yield func(Row, error) bool) {
	if !cfg.Format.Table() {
		Lines(work.NewLineReader(r, MaxBytes))(yield)
		return
	}
	t := newTable(path, cfg.Format)
	t.reset(r, 0, 1)
	err := t.header(cfg.Columns)
	for err == nil {
		var next Row
		if next, err = t.next(); err == nil && !yield(next, nil) {
			return
		}
	}
	if err != io.EOF {
		yield(Row{}, err)
	}
}

// clean strips what is no part of a line's text, and says whether anything is left.
func clean(line *work.Line) bool {
	if line.Number == 1 {
		line.Bytes = bytes.TrimPrefix(line.Bytes, []byte("\ufeff"))
	}
	line.Bytes = bytes.TrimSuffix(line.Bytes, []byte("\r"))
	return len(bytes.TrimSpace(line.Bytes)) > 0
}

func tooLong() *Problem { return &Problem{Text: fmt.Sprintf("longer than %d MiB", MaxBytes>>20)} }
