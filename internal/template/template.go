// Package template executes templates in the syntax of text/template without looking up methods by name. A program that
// looks up methods by names that are not constant keeps all exported methods of its types.
package template

import (
	"errors"
	"fmt"
	"html"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
)

// MaxBytes is the maximum length of a text that a template or one of its functions makes.
const MaxBytes = 64 << 20

// ErrTooLong is the error of a template whose text, or a part of it, exceeds MaxBytes.
var ErrTooLong = errors.New("makes a text longer than 64 MiB")

// HTML is markup that a template of ParseHTML prints as it is.
type HTML string

// Template is a parsed template. It is safe for concurrent use.
type Template struct {
	name   string
	trees  map[string]*parse.Tree
	funcs  map[string]any
	escape bool
}

// Parse parses a template of that name.
func Parse(name, text string) (t *Template, err error) {
	t = &Template{name: name, funcs: functions()}
	if t.trees, err = parse.Parse(name, text, "", "", t.funcs); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	return t, nil
}

// ParseHTML is like Parse. The template escapes each value that it prints, except HTML, so that the value can stand between
// tags and in quoted attributes. It must not print values within scripts, styles, addresses or tags.
func ParseHTML(name, text string) (*Template, error) {
	t, err := Parse(name, text)
	if err == nil {
		t.escape = true
	}
	return t, err
}

// state is one execution of a template. It panics with a failure.
type state struct {
	*Template
	calls []*parse.Tree // the templates that are being executed; the last one is current
	vars  []variable
	out   []byte
}

type variable struct {
	name  string
	value any
}

type failure struct{ error }

// Append appends the text of the template of that name to out, which stays within MaxBytes.
func (t *Template) Append(out []byte, name string, data any) (text []byte, err error) {
	s := state{Template: t, out: out}
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			err = r.error
		default:
			panic(r)
		}
	}()
	s.run(t.trees[name], data)
	return s.out, nil
}

func (s *state) fail(n parse.Node, format string, args ...any) {
	place, action := s.calls[len(s.calls)-1].ErrorContext(n)
	panic(failure{fmt.Errorf("%s: in {{%s}}: %s", place, strings.Trim(action, "{}"), fmt.Sprintf(format, args...))})
}

// run executes a template. As none calls itself, and loops are over data, each execution ends.
func (s *state) run(tree *parse.Tree, dot any) {
	calls, vars := s.calls, s.vars
	s.calls, s.vars = append(s.calls, tree), []variable{{"$", dot}}
	s.walk(dot, tree.Root)
	s.calls, s.vars = calls, vars
}

// walk prints a list. It returns the break or continue that ended it early, or nil.
func (s *state) walk(dot any, l *parse.ListNode) (exit parse.Node) {
	for i := 0; l != nil && i < len(l.Nodes) && exit == nil; i++ {
		switch n := l.Nodes[i].(type) {
		case *parse.TextNode:
			s.write(n.Text)
		case *parse.ActionNode:
			if v := s.pipeline(dot, n.Pipe); len(n.Pipe.Decl) == 0 {
				s.print(v)
			}
		case *parse.IfNode:
			exit = s.branch(dot, &n.BranchNode)
		case *parse.WithNode:
			exit = s.branch(dot, &n.BranchNode)
		case *parse.RangeNode:
			exit = s.branch(dot, &n.BranchNode)
		case *parse.TemplateNode:
			tree := s.trees[n.Name]
			if tree == nil || slices.Contains(s.calls, tree) {
				s.fail(n, "the template %q is not defined, or calls itself", n.Name)
			}
			s.run(tree, s.pipeline(dot, n.Pipe))
		case *parse.BreakNode, *parse.ContinueNode:
			exit = n
		}
	}
	return exit
}

func (s *state) print(v any) {
	shown := text(v)
	if _, ok := v.(HTML); s.escape && !ok {
		shown = html.EscapeString(shown)
	}
	s.write([]byte(shown))
}

func (s *state) write(text []byte) {
	s.limit(len(s.out) + len(text))
	s.out = append(s.out, text...)
}

// limit refuses a text of that length if it is too long.
func (s *state) limit(length int) {
	if length > MaxBytes {
		panic(failure{fmt.Errorf("%s %w", s.name, ErrTooLong)})
	}
}

// branch prints an if, a with or a range.
func (s *state) branch(dot any, n *parse.BranchNode) parse.Node {
	mark := len(s.vars)
	defer func() { s.vars = s.vars[:mark] }()
	v := s.pipeline(dot, n.Pipe)
	switch {
	case n.NodeType == parse.NodeRange:
		if s.loop(v, n) {
			return nil
		}
	case !truth(v):
	case n.NodeType == parse.NodeWith:
		return s.walk(v, n.List)
	default:
		return s.walk(dot, n.List)
	}
	return s.walk(dot, n.ElseList)
}

