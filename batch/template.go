package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/template"
)

// renderer makes the prompts of rows by a template. It is not safe for concurrent use.
type renderer struct {
	name string
	t    *template.Template
	out  []byte
}

// newRenderer reads a template of that name. Its functions reach neither files nor the environment.
func newRenderer(name, text string) (*renderer, error) {
	if !strings.Contains(text, "{{") {
		return nil, fmt.Errorf("%s contains no field of the items", name)
	}
	t, err := template.Parse(name, text)
	return &renderer{name: name, t: t}, err
}

// rowFields returns the fields of a row's object. Numbers stay the texts that they are.
func rowFields(object []byte) map[string]any {
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	var fields map[string]any
	if d.Decode(&fields) != nil {
		return nil // it is broken, and refused
	}
	withNulls(fields)
	return fields
}

// render makes the text of a row's fields; it is valid until the next.
func (r *renderer) render(fields map[string]any) ([]byte, *problem) {
	if cap(r.out) > 1<<20 {
		r.out = nil // after a very long row
	}
	out, err := r.t.Append(r.out[:0], r.name, fields)
	if err == nil {
		r.out = out
		return out, nil
	}
	bad := &problem{Text: "template " + err.Error()}
	switch {
	case errors.Is(err, template.ErrTooLong):
	case len(fields) == 0:
		bad.Hint = "the row has no fields"
	default:
		bad.Hint = "use a field of the row: " + fieldNames(fields)
	}
	return nil, bad
}

func fieldNames(fields map[string]any) string {
	const most = 20
	names := make([]string, 0, len(fields))
	for name := range fields {
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
