package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/template"
)

// renderer makes the prompts of rows by a template. It is not safe for concurrent use.
type renderer struct {
	name   string
	t      *template.Template
	fields map[string]any
	names  map[string]string // of fields: every row has the same ones
	out    []byte
}

// maxNames is the maximum number of names of fields that are kept.
const maxNames = 1000

// newRenderer reads a template of that name. Its functions reach neither files nor the environment.
func newRenderer(name, text string) (*renderer, error) {
	t, err := template.Parse(name, text, templateFuncs)
	return &renderer{name: name, t: t, fields: make(map[string]any), names: make(map[string]string)}, err
}

// render makes the text of a row's object; it is valid until the next.
func (r *renderer) render(object []byte) ([]byte, *problem) {
	clear(r.fields)
	s := jsonscan.New(object)
	for s.Enter('{'); s.Next('}'); {
		name := r.field(jsonscan.Name(s.Key()))
		r.fields[name] = fieldValue(s.Span())
	}
	return r.execute()
}

// renderLine makes the text of a line of plain text, which is the field line.
func (r *renderer) renderLine(line []byte) ([]byte, *problem) {
	clear(r.fields)
	r.fields["line"] = string(line)
	return r.execute()
}

func (r *renderer) field(name []byte) string {
	if known, ok := r.names[string(name)]; ok {
		return known
	}
	if len(r.names) == maxNames {
		clear(r.names)
	}
	text := string(name)
	r.names[text] = text
	return text
}

func (r *renderer) execute() ([]byte, *problem) {
	if cap(r.out) > 1<<20 {
		r.out = nil // after a very long row
	}
	out, err := r.t.Append(r.out[:0], r.name, r.fields)
	if err == nil {
		r.out = out
		return out, nil
	}
	bad := &problem{Text: "template " + err.Error()}
	if _, exceeded := errors.AsType[template.Limit](err); exceeded {
		return nil, bad
	}
	bad.Hint = "the row has no fields"
	if len(r.fields) > 0 {
		bad.Hint = "use a field of the row: " + r.fieldNames()
	}
	return nil, bad
}

func (r *renderer) fieldNames() string {
	const most = 20
	names := make([]string, 0, len(r.fields))
	for name := range r.fields {
		names = append(names, clip([]byte(name)))
	}
	slices.Sort(names)
	if more := len(names) - most; more > 0 {
		names = append(names[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// null is JSON's null in a template: false, and as a text nothing.
type null struct{}

// String returns nothing.
func (*null) String() string { return "" }

// fieldValue returns a value as templates see it. Numbers stay the texts that they are.
func fieldValue(value []byte) any {
	if len(value) == 0 {
		return "" // of what is broken, which is refused
	}
	switch value[0] {
	case '"':
		return string(jsonscan.Unquote(value))
	case 't', 'f':
		return value[0] == 't'
	case 'n':
		return (*null)(nil)
	case '{', '[':
		d := json.NewDecoder(bytes.NewReader(value))
		d.UseNumber()
		var v any
		if d.Decode(&v) != nil {
			return ""
		}
		return withNulls(v)
	}
	return json.Number(value)
}

// withNulls puts null where there is nothing, which templates would print as <no value>.
func withNulls(v any) any {
	switch v := v.(type) {
	case nil:
		return (*null)(nil)
	case []any:
		for i := range v {
			v[i] = withNulls(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = withNulls(v[name])
		}
	}
	return v
}
