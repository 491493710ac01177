package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/sluice-llm/sluice/provider"
)

// Variables are the values that ${NAME} stood for in a file, by name, but for addresses to listen at. They are nothing to print.
type Variables map[string]string

// Mask returns text with the names of variables in place of their values.
func (v Variables) Mask(text string) string {
	names := make([]string, 0, len(v))
	for name := range v {
		names = append(names, name)
	}
	// The longest first, since one may be part of another.
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(len(v[b]), len(v[a])), cmp.Compare(a, b)) })
	for _, name := range names {
		value := v[name]
		text = strings.ReplaceAll(text, strconv.Quote(value), "${"+name+"}")
		const least = 4 // the place of a shorter one tells nothing, and it is part of many words
		if len(value) >= least {
			text = strings.ReplaceAll(text, value, "${"+name+"}")
		}
	}
	return text
}

// notExpanded are fields that messages, results and metrics name things by, or that name variables themselves.
var notExpanded = [...]string{"name", "provider", "account", "key_env"}

// expand puts the values of variables into the texts of upstreams and serve.
func (d *document) expand() (err error) {
	m, ok := d.body.(*ast.MappingNode)
	if !ok {
		return nil
	}
	d.variables = make(Variables)
	for _, section := range m.Values {
		if name := section.Key.GetToken().Value; name == "upstreams" || name == "serve" {
			if err := d.expandIn(section.Value, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// expandIn expands the values below a node; keys stay as they are.
func (d *document) expandIn(n ast.Node, path string) error {
	switch n := n.(type) {
	case *ast.MappingNode:
		for _, v := range n.Values {
			if err := d.expandIn(v, path); err != nil {
				return err
			}
		}
	case *ast.MappingValueNode:
		name := n.Key.GetToken().Value
		if strings.HasPrefix(path, "upstreams[") && !strings.Contains(path, ".") && slices.Contains(notExpanded[:], name) {
			return nil
		}
		return d.expandIn(n.Value, path+"."+name)
	case *ast.SequenceNode:
		for i, v := range n.Values {
			if err := d.expandIn(v, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case *ast.StringNode:
		return d.expandText(&n.Value, n, path)
	case *ast.LiteralNode:
		if n.Value != nil {
			return d.expandText(&n.Value.Value, n, path)
		}
	}
	return nil
}

func (d *document) expandText(text *string, n ast.Node, path string) error {
	used := d.variables
	if path == "serve.listen" || path == "serve.metrics_listen" { // an address is there to be shown
		used = make(Variables)
	}
	whole, err := expand(*text, d.lookup, used)
	if err != nil {
		return &Error{File: d.name, Line: line(n.GetToken()), Field: provider.Redact(path), Text: err.Error(),
			hint: "export the variable, or write $${ where ${ itself is meant"}
	}
	*text = whole
	return nil
}

// expand returns a text with the values of variables, which it notes in used.
func expand(text string, lookup func(string) (string, bool), used Variables) (string, error) {
	var b strings.Builder
	for {
		at := strings.Index(text, "${")
		if at < 0 {
			return b.String() + text, nil
		}
		if at > 0 && text[at-1] == '$' {
			b.WriteString(text[:at-1] + "${")
			text = text[at+2:]
			continue
		}
		name, rest, ok := strings.Cut(text[at+2:], "}")
		if !ok || !provider.IsVariable(name) { // it may be a key: it is not quoted
			return "", errors.New("what stands in ${ } is not the name of a variable, such as ${MY_HOST}")
		}
		value, ok := lookup(name)
		if !ok {
			return "", fmt.Errorf("%s is not set in the environment", name)
		}
		if used[name] = value; value == "" {
			delete(used, name)
		}
		b.WriteString(text[:at] + value)
		text = rest
	}
}
