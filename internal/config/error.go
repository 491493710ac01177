package config

import (
	"errors"
	"fmt"
	"strings"

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
	return d.wrongAt(at, field, err)
}

// at is an error about the value of a field.
func (d *document) at(n ast.Node, err error) *Error {
	return d.wrongAt(line(n.GetToken()), strings.TrimPrefix(strings.TrimPrefix(n.GetPath(), "$"), "."), err)
}

// wrongAt is an error about the field of that path in a line.
func (d *document) wrongAt(line int, field string, err error) *Error {
	hint := ""
	if hinting, ok := errors.AsType[*cluster.Error](err); ok {
		hint = hinting.Hint()
	}
	return &Error{File: d.name, Line: line, Field: provider.Redact(field), Text: provider.Redact(err.Error()), hint: hint}
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

// translate returns an error of the parser as an error about a line.
func (d *document) translate(err error) *Error {
	if of, ok := errors.AsType[yaml.Error](err); ok {
		return d.wrongAt(line(of.GetToken()), "", errors.New(of.GetMessage()))
	}
	return d.wrongAt(0, "", err)
}

func line(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 0
	}
	return t.Position.Line
}
