package answers

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/internal/jsonscan"
)

// form writes answers.
type form interface {
	write(*answer) error
	end() error
}

// newForm returns the form with this name. fields are the names of the input's fields in a table.
func newForm(w io.Writer, name string, fields []string) form {
	buffered := bufio.NewWriterSize(w, 64<<10)
	switch name {
	case "csv":
		return newTable(buffered, fields)
	case "text":
		return &texts{w: buffered}
	}
	return &lines{w: buffered}
}

// ownNames are the names of the fields of an answer. columns are the names of columns in a table.
var ownNames, columns = func() (names, columns []string) {
	for f := range reflect.TypeFor[said]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if names = append(names, name); f.Type.Kind() != reflect.Slice {
			columns = append(columns, name)
		}
	}
	return append(names, "custom_id"), columns
}()

// fieldName returns the name of a field of the input in an answer: with a prefix if the answer has a field of this name.
func fieldName(name string) string {
	const prefix = "input_"
	bare := name
	for strings.HasPrefix(bare, prefix) {
		bare = bare[len(prefix):]
	}
	if slices.Contains(ownNames, bare) {
		return prefix + name
	}
	return name
}

// maxColumns limits a table, because rows without common fields do not fit into one.
const maxColumns = 1000

// fieldNames returns the names of all fields in a file, in the order of their first use.
func fieldNames(path string, all iter.Seq2[[]batch.Field, error]) (names []string, err error) {
	known := make(map[string]bool)
	for fields, err := range all {
		if err != nil {
			return nil, err
		}
		for _, f := range fields {
			if known[f.Name] {
				continue
			}
			if len(names) == maxColumns {
				return nil, fmt.Errorf("%s has more than %d different fields, too many for a table: use --format jsonl", path, maxColumns)
			}
			known[f.Name] = true
			names = append(names, f.Name)
		}
	}
	return names, nil
}

// lines writes a JSON line for each answer.
type lines struct {
	w   *bufio.Writer
	buf []byte
}

func (l *lines) write(a *answer) error {
	b := jsonscan.AppendStruct(l.buf[:0], a)
	b = b[:len(b)-1]
	for _, f := range a.fields {
		b = jsonscan.AppendMember(b, fieldName(f.Name), jsonscan.AppendCompact(nil, f.Value))
	}
	brace := len(b)
	b = jsonscan.AppendStruct(b, &a.said)
	b[brace] = ',' // one object, not two
	l.buf = append(b, '\n')
	_, err := l.w.Write(l.buf)
	return err
}

func (l *lines) end() error { return l.w.Flush() }

// table writes CSV.
type table struct {
	w        *csv.Writer
	buffered *bufio.Writer
	places   map[string]int // columns of the input's fields
	row      []string
}

func newTable(w *bufio.Writer, fields []string) *table {
	t := &table{w: csv.NewWriter(w), buffered: w, places: make(map[string]int, len(fields))}
	header := []string{"custom_id"}
	for _, name := range fields {
		t.places[name] = len(header)
		header = append(header, fieldName(name))
	}
	header = append(header, columns...)
	t.row = make([]string, len(header))
	_ = t.w.Write(header) // end reports its error
	return t
}

func (t *table) write(a *answer) error {
	clear(t.row)
	t.row[0] = a.ID
	for _, f := range a.fields {
		if i, ok := t.places[f.Name]; ok { // else the file has grown
			t.row[i] = cell(f.Value)
		}
	}
	own := t.row[:len(t.row)-len(columns)]
	for _, v := range reflect.ValueOf(&a.said).Elem().Fields() {
		switch v := v.Interface().(type) {
		case string:
			own = append(own, v)
		case *string:
			own = append(own, a.text())
		}
	}
	return t.w.Write(own)
}

// cell returns a JSON value as a cell: a text without quotes, null as an empty cell, and other values as JSON.
func cell(value []byte) string {
	switch {
	case len(value) > 0 && value[0] == '"':
		return string(jsonscan.Unquote(value))
	case string(value) == "null":
		return ""
	}
	return string(jsonscan.AppendCompact(nil, value))
}

func (t *table) end() error {
	t.w.Flush()
	err := t.buffered.Flush()
	return cmp.Or(t.w.Error(), err)
}

// texts writes the text of each answer below a line with the ID of the item.
type texts struct {
	w   *bufio.Writer
	any bool
}

func (t *texts) write(a *answer) error {
	text := a.text()
	var b strings.Builder
	if t.any {
		b.WriteByte('\n')
	}
	b.WriteString("--- " + oneLine(a.ID))
	if a.Error != "" {
		b.WriteString(" (" + oneLine(a.Error) + ": " + oneLine(a.Message) + ")")
	}
	b.WriteByte('\n')
	t.any = true
	b.WriteString(text)
	if text != "" && !strings.HasSuffix(text, "\n") {
		b.WriteByte('\n')
	}
	_, err := t.w.WriteString(b.String())
	return err
}

func (t *texts) end() error { return t.w.Flush() }

// oneLine joins the lines of a text.
func oneLine(text string) string {
	all := slices.Collect(strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }))
	return strings.Join(all, " ")
}
