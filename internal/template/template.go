// Package template executes templates in the syntax of text/template without looking up methods by name. A program that
// looks up methods by names that are not constant keeps all exported methods of its types.
package template

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"iter"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"text/template/parse"
)

const (
	// MaxBytes is the maximum length of a text that a template or one of its functions makes.
	MaxBytes = 64 << 20
	maxSteps = 1_000_000 // iterations of loops and calls of templates
)

// Limit is the error of a template that exceeds a bound.
type Limit string

// Error returns the text that follows the name of the template.
func (l Limit) Error() string { return string(l) }

// TooLong is the error of templates and functions whose text exceeds MaxBytes.
const TooLong Limit = "makes a text longer than 64 MiB"

const endless Limit = "needs more than 1000000 steps for one row"

// HTML is markup that a template of ParseHTML prints as it is.
type HTML string

// Template is a parsed template. It is safe for concurrent use.
type Template struct {
	name   string
	trees  map[string]*parse.Tree
	funcs  map[string]reflect.Value
	escape bool
}

// Parse parses a template of that name. It fails if the template calls itself or a template that is not defined. The
// functions come in addition to the standard ones or replace them. They return a value, or a value and an error.
func Parse(name, text string, funcs map[string]any) (*Template, error) {
	all := standard()
	maps.Copy(all, funcs)
	trees, err := parse.Parse(name, text, "", "", all)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	t := &Template{name: name, trees: trees, funcs: make(map[string]reflect.Value)}
	for name, f := range all {
		t.funcs[name] = reflect.ValueOf(f)
	}
	return t, t.check(name, make(map[string]bool))
}

// ParseHTML is like Parse. The template escapes each value that it prints, except HTML, so that the value can stand between
// tags and in quoted attributes. It must not print values within scripts, styles, addresses or tags.
func ParseHTML(name, text string, funcs map[string]any) (*Template, error) {
	t, err := Parse(name, text, funcs)
	if err == nil {
		t.escape = true
	}
	return t, err
}

// check follows the calls of a template. done is false for the templates on the way to it.
func (t *Template) check(name string, done map[string]bool) error {
	finished, entered := done[name]
	switch {
	case finished:
		return nil
	case entered:
		return fmt.Errorf("%s: the template %q calls itself", t.name, name)
	case t.trees[name] == nil:
		return fmt.Errorf("%s: template %q not defined", t.name, name)
	}
	done[name] = false
	for _, inner := range calls(nil, t.trees[name].Root) {
		if err := t.check(inner, done); err != nil {
			return err
		}
	}
	done[name] = true
	return nil
}

// calls appends the names of the templates that the lists call.
func calls(names []string, lists ...*parse.ListNode) []string {
	for _, l := range lists {
		if l == nil {
			continue
		}
		for _, n := range l.Nodes {
			switch n := n.(type) {
			case *parse.IfNode:
				names = calls(names, n.List, n.ElseList)
			case *parse.WithNode:
				names = calls(names, n.List, n.ElseList)
			case *parse.RangeNode:
				names = calls(names, n.List, n.ElseList)
			case *parse.TemplateNode:
				names = append(names, n.Name)
			}
		}
	}
	return names
}

// state is one execution of a template. It panics with a failure.
type state struct {
	*Template
	tree  *parse.Tree // of the template that is executed
	vars  []variable
	out   []byte
	steps int
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
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			err = f.error
		}
	}()
	s.run(name, data)
	return s.out, nil
}

func (s *state) fail(n parse.Node, format string, args ...any) {
	place, text := s.tree.ErrorContext(n)
	if !strings.HasPrefix(text, "{{") {
		text = "{{" + text + "}}"
	}
	panic(failure{fmt.Errorf("%s: in %s: %s", place, text, fmt.Sprintf(format, args...))})
}

func (s *state) exceed(l Limit) { panic(failure{fmt.Errorf("%s %w", s.name, l)}) }

func (s *state) step() {
	if s.steps++; s.steps > maxSteps {
		s.exceed(endless)
	}
}

func (s *state) run(name string, dot any) {
	s.step()
	tree, vars := s.tree, s.vars
	s.tree, s.vars = s.trees[name], []variable{{"$", dot}}
	s.walk(dot, s.tree.Root)
	s.tree, s.vars = tree, vars
}

// walk prints a list. It returns the break or continue that ended it early, or nil.
func (s *state) walk(dot any, l *parse.ListNode) (exit parse.Node) {
	if l == nil {
		return nil
	}
	for i := 0; i < len(l.Nodes) && exit == nil; i++ {
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
			exit = s.loop(dot, n)
		case *parse.TemplateNode:
			s.run(n.Name, s.pipeline(dot, n.Pipe))
		case *parse.BreakNode, *parse.ContinueNode:
			exit = n
		}
	}
	return exit
}

func (s *state) print(v any) {
	text := Text(v)
	if _, ok := v.(HTML); s.escape && !ok {
		text = html.EscapeString(text)
	}
	s.write([]byte(text))
}

func (s *state) write(text []byte) {
	if len(s.out)+len(text) > MaxBytes {
		s.exceed(TooLong)
	}
	s.out = append(s.out, text...)
}