// loop prints the elements of a value. It reports whether there are any.
func (s *state) loop(v any, n *parse.BranchNode) bool {
	keys, values := elements(v)
	if keys == nil {
		s.fail(n, "range can't iterate over %.60q", text(v))
	}
	inside := len(s.vars)
	for i, key := range keys {
		s.vars = s.vars[:inside]
		for j, d := range n.Pipe.Decl {
			*s.variable(d) = [...]any{key, values[i]}[2-len(n.Pipe.Decl)+j]
		}
		if _, ok := s.walk(values[i], n.List).(*parse.BreakNode); ok {
			break
		}
	}
	return len(keys) > 0
}

// elements returns the elements of a list, or of an object in order of its keys. The keys are nil for other values.
func elements(v any) (keys, values []any) {
	if object, ok := v.(map[string]any); ok {
		keys = []any{}
		for _, key := range slices.Sorted(maps.Keys(object)) {
			keys, values = append(keys, key), append(values, object[key])
		}
	} else if list := reflect.ValueOf(v); list.Kind() == reflect.Slice {
		keys = []any{}
		for i := range list.Len() {
			keys, values = append(keys, i), append(values, list.Index(i).Interface())
		}
	}
	return keys, values
}

// variable returns the innermost variable of that name. The parser accepts assignments to variables that do not exist.
func (s *state) variable(n *parse.VariableNode) *any {
	for i := len(s.vars) - 1; i >= 0; i-- {
		if s.vars[i].name == n.Ident[0] {
			return &s.vars[i].value
		}
	}
	s.fail(n, "undefined variable: %s", n.Ident[0])
	return nil
}

// pipeline returns the value of a pipeline and sets its variables to it.
func (s *state) pipeline(dot any, pipe *parse.PipeNode) any {
	if pipe == nil {
		return nil // {{template "name"}}
	}
	var v [1]any
	for i, cmd := range pipe.Cmds {
		v[0] = s.command(dot, cmd, v[:min(i, 1)])
	}
	for _, d := range pipe.Decl {
		if !pipe.IsAssign {
			s.vars = append(s.vars, variable{name: d.Ident[0]})
		}
		*s.variable(d) = v[0]
	}
	return v[0]
}

// command returns the value of a command. piped has the value of the command before it.
func (s *state) command(dot any, cmd *parse.CommandNode, piped []any) any {
	if f, ok := cmd.Args[0].(*parse.IdentifierNode); ok {
		return s.call(dot, cmd, f.Ident, cmd.Args[1:], piped)
	}
	if len(cmd.Args)+len(piped) > 1 {
		s.fail(cmd, "can't give argument to non-function %s", cmd.Args[0])
	}
	return s.eval(dot, cmd.Args[0])
}

func (s *state) eval(dot any, n parse.Node) any {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot
	case *parse.BoolNode:
		return n.True
	case *parse.StringNode:
		return n.Text
	case *parse.NumberNode:
		if _, err := strconv.ParseInt(n.Text, 0, 64); err == nil || n.Text[0] == '\'' {
			return int(n.Int64)
		}
		return n.Float64
	case *parse.FieldNode:
		return s.fields(n, dot, n.Ident)
	case *parse.VariableNode:
		return s.fields(n, *s.variable(n), n.Ident[1:])
	case *parse.ChainNode:
		return s.fields(n, s.eval(dot, n.Node), n.Field)
	case *parse.PipeNode:
		return s.pipeline(dot, n)
	case *parse.IdentifierNode:
		return s.call(dot, n, n.Ident, nil, nil)
	}
	return nil
}

func (s *state) fields(n parse.Node, v any, names []string) any {
	for _, name := range names {
		var err error
		if v, err = member(v, name); err != nil {
			s.fail(n, "%v", err)
		}
	}
	return v
}

// call calls a function. "and" and "or" evaluate arguments only until one decides.
func (s *state) call(dot any, n parse.Node, name string, args []parse.Node, piped []any) any {
	f, count := s.funcs[name].(function), len(args)+len(piped)
	if count < f.min || count > f.max {
		s.fail(n, "wrong number of args for %s: %d", name, count)
	}
	values := make([]any, 0, count)
	for _, arg := range args {
		v := s.eval(dot, arg)
		if name == "and" && !truth(v) || name == "or" && truth(v) {
			return v
		}
		values = append(values, v)
	}
	v, err := f.call(append(values, piped...))
	if err != nil {
		s.fail(n, "%s: %v", name, err)
	}
	if text, ok := v.(string); ok {
		s.limit(len(text))
	}
	return v
}

// text returns a value as a template prints it.
func text(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
