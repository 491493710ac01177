// Package config reads what users write down: sluice.yaml, and the file of limits that a search for them leaves behind.
// Both have one schema and are YAML, of which JSON is a part.
//
// Load reads files, and says what is wrong with them by file, line and field.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// File is what a file says. The zero value says nothing.
type File struct {
	Name string `yaml:"-"` // of the file, as it was given

	// Providers change what is known of providers, and add others.
	Providers []provider.Row `yaml:"providers"`

	// Limits are those of an account. Nil: the file has none.
	Limits *Limits `yaml:"limits"`

	// Upstreams are the ways to send calls, where there are several.
	Upstreams []Upstream `yaml:"upstreams"`

	// Tier names published limits that a run starts with. "": none.
	Tier string `yaml:"tier"`

	// Prefer chooses among upstreams.
	Prefer provider.Preference `yaml:"prefer"`

	// MaxThrottles is how often an item may be rate-limited. Nil: 20 times, in 10 minutes at least; 0: never.
	MaxThrottles *int `yaml:"max_throttles"`

	// Charge says which tokens count against a limit. Nil: the method of the provider.
	Charge *limits.Charge `yaml:"charge"`

	// Serve is for a gateway. Nil: the file has nothing for one.
	Serve *Serve `yaml:"serve"`

	registry  *provider.Registry
	documents []*document // that the fields are of, the last first
}

// Registry returns the published registry with the file's providers laid over it.
func (f *File) Registry() *provider.Registry {
	if f.registry == nil {
		return provider.Published()
	}
	return f.registry
}

// At returns err as one about the field of that path, in the file that has it or what it is missing in.
func (f *File) At(field string, err error) error {
	if d := f.source(field); d != nil {
		return d.wrong(field, err)
	}
	return err
}

// NameOf returns the name of the file that has the field of that path or what it is missing in; of the last file if none has.
func (f *File) NameOf(field string) string {
	if d := f.source(field); d != nil {
		return d.name
	}
	return f.Name
}

// source returns the last document that has the field, or else a field above it. A list is of one document. Nil: none has any.
func (f *File) source(field string) *document {
	path, _, _ := strings.Cut(field, "[")
	for ; path != ""; path = parent(path) {
		for _, d := range f.documents {
			if d.body != nil && d.node(path) != nil {
				return d
			}
		}
	}
	return nil
}

// DiffersFrom reports whether the file says anything else to a run but of limits.
func (f File) DiffersFrom(g File) bool {
	for _, file := range []*File{&f, &g} {
		file.Name, file.Limits, file.Serve, file.registry, file.documents = "", nil, nil, nil, nil
		file.Upstreams = slices.Clone(file.Upstreams)
		for i := range file.Upstreams {
			file.Upstreams[i].Limits = nil
		}
	}
	return !reflect.DeepEqual(f, g)
}

// largest is how large a file may be: many times what anybody writes by hand.
const largest = 256 << 10

// Load reads files. Each field of a later file replaces that field of the files before, also below serve and limits, unless its
// limits name their provider or model. A list is one field, but providers are added. A document that `sluice find` wrote gives its
// limits. An error about their content is an *Error.
func Load(paths ...string) (file File, err error) {
	for _, path := range paths {
		data, err := read(path)
		if err != nil {
			return File{}, err
		}
		if file, err = file.parse(path, data); err != nil {
			return File{}, err
		}
	}
	return file, nil
}

// isNull reports whether that is the device which holds nothing.
func isNull(path string) bool {
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err == nil && os.SameFile(info, null)
}

// read returns the content of a file, not much more than Parse takes.
func read(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		if isNull(path) {
			return nil, nil // how one asks for no file
		}
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, largest+1))
}

// Parse reads the content of a file of that name. The error is an *Error.
func Parse(name string, data []byte) (File, error) { return File{}.parse(name, data) }

// parse returns the settings with the content of a file over them.
func (f File) parse(name string, data []byte) (_ File, err error) {
	defer func() { // the parser was not made for every text
		if recover() != nil {
			err = &Error{File: name, Text: "cannot be read as settings"}
		}
	}()
	d := document{name: name}
	if err := d.parse(data); err != nil {
		return File{}, err
	}
	f.Name, f.documents = name, append([]*document{&d}, f.documents...)
	if d.body == nil { // nothing, or only comments
		return f, nil
	}
	if err := d.checkSecrets(); err != nil {
		return File{}, err
	}
	d.dropFound()
	if err := d.inspect(d.body, reflect.TypeFor[File](), ""); err != nil {
		return File{}, err
	}
	before := f.Providers
	f.Providers = nil
	if d.node("limits.provider") != nil || d.node("limits.model") != nil { // of another account or model
		f.Limits = nil
	}
	if err := yaml.NodeToValue(d.body, &f); err != nil {
		return File{}, d.translate(err)
	}
	if field, err := f.check(name); err != nil {
		return File{}, d.wrong(field, err)
	}
	f.Providers = slices.Concat(before, f.Providers)
	return f, nil
}