// branch prints an if or a with.
func (s *state) branch(dot any, n *parse.BranchNode) parse.Node {
	mark := len(s.vars)
	defer func() { s.vars = s.vars[:mark] }()
	v := s.pipeline(dot, n.Pipe)
	if !truth(v) {
		return s.walk(dot, n.ElseList)
	}
	if n.NodeType == parse.NodeWith {
		dot = v
	}
	return s.walk(dot, n.List)
}

func (s *state) loop(dot any, n *parse.RangeNode) (exit parse.Node) {
	mark := len(s.vars)
	defer func() { s.vars = s.vars[:mark] }()
	v, inside, empty := s.pipeline(dot, n.Pipe), len(s.vars), true
	all := elements(v)
	if all == nil {
		s.fail(n, "range can't iterate over %.60q", Text(v))
	}
	for key, element := range all {
		s.step()
		s.vars, empty = s.vars[:inside], false
		for i, d := range n.Pipe.Decl {
			*s.variable(d) = [...]any{key, element}[2-len(n.Pipe.Decl)+i]
		}
		if _, ok := s.walk(element, n.List).(*parse.BreakNode); ok {
			break
		}
	}
	if empty {
		exit = s.walk(dot, n.ElseList)
	}
	return exit
}

// elements returns the elements of a list, of an object in order of its keys, or the integers below a number. It returns nil for
// other values.
func elements(v any) iter.Seq2[any, any] {
	r := reflect.ValueOf(v)
	count, key, at := 0, func(i int) any { return i }, func(i int) any { return i }
	switch m, ok := v.(map[string]any); {
	case ok:
		keys := slices.Sorted(maps.Keys(m))
		count, key, at = len(keys), func(i int) any { return keys[i] }, func(i int) any { return m[keys[i]] }
	case r.CanInt():
		count = int(r.Int())
	case r.Kind() == reflect.Slice:
		count, at = r.Len(), func(i int) any { return r.Index(i).Interface() }
	default:
		return nil
	}
	return func(yield func(key, element any) bool) {
		for i := 0; i < count && yield(key(i), at(i)); i++ {
		}
	}
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
		return number(n)
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

// number returns a constant, which is an integer if it is written as one.
func number(n *parse.NumberNode) any {
	switch _, err := strconv.ParseInt(n.Text, 0, 64); {
	case n.IsComplex:
		return n.Complex128
	case err == nil || n.Text[0] == '\'':
		return int(n.Int64)
	}
	return n.Float64
}

func (s *state) fields(n parse.Node, v any, names []string) any {
	for _, name := range names {
		v = s.field(n, v, name)
	}
	return v
}

// field returns a member of an object, a field of a struct, or a number of JSON as Int64 or Float64.
func (s *state) field(n parse.Node, v any, name string) any {
	switch v := v.(type) {
	case map[string]any:
		member, ok := v[name]
		if !ok {
			s.fail(n, "no field %q", name)
		}
		return member
	case json.Number:
		if number, err := v.Int64(); err == nil && name == "Int64" {
			return number
		}
		if number, err := v.Float64(); err == nil && name == "Float64" {
			return number
		}
	}
	if r := reflect.Indirect(reflect.ValueOf(v)); r.Kind() == reflect.Struct {
		if f := r.FieldByName(name); f.IsValid() && f.CanInterface() {
			return f.Interface()
		}
	}
	s.fail(n, "can't evaluate field %s in type %T", name, v)
	return nil
}

// call calls a function. "and" and "or" evaluate arguments only until one decides.
func (s *state) call(dot any, n parse.Node, name string, args []parse.Node, piped []any) any {
	f, count := s.funcs[name], len(args)+len(piped)
	of := f.Type()
	last := of.NumIn() - 1
	if of.IsVariadic() && count < last || !of.IsVariadic() && count != last+1 {
		s.fail(n, "wrong number of args for %s: want %d got %d", name, last+1, count)
	}
	in := make([]reflect.Value, count)
	for i := range in {
		var v any
		if i < len(args) {
			v = s.eval(dot, args[i])
		} else {
			v = piped[0]
		}
		if (name == "and" || name == "or") && (i == count-1 || truth(v) == (name == "or")) {
			return v
		}
		typ := of.In(min(i, last))
		if of.IsVariadic() && i >= last {
			typ = typ.Elem()
		}
		var ok bool
		if in[i], ok = argument(v, typ); !ok {
			s.fail(n, "wrong type for value; expected %s; got %T", typ, v)
		}
	}
	out := f.Call(in)
	v := out[0].Interface()
	if len(out) == 2 && !out[1].IsNil() {
		err := out[1].Interface().(error)
		if l, ok := errors.AsType[Limit](err); ok {
			s.exceed(l)
		}
		s.fail(n, "%s: %v", name, err)
	}
	if text, ok := v.(string); ok && len(text) > MaxBytes {
		s.exceed(TooLong)
	}
	return v
}

// argument returns a value as an argument of that type. Whole numbers are integers, too.
func argument(v any, typ reflect.Type) (reflect.Value, bool) {
	r := reflect.ValueOf(v)
	switch {
	case v == nil:
		return reflect.Zero(typ), typ.Kind() == reflect.Interface
	case r.Type().AssignableTo(typ):
		return r, true
	case typ.Kind() == reflect.Int && (r.CanInt() || r.CanFloat() && r.Float() == math.Trunc(r.Float())):
		return r.Convert(typ), true
	}
	return r, false
}

// Text returns a value as a template prints it.
func Text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case json.Number:
		return string(v)
	}
	return fmt.Sprint(v)
}
