package rows

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/work"
)

// table reads the records of a table as JSON objects: its header's names, and the fields as texts. Use newTable, then
// reset and header.
type table struct {
	path  string
	comma rune
	names []string
	keys  [][]byte // the same as members of an object: "name":

	in    bounded
	buf   *bufio.Reader
	csv   *csv.Reader
	base  int64 // offset at which csv began
	line  int   // and the line
	after int   // the line below the last record
	b     []byte
}

// Table reports whether a file of that name is a table, compressed or not, of which every row has the same fields.
func Table(path string) bool { return separator(path) != 0 }

// separator returns what parts the columns of a file of that name, which is a table; 0: it is none.
func separator(path string) rune {
	switch filepath.Ext(strings.TrimSuffix(strings.ToLower(path), gzipSuffix)) {
	case ".csv":
		return ','
	case ".tsv":
		return '\t'
	}
	return 0
}

// tableBuffer is how much of a table is read at once.
const tableBuffer = 64 << 10

func newTable(path string) *table {
	t := &table{path: path, comma: separator(path)}
	t.buf = bufio.NewReaderSize(&t.in, tableBuffer)
	return t
}

// reset goes on with r, whose first byte is at offset, on that line.
func (t *table) reset(r io.Reader, offset int64, line int) {
	t.in = bounded{r: r, left: mostRecord}
	t.buf.Reset(&t.in)
	t.csv = csv.NewReader(t.buf) // which reads the buffer itself
	t.csv.Comma, t.csv.ReuseRecord, t.csv.FieldsPerRecord = t.comma, true, -1
	t.base, t.line, t.after = offset, line, line
}

// mostRecord is how much is read for one record: its own bytes, and what is read ahead.
const mostRecord = MaxBytes + tableBuffer

// bounded ends a record that is too long: a quote that is never closed must not take the whole file into memory.
type bounded struct {
	r    io.Reader
	left int
}

var errLongRecord = errors.New("too long")

// Read reads no more than is left.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, errLongRecord
	}
	n, err := b.r.Read(p)
	b.left -= n
	return n, err
}

// record reads the next record and says where it begins. Its fields are valid until the next.
func (t *table) record() (fields []string, offset int64, line int, err error) {
	offset = t.csv.InputOffset()
	t.in.left = mostRecord
	fields, err = t.csv.Read()
	if err == nil {
		first, _ := t.csv.FieldPos(0)
		last, _ := t.csv.FieldPos(len(fields) - 1)
		t.after = t.line + last + strings.Count(fields[len(fields)-1], "\n")
		return fields, t.base + offset, t.line + first - 1, nil
	}
	if wrong, ok := errors.AsType[*csv.ParseError](err); ok {
		e := &Error{Path: t.path, Line: t.line + wrong.StartLine - 1, Problem: wrong.Err.Error()}
		e.Hint = `put a field with a quote, a line break or the separator in quotes, and double the quotes in it: "so ""called"""`
		if where := t.line + wrong.Line - 1; where != e.Line {
			e.Problem += fmt.Sprintf(" (at line %d, column %d)", where, wrong.Column)
		} else {
			e.Problem += fmt.Sprintf(" (at column %d)", wrong.Column)
		}
		return nil, 0, 0, e
	}
	if errors.Is(err, errLongRecord) {
		return nil, 0, 0, &Error{Path: t.path, Line: t.after, Problem: tooLong().Text + ": is a quote never closed?"}
	}
	return nil, 0, 0, err
}

// header reads the names of the columns. check says what is wrong with them beyond that; nil is nothing.
func (t *table) header(check func(names []string) *Problem) error {
	if head, _ := t.buf.Peek(len(mark)); string(head) == mark {
		_, _ = t.buf.Discard(len(mark))
		t.base += int64(len(mark))
	}
	fields, _, line, err := t.record()
	if err == io.EOF {
		return &Error{Path: t.path, Line: 1, Problem: "the table is empty and has no header", Hint: "name the columns in the first line, such as custom_id,prompt"}
	}
	if err != nil {
		return err
	}
	for i, name := range fields {
		fields[i] = strings.TrimSpace(name)
		if strings.Contains(fields[i], "\r") { // the whole table would be its header
			return &Error{Path: t.path, Line: line, Problem: "the lines end in carriage returns only", Hint: "save the table with line feeds, as CSV (UTF-8)"}
		}
	}
	if bad := columnNames(fields); bad != nil {
		return bad.At(t.path, line)
	}
	for _, name := range fields {
		t.names = append(t.names, name)
		t.keys = append(t.keys, append(jsonscan.AppendString(nil, name), ':'))
	}
	if check == nil {
		return nil
	}
	if bad := check(t.names); bad != nil {
		return bad.At(t.path, line)
	}
	return nil
}

// columnNames says what is wrong with the names of columns; nil is nothing.
func columnNames(names []string) *Problem {
	known := make(map[string]bool)
	for i, name := range names {
		switch {
		case !utf8.ValidString(name):
			return &Problem{Text: fmt.Sprintf("the name of column %d is not valid UTF-8", i+1), Hint: "save the table as UTF-8"}
		case name == "":
			return &Problem{Text: fmt.Sprintf("column %d has no name", i+1), Hint: "name the column, or remove it (pandas: index=False)"}
		case known[name]:
			return &Problem{Text: "two columns are named " + clip(fmt.Sprintf("%q", name)), Hint: "rename one of them"}
		}
		known[name] = true
	}
	return nil
}

// next reads the next record, or io.EOF after the last. Its bytes are valid until the next. An *Error is of what cannot be
// read on from.
func (t *table) next() (Row, error) {
	fields, offset, line, err := t.record()
	if err != nil {
		return Row{}, err
	}
	r := Row{Line: work.Line{Number: line, Offset: offset}}
	switch size := t.base + t.csv.InputOffset() - offset; {
	case size > MaxBytes:
		r.Bad = tooLong()
		return r, nil
	case len(fields) != len(t.keys):
		r.Bad = ragged(len(fields), len(t.keys))
		return r, nil
	}
	if cap(t.b) > 1<<20 {
		t.b = nil // after a very long record
	}
	t.b = t.b[:0]
	for i, field := range fields {
		if !utf8.ValidString(field) {
			r.Bad = &Problem{Text: fmt.Sprintf("%s is not valid UTF-8", clip(t.names[i])), Hint: "save the table as UTF-8"}
			return r, nil
		}
		t.b = append(append(t.b, ','), t.keys[i]...)
		t.b = jsonscan.AppendString(t.b, field)
	}
	t.b[0] = '{'
	t.b = append(t.b, '}')
	r.Bytes = t.b
	return r, nil
}

func ragged(has, want int) *Problem {
	fields := "fields"
	if has == 1 {
		fields = "field"
	}
	return &Problem{
		Text: fmt.Sprintf("the row has %d %s, but the header has %d", has, fields, want),
		Hint: "put a field that contains the separator or a line break in quotes",
	}
}

// clip shortens a name for a message.
func clip(name string) string { return prose.Clip(name, 60) }
