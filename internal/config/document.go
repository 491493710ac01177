package config

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/sluice-llm/sluice/cluster"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/provider"
)

// mark is the byte order mark, which some editors write at the beginning of a file.
const mark = "\xef\xbb\xbf"

// document is the tree of a file.
type document struct {
	name string
	file *ast.File
	body ast.Node // nil if the file is empty
}

// parse makes the tree, and refuses large files and files with several documents.
func (d *document) parse(data []byte) (err error) {
	if len(data) > largest {
		return d.wrong(0, "", fmt.Errorf("is larger than %d KiB", largest>>10))
	}
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return d.wrong(0, "", errors.New("is not UTF-8"))
	}
	data = bytes.TrimPrefix(data, []byte(mark))
	text := strings.ReplaceAll(strings.ReplaceAll(string(data), "\r\n", "\n"), "\r", "\n")
	tokens := lexer.Tokenize(text)
	if err := d.checkTokens(tokens); err != nil {
		return err
	}
	d.file, err = parser.Parse(tokens, 0)
	if err != nil {
		return d.translate(err)
	}
	for _, doc := range d.file.Docs {
		if doc.Body == nil || doc.Body.Type() == ast.CommentType || doc.Body.Type() == ast.NullType {
			continue
		}
		if d.body != nil {
			return d.wrong(line(doc.Body.GetToken()), "", errors.New("the file contains a second document, but only one is allowed"))
		}
		d.body = doc.Body
	}
	return nil
}

// found are the fields of a document of find apart from limits. Each document has the first one.
var found = strings.Fields(`recommended_workers base_url binding bound bucket_of_one dry_run error findings high hint low max_tested mode
	model notes provider runs settings soak spent timestamp took_ms`)

// dropFound drops the fields of a document of find that are not settings.
func (d *document) dropFound() {
	if m, ok := d.body.(*ast.MappingNode); ok && d.node(found[0]) != nil {
		m.Values = slices.DeleteFunc(m.Values, func(v *ast.MappingValueNode) bool { return slices.Contains(found, v.Key.GetToken().Value) })
	}
}

const (
	deepest = 20 // levels of brackets
	widest  = 12 // levels of a block that begin on one line
)

// checkTokens refuses API keys, because files are copied and committed. It also refuses references, tags and deep nesting, which no
// setting needs.
func (d *document) checkTokens(tokens token.Tokens) error {
	brackets, level, at := 0, 0, 0
	for _, t := range tokens {
		if line(t) != at {
			at, level = line(t), 0
		}
		text, hint := "", ""
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			text = "anchors and references (& * <<) are not supported: repeat the value instead"
		case token.TagType, token.DirectiveType:
			text = "tags and directives (! %) are not supported: put quotes around a value that begins with ! or %"
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType:
			if brackets == 0 {
				level++
			}
		case token.CommentType:
		default:
			if provider.Redact(t.Value) != t.Value {
				text, hint = "this looks like an API key", keyHint
			}
		}
		if brackets > deepest || level > widest {
			text = "is nested too deeply"
		}
		if text != "" {
			err := d.wrong(line(t), "", errors.New(text))
			err.hint = hint
			return err
		}
	}
	return nil
}

const keyHint = "move the key to an environment variable, name the variable in key_env, such as key_env: [MY_API_KEY], " +
	"and revoke the exposed key"

// Error is an error about a file, and about a line and a field if the text names them.
type Error struct{ text, hint string }

// Error returns the text.
func (e *Error) Error() string { return e.text }

// Hint returns an instruction for the user; "" if there is none.
func (e *Error) Hint() string { return e.hint }

// FaultCode is the code of the error in the catalogue of errors.
func (e *Error) FaultCode() string { return fault.Settings }

// wrong is an error about a line and a field; line is 0, and field is "", if the error is not about one.
func (d *document) wrong(line int, field string, err error) *Error {
	place, hint := d.name, ""
	if line > 0 {
		place = fmt.Sprintf("%s:%d", d.name, line)
	}
	if field != "" {
		place += ": " + provider.Redact(field)
	}
	if hinting, ok := errors.AsType[*cluster.Error](err); ok {
		hint = hinting.Hint()
	}
	return &Error{place + ": " + provider.Redact(err.Error()), hint}
}

// at is an error about the field of that path. Its line is the one of the nearest field above if the field is missing.
func (d *document) at(field string, err error) *Error {
	for path := field; path != ""; path = parent(path) {
		if n := d.node(path); n != nil {
			return d.wrong(line(n.GetToken()), field, err)
		}
	}
	return d.wrong(0, field, err)
}

// atNode is an error about the value of a field.
func (d *document) atNode(n ast.Node, err error) *Error {
	return d.wrong(line(n.GetToken()), strings.TrimPrefix(strings.TrimPrefix(n.GetPath(), "$"), "."), err)
}

// translate returns an error of the parser as an error about a line.
func (d *document) translate(err error) *Error {
	if of, ok := errors.AsType[yaml.Error](err); ok {
		return d.wrong(line(of.GetToken()), "", errors.New(of.GetMessage()))
	}
	return d.wrong(0, "", err)
}

// parent returns the path of the field above; "" at the top.
func parent(path string) string { return path[:max(strings.LastIndexAny(path, ".["), 0)] }

// node returns the value of the field of that path; nil if the document does not have it.
func (d *document) node(path string) (n ast.Node) {
	if p, err := yaml.PathString("$." + path); err == nil {
		n, _ = p.FilterFile(d.file)
	}
	return n
}

func line(t *token.Token) int {
	if t == nil || t.Position == nil {
		return 0
	}
	return t.Position.Line
}
