package cli

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

// answerForm is how answers are written.
type answerForm interface {
	begin(fields []string) error
	answer(*answer) error
	end() error
}

// form returns the form that the flags ask for.
func (o *answersOptions) form(w io.Writer) answerForm {
	buffered := bufio.NewWriterSize(w, 64<<10)
	switch o.format {
	case "csv":
		return &csvAnswers{w: csv.NewWriter(buffered), buffered: buffered}
	case "text":
		return &textAnswers{w: buffered}
	}
	return &jsonAnswers{w: buffered}
}

// answerNames are the names of an answer's own fields. answerColumns are those of said that are columns.
var answerNames, answerColumns = func() (names, columns []string) {
	for f := range reflect.TypeFor[said]().Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if names = append(names, name); f.Type.Kind() != reflect.Slice {
			columns = append(columns, name)
		}
	}
	return append(names, "custom_id"), columns
}()

// fieldName returns the name of a field of the input beside the answer's own, which are told apart by a prefix.
func fieldName(name string) string {
	const prefix = "input_"
	bare := name
	for strings.HasPrefix(bare, prefix) {
		bare = bare[len(prefix):]
	}
	if slices.Contains(answerNames, bare) {
		return prefix + name
	}
	return name
}

// mostColumns bounds a table: lines that all have other members make none.
const mostColumns = 1000

// fieldNames returns the names of all fields that a file has, in the order in which they come first.
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
			if len(names) == mostColumns {
				return nil, fmt.Errorf("%s has more than %d different fields, too many for a table: use --format jsonl", path, mostColumns)
			}
			known[f.Name] = true
			names = append(names, f.Name)
		}
	}
	return names, nil
}

// jsonAnswers writes a JSON line for each answer.
type jsonAnswers struct {
	w   *bufio.Writer
	buf []byte
}

func (j *jsonAnswers) begin([]string) error { return nil }

func (j *jsonAnswers) answer(a *answer) error {
	b := jsonscan.AppendStruct(j.buf[:0], a)
	b = b[:len(b)-1]
	for _, f := range a.fields {
		b = jsonscan.AppendMember(b, fieldName(f.Name), jsonscan.AppendCompact(nil, f.Value))
	}
	brace := len(b)
	b = jsonscan.AppendStruct(b, &a.said)
	b[brace] = ',' // one object, not two
	j.buf = append(b, '\n')
	_, err := j.w.Write(j.buf)
	return err
}

func (j *jsonAnswers) end() error { return j.w.Flush() }

// csvAnswers writes a table.
type csvAnswers struct {
	w        *csv.Writer
	buffered *bufio.Writer
	columns  map[string]int // of the input's fields
	row      []string
}

func (c *csvAnswers) begin(fields []string) error {
	c.columns = make(map[string]int, len(fields))
	header := []string{"custom_id"}
	for _, name := range fields {
		c.columns[name] = len(header)
		header = append(header, fieldName(name))
	}
	header = append(header, answerColumns...)
	c.row = make([]string, len(header))
	return c.w.Write(header)
}

func (c *csvAnswers) answer(a *answer) error {
	clear(c.row)
	c.row[0] = a.ID
	for _, f := range a.fields {
		if i, ok := c.columns[f.Name]; ok { // else the file grew
			c.row[i] = cell(f.Value)
		}
	}
	own := c.row[:len(c.row)-len(answerColumns)]
	for _, v := range reflect.ValueOf(&a.said).Elem().Fields() {
		switch v := v.Interface().(type) {
		case string:
			own = append(own, v)
		case *string:
			own = append(own, a.text())
		}
	}
	return c.w.Write(own)
}

// cell returns a JSON value as the content of a cell: a text as it is, null as nothing, and all else as JSON.
func cell(value []byte) string {
	switch {
	case len(value) > 0 && value[0] == '"':
		return string(jsonscan.Unquote(value))
	case string(value) == "null":
		return ""
	}
	return string(jsonscan.AppendCompact(nil, value))
}

func (c *csvAnswers) end() error {
	c.w.Flush()
	err := c.buffered.Flush()
	return cmp.Or(c.w.Error(), err)
}

// textAnswers writes the bare texts: each below a line with the item's id.
type textAnswers struct {
	w   *bufio.Writer
	any bool
}

func (t *textAnswers) begin([]string) error { return nil }

func (t *textAnswers) answer(a *answer) error {
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

func (t *textAnswers) end() error { return t.w.Flush() }

// oneLine makes a text fit for a heading.
func oneLine(text string) string {
	lines := slices.Collect(strings.FieldsFuncSeq(text, func(r rune) bool { return r == '\n' || r == '\r' }))
	return strings.Join(lines, " ")
}
