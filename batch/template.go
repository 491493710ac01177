package batch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/template"
	"text/template/parse"

	"github.com/sluice-llm/sluice/internal/jsonscan"
	"github.com/sluice-llm/sluice/internal/rows"
)

// renderer makes the prompts of rows by a template. It is not safe for concurrent use.
type renderer struct {
	name   string
	t      *template.Template
	fields map[string]any
	names  map[string]string // of fields: every row has the same ones
	out    bytes.Buffer
	steps  int
}

// mostSteps is how many rounds of loops, and templates within it, one row of a template may take.
const mostSteps = 1_000_000

// mostNames is how many names of fields are kept.
const mostNames = 1000

// stepName is the function that counts them. A template has it at the head of every loop.
const stepName = "_step"

var (
	errEndless = fmt.Errorf("takes more than %d rounds for one row: does a loop not end?", mostSteps)
	errLong    = fmt.Errorf("makes a text longer than %d MiB", rows.MaxBytes>>20)
)

// newRenderer reads a template of that name. Its functions reach neither files nor the environment.
func newRenderer(name, text string) (*renderer, error) {
	r := &renderer{name: name, fields: make(map[string]any), names: make(map[string]string)}
	t, err := template.New(name).Option("missingkey=error").Funcs(templateFuncs()).
		Funcs(template.FuncMap{stepName: r.step}).Parse(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	count, err := template.New(name).Funcs(template.FuncMap{stepName: r.step}).Parse("{{" + stepName + "}}")
	if err != nil {
		return nil, err
	}
	calls := make(map[string][]string)
	for _, part := range t.Templates() {
		if part.Tree == nil || part.Root == nil {
			continue
		}
		w := walker{count: count.Root.Nodes[0]}
		w.counted(part.Root)
		calls[part.Name()] = w.calls
	}
	if loop := recursion(calls, name, nil, make(map[string]bool)); loop != "" {
		return nil, fmt.Errorf("%s: the template %q calls itself", name, loop)
	}
	r.t = t
	return r, nil
}

// step counts, and prints nothing.
func (r *renderer) step() (string, error) {
	if r.steps++; r.steps > mostSteps {
		return "", errEndless
	}
	return "", nil
}

// walker goes through a template: it makes every list of nodes count that may come more than once, and gathers the names of
// the templates that are called.
type walker struct {
	count parse.Node
	calls []string
}

// counted makes the list count, beside what list does.
func (w *walker) counted(l *parse.ListNode) {
	w.list(l)
	l.Nodes = slices.Insert(l.Nodes, 0, w.count)
}

func (w *walker) list(l *parse.ListNode) {
	if l == nil {
		return
	}
	for _, n := range l.Nodes {
		switch n := n.(type) {
		case *parse.IfNode:
			w.list(n.List)
			w.list(n.ElseList)
		case *parse.WithNode:
			w.list(n.List)
			w.list(n.ElseList)
		case *parse.RangeNode:
			w.counted(n.List)
			w.list(n.ElseList)
		case *parse.TemplateNode:
			w.calls = append(w.calls, n.Name)
		}
	}
}

// recursion returns the name of a template that calls itself, however indirectly; "" is none.
func recursion(calls map[string][]string, name string, above []string, ends map[string]bool) string {
	if slices.Contains(above, name) {
		return name
	}
	if ends[name] {
		return ""
	}
	ends[name] = true
	above = append(above, name)
	for _, inner := range calls[name] {
		if loop := recursion(calls, inner, above, ends); loop != "" {
			return loop
		}
	}
	return ""
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
	if len(r.names) == mostNames {
		clear(r.names)
	}
	text := string(name)
	r.names[text] = text
	return text
}

func (r *renderer) execute() ([]byte, *problem) {
	r.steps = 0
	if r.out.Reset(); r.out.Cap() > 1<<20 {
		r.out = bytes.Buffer{} // after a very long row
	}
	err := r.t.Execute((*bounder)(&r.out), r.fields)
	switch {
	case err == nil:
		return r.out.Bytes(), nil
	case errors.Is(err, errEndless), errors.Is(err, errLong):
		cause := errEndless
		if errors.Is(err, errLong) {
			cause = errLong
		}
		return nil, &problem{Text: fmt.Sprintf("template %s %v", r.name, cause)}
	}
	bad := &problem{Text: "template " + strings.TrimPrefix(err.Error(), "template: ")}
	if len(r.fields) > 0 {
		bad.Hint = "the fields of the row are " + r.fieldNames()
	} else {
		bad.Hint = "the row has no fields"
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

// bounder is a buffer that takes no more than a line may have.
type bounder bytes.Buffer

func (b *bounder) Write(p []byte) (int, error) {
	buf := (*bytes.Buffer)(b)
	if buf.Len()+len(p) > rows.MaxBytes {
		return 0, errLong
	}
	return buf.Write(p)
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