// check completes the settings, and refuses fields that do not fit each other. The error is about the returned field. Providers are
// those of the last file, whose name is the source of their tiers.
func (f *File) check(name string) (field string, err error) {
	for i := range f.Providers {
		for k := range f.Providers[i].Tiers {
			tier := &f.Providers[i].Tiers[k]
			tier.Source = cmp.Or(tier.Source, name)
		}
	}
	if len(f.Providers) > 0 {
		f.registry, err = f.Registry().With(f.Providers...)
		if row, ok := errors.AsType[*provider.RowError](err); ok {
			return fmt.Sprintf("providers[%d].%s", row.Row, row.Field), row.Err
		}
	}
	if f.MaxThrottles != nil && *f.MaxThrottles < 0 {
		return "max_throttles", errors.New("want a whole number, at least 0")
	}
	if field, err = f.Limits.check(); err != nil {
		return "limits." + field, err
	}
	if field, err = f.checkUpstreams(); err != nil {
		return field, err
	}
	return f.checkServe()
}

// mark is what some editors write at the beginning of a file.
const mark = "\xef\xbb\xbf"

// document is the tree of a file.
type document struct {
	name string
	file *ast.File
	body ast.Node // nil when there is nothing in it
}

// parse makes the tree, and refuses what would make it too deep or too large.
func (d *document) parse(data []byte) (err error) {
	if len(data) > largest {
		return &Error{File: d.name, Text: fmt.Sprintf("is larger than %d KiB", largest>>10)}
	}
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return &Error{File: d.name, Text: "is not UTF-8"}
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
			return &Error{File: d.name, Line: line(doc.Body.GetToken()), Text: "the file contains a second document, but only one is allowed"}
		}
		d.body = doc.Body
	}
	return nil
}

// found are the fields of a document of find beside limits, the first of which each has.
var found = strings.Fields(`recommended_workers base_url binding bound bucket_of_one dry_run error findings high hint low max_tested mode
	model notes provider runs settings soak spent timestamp took_ms`)

// dropFound drops the fields of a document of find that are not settings.
func (d *document) dropFound() {
	m, ok := d.body.(*ast.MappingNode)
	is := func(names ...string) func(*ast.MappingValueNode) bool {
		return func(v *ast.MappingValueNode) bool { return slices.Contains(names, v.Key.GetToken().Value) }
	}
	if ok && slices.ContainsFunc(m.Values, is(found[0])) {
		m.Values = slices.DeleteFunc(m.Values, is(found...))
	}
}

const (
	deepest = 20 // levels of brackets
	widest  = 12 // levels of a block that begin on one line
)

// checkTokens refuses what the schema has no use for and hostile files have: references, and nesting without end.
func (d *document) checkTokens(tokens token.Tokens) error {
	brackets, level, at := 0, 0, 0
	for _, t := range tokens {
		if line(t) != at {
			at, level = line(t), 0
		}
		switch t.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return &Error{File: d.name, Line: line(t), Text: "anchors and references (& * <<) are not supported: repeat the value instead"}
		case token.TagType, token.DirectiveType:
			return &Error{File: d.name, Line: line(t), Text: "tags and directives (! %) are not supported: put quotes around a value that begins with ! or %"}
		case token.SequenceStartType, token.MappingStartType:
			brackets++
		case token.SequenceEndType, token.MappingEndType:
			brackets--
		case token.SequenceEntryType, token.MappingKeyType, token.MappingValueType:
			if brackets == 0 {
				level++
			}
		}
		if brackets > deepest || level > widest {
			return &Error{File: d.name, Line: line(t), Text: "is nested too deeply"}
		}
	}
	return nil
}

// checkSecrets refuses keys: files are copied and committed.
func (d *document) checkSecrets() error {
	var found error
	ast.Walk(visitor(func(n ast.Node) {
		s, ok := n.(ast.ScalarNode)
		if !ok || found != nil {
			return
		}
		if text := fmt.Sprint(s.GetValue()); provider.Redact(text) != text {
			found = &Error{File: d.name, Line: line(n.GetToken()), Text: "this looks like an API key", hint: keyHint}
		}
	}), d.body)
	return found
}

const keyHint = "move the key to an environment variable, name the variable in key_env, such as key_env: [MY_API_KEY], and revoke the exposed key"

// visitor looks at every node.
type visitor func(ast.Node)

func (v visitor) Visit(n ast.Node) ast.Visitor {
	v(n)
	return v
}
