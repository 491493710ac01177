package config

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/provider"
)

// Error is what is wrong with a file.
type Error struct {
	File  string
	Line  int    // from 1; 0 where it is no single line
	Field string // its path, such as limits.rpm; "" where it is no single field
	Text  string
	hint  string
}

// Error says where it is and what.
func (e *Error) Error() string {
	text := e.Text
	if e.Field != "" {
		text = e.Field + ": " + text
	}
	if e.Line > 0 {
		return fmt.Sprintf("%s:%d: %s", e.File, e.Line, text)
	}
	return e.File + ": " + text
}

// Hint says what to do about it; "" is nothing in particular.
func (e *Error) Hint() string { return e.hint }

// FaultCode is the code of the error in the catalogue of errors.
func (e *Error) FaultCode() string { return fault.Settings }

// wrong is an error about the field of that path, or about what it is missing in.
func (d *document) wrong(field string, err error) *Error {
	at := 0
	for path := field; at == 0 && path != ""; path = parent(path) {
		if n := d.node(path); n != nil {
			at = line(n.GetToken())
		}
	}
	hint := ""
	if hinting, ok := errors.AsType[*cluster.Error](err); ok {
		hint = hinting.Hint()
	}
	return &Error{File: d.name, Line: at, Field: provider.Redact(field), Text: provider.Redact(err.Error()), hint: hint}
}

// parent returns the path of what the field of a path is in; "" at the top.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// node is the value of the field of that path; nil if the document does not have it.
func (d *document) node(path string) ast.Node {
	p, err := yaml.PathString("$." + path)
	if err != nil {
		return nil
	}
	n, err := p.FilterFile(d.file)
	if err != nil {
		return nil
	}
	return n
}

// translate says in our words what the parser found.
func (d *document) translate(err error) error {
	var of yaml.Error
	if !errors.As(err, &of) {
		return &Error{File: d.name, Text: provider.Redact(err.Error())}
	}
	e := &Error{File: d.name, Line: line(of.GetToken()), Field: d.pathOf(of.GetToken()), Text: provider.Redact(of.GetMessage())}
	var unknown *yaml.UnknownFieldError
	var mistyped *yaml.TypeError
	var misshapen *yaml.UnexpectedNodeTypeError
	switch {
	case errors.As(err, &unknown):
		name, known := unknown.GetToken().Value, fields()
		e.Field = ""
		e.Text = provider.Redact(fmt.Sprintf("unknown field %q", name))
		if slices.Contains(known, name) { // its neighbours in spelling would be as wrong here as it is
			e.Text = provider.Redact(fmt.Sprintf("field %q belongs below another field", name))
			known = []string{"providers", "limits", "upstreams", "serve"}
		}
		e.Text += provider.DidYouMean(provider.Nearest(name, known))
		if low := strings.ToLower(name); strings.Contains(low, "key") || strings.Contains(low, "secret") || strings.Contains(low, "token") {
			e.hint = keyHint
		}
	case errors.As(err, &mistyped):
		e.Text = "want " + inWords(mistyped.DstType)
	case errors.As(err, &misshapen) && misshapen.Expected == ast.SequenceType:
		e.Text = "want a list, with a dash before each entry"
	case errors.As(err, &misshapen) && misshapen.Expected == ast.MappingType:
		e.Text = "want fields, such as name: value"
	}
	return e
}

// pathOf returns the path of the field whose value begins with that token.
func (d *document) pathOf(t *token.Token) string {
	path := ""
	if d.body == nil || t == nil {
		return ""
	}
	ast.Walk(visitor(func(n ast.Node) {
		if path == "" && n.GetToken() == t {
			path = strings.TrimPrefix(strings.TrimPrefix(n.GetPath(), "$"), ".")
		}
	}), d.body)
	return path
}

// inWords says what values a type has.
func inWords(t reflect.Type) string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[time.Time]() {
		return "an instant, such as 2026-01-31T12:00:00Z"
	}
	switch t {
	case reflect.TypeFor[Models]():
		return "models, as {requested name: name at the upstream} or a list such as [gpt-4o]"
	case reflect.TypeFor[Duration]():
		return "a time above zero with its unit, such as 30s or 5m"
	case reflect.TypeFor[Size]():
		return "a size above zero with its unit, such as 64MiB"
	}
	switch t.Kind() {
	case reflect.Int:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "a list, such as [a, b]"
	case reflect.String:
		return "a text"
	}
	return "fields, each on its own line"
}

// fields returns the names of all fields that there are.
func fields() []string {
	var names []string
	seen := make(map[reflect.Type]bool)
	var collect func(t reflect.Type)
	collect = func(t reflect.Type) {
		for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || seen[t] {
			return
		}
		seen[t] = true
		for _, field := range reflect.VisibleFields(t) {
			name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
			if name != "" && name != "-" {
				names = append(names, name)
				collect(field.Type)
			}
		}
	}
	collect(reflect.TypeFor[File]())
	return names
}

func line(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 0
	}
	return t.Position.Line
}
