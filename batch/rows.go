package batch

import (
	"fmt"
	"io"
	"iter"
	"path/filepath"
	"strings"

	"github.com/sluice-llm/sluice/work"
)

// Format says how an input is parted into rows.
type Format uint8

// Formats.
const (
	FormatByName Format = iota // FormatCSV for .csv, FormatTSV for .tsv, with .gz or .zst behind it or not; else FormatLines
	FormatLines                // lines, each recognised by itself
	FormatText                 // lines of plain text, whatever they begin with
	FormatCSV                  // a table: the first line names its columns
	FormatTSV                  // a table whose columns are parted by tabs
)

// UnmarshalText reads jsonl, text, csv or tsv; nothing is by name.
func (f *Format) UnmarshalText(b []byte) error {
	for i, name := range [...]string{"", "jsonl", "text", "csv", "tsv"} {
		if name == string(b) {
			*f = Format(i)
			return nil
		}
	}
	return fmt.Errorf("format %q: want jsonl, text, csv or tsv", b)
}

// named returns the format of an input of that name.
func (f Format) named(path string) Format {
	if f != FormatByName {
		return f
	}
	name := strings.ToLower(path)
	for _, p := range packings {
		name = strings.TrimSuffix(name, p.suffix)
	}
	switch filepath.Ext(name) {
	case ".csv":
		return FormatCSV
	case ".tsv":
		return FormatTSV
	}
	return FormatLines
}

func (f Format) table() bool { return f == FormatCSV || f == FormatTSV }

// row is a line of the input, or a record of a table as a JSON object, with the line on which it begins.
type row struct {
	work.Line
	bad *problem // why it is no row; its bytes, if there are any, are what tells it from others
}

// rows gives the rows of a file as it was when it was opened.
func (in *input) rows() iter.Seq2[row, error] {
	return in.parted(io.NewSectionReader(in.file, 0, in.size))
}

// arriving gives the rows of standard input, which r reads.
func (in *input) arriving(r io.Reader) iter.Seq2[row, error] {
	return in.parted(unpackStream(r))
}

// parted gives the rows of a text that have something on them. An error is the last; one that is about a line is an
// *InputError.
func (in *input) parted(r io.Reader) iter.Seq2[row, error] {
	if !in.format.table() {
		return each(work.NewLineReader(r, maxLine))
	}
	return func(yield func(row, error) bool) {
		t := newTable(in.format)
		t.reset(r, 0, 1)
		err := t.header(in.cfg.Template == "" && !in.anyColumns)
		for err == nil {
			var next row
			if next, err = t.next(); err == nil && !yield(next, nil) {
				return
			}
		}
		if err != io.EOF {
			yield(row{}, in.located(err))
		}
	}
}

// located names the input in an error of a table.
func (in *input) located(err error) error {
	if at, ok := err.(*tableError); ok {
		return in.problem(at.line, &problem{at.text, at.hint})
	}
	return err
}

// reader reads single rows of a file again.
type reader struct {
	in    *input
	buf   []byte
	table *table // nil: lines
}

// newReader returns one. What the file's header says was checked.
func (in *input) newReader() (*reader, error) {
	r := &reader{in: in}
	if !in.format.table() {
		return r, nil
	}
	r.table = newTable(in.format)
	r.table.reset(io.NewSectionReader(in.file, 0, in.size), 0, 1)
	return r, in.located(r.table.header(false))
}

// at reads the row that begins at offset, on the line with that number.
func (r *reader) at(offset int64, number int) (row, error) {
	in := r.in
	if r.table != nil {
		r.table.reset(io.NewSectionReader(in.file, offset, in.size-offset), offset, number)
		again, err := r.table.next()
		again.Number = number // a reader that begins at the blank lines before it counts those
		return again, in.located(err)
	}
	again := row{Line: work.Line{Number: number, Offset: offset}}
	var err error
	if r.buf, err = in.readLineAt(r.buf, offset); err != nil {
		return row{}, err
	}
	if len(r.buf) > maxLine { // without its bytes, as when it was read first: its hash is of none
		again.bad = tooLong()
		return again, nil
	}
	again.Bytes = r.buf
	clean(&again.Line)
	return again, nil
}

func tooLong() *problem { return &problem{text: fmt.Sprintf("longer than %d MiB", maxLine>>20)} }
