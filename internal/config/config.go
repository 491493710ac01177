// Package config reads settings files such as sluice.yaml, and the limits in a document of `sluice find`. Both are YAML, which includes
// JSON. Errors name the file, the line and the field.
package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/sluice-llm/sluice/internal/regular"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// File are the settings of one or more files. A zero field is not set.
type File struct {
	Name string `yaml:"-"` // name of the last file

	Providers    []provider.Row      `yaml:"providers"`     // changes of published providers, and other providers
	Limits       *Limits             `yaml:"limits"`        // limits of an account
	Upstreams    []Upstream          `yaml:"upstreams"`     // endpoints for requests, if there are several
	Tier         string              `yaml:"tier"`          // published limits to start with
	Prefer       provider.Preference `yaml:"prefer"`        // choice of upstreams
	MaxThrottles *int                `yaml:"max_throttles"` // rate-limited attempts of an item. Nil: 20, in at least 10 minutes
	Charge       *limits.Charge      `yaml:"charge"`        // tokens that count against a limit. Nil: the method of the provider
	Serve        *Serve              `yaml:"serve"`         // settings of a gateway

	registry  *provider.Registry
	documents []*document // documents with the fields, the last first
}

// Registry returns the published registry with the changes in Providers.
func (f *File) Registry() *provider.Registry {
	if f.registry == nil {
		return provider.Published()
	}
	return f.registry
}

// At returns err as an error about the field of that path, in the last file with that field or a field above it.
func (f *File) At(field string, err error) error {
	if d := f.source(field); d != nil {
		return d.at(field, err)
	}
	return err
}

// NameOf returns the name of the last file with the field of that path or a field above it; Name if no file has one.
func (f *File) NameOf(field string) string {
	if d := f.source(field); d != nil {
		return d.name
	}
	return f.Name
}

// source returns the last document with the field, or else with a field above it; nil if there is none. A list is from one document.
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

// DiffersFrom reports whether settings of a run differ, apart from limits.
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

// largest is the maximum size of a file in bytes.
const largest = 256 << 10

// Load reads files. Each field of a later file replaces that field of the files before, also below serve and limits, unless its
// limits name their provider or model. A list is one field, but providers are added. A document that `sluice find` wrote gives its
// limits. An error about their content is an *Error.
func Load(paths ...string) (File, error) {
	var f File
	for _, path := range paths {
		data, err := read(path)
		if err != nil {
			return File{}, err
		}
		if err := f.merge(path, data); err != nil {
			return File{}, err
		}
	}
	return f.checked()
}

// Parse reads the content of a file of that name. The error is an *Error.
func Parse(name string, data []byte) (File, error) {
	var f File
	if err := f.merge(name, data); err != nil {
		return File{}, err
	}
	return f.checked()
}

// read returns the content of a file, not much more than Parse takes. The null device is an empty file.
func read(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		null, _ := os.Stat(os.DevNull)
		if info, _ := os.Stat(path); info != nil && null != nil && os.SameFile(info, null) {
			return nil, nil
		}
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, largest+1))
}

// merge reads the content of a file over the fields of the files before.
func (f *File) merge(name string, data []byte) (err error) {
	d := &document{name: name}
	defer func() { // the parser panics on some invalid files
		if recover() != nil {
			err = d.wrong(0, "", errors.New("cannot be read as settings"))
		}
	}()
	if err := d.parse(data); err != nil {
		return err
	}
	f.Name, f.documents = name, append([]*document{d}, f.documents...)
	if d.body == nil { // nothing, or only comments
		return nil
	}
	d.dropFound()
	if err := d.inspect(d.body, reflect.TypeFor[File](), ""); err != nil {
		return err
	}
	before := f.Providers
	f.Providers = nil
	if d.node("limits.provider") != nil || d.node("limits.model") != nil { // of another account or model
		f.Limits = nil
	}
	if err := yaml.NodeToValue(d.body, f); err != nil {
		return d.translate(err)
	}
	for i := range f.Providers {
		for k := range f.Providers[i].Tiers {
			tier := &f.Providers[i].Tiers[k]
			tier.Source = cmp.Or(tier.Source, name)
		}
	}
	f.registry, err = f.Registry().With(f.Providers...)
	if row, ok := errors.AsType[*provider.RowError](err); ok {
		return d.at(fmt.Sprintf("providers[%d].%s", row.Row, row.Field), row.Err)
	}
	f.Providers = slices.Concat(before, f.Providers)
	return err
}

// checked completes the settings, and refuses fields that do not fit each other.
func (f File) checked() (File, error) {
	for _, check := range [...]func() (field string, err error){f.checkLimits, f.checkUpstreams, f.checkServe} {
		if field, err := check(); err != nil {
			return File{}, f.At(field, err)
		}
	}
	return f, nil
}

// checkLimits checks the limits of the account and of items. The error is about the returned field.
func (f *File) checkLimits() (field string, err error) {
	if f.MaxThrottles != nil && *f.MaxThrottles < 0 {
		return "max_throttles", errors.New("want a whole number, at least 0")
	}
	if f.Limits != nil && f.Limits.Provider != "" {
		if _, err := f.Registry().Get(f.Limits.Provider); err != nil {
			return "limits.provider", err
		}
	}
	field, err = f.Limits.check()
	return "limits." + field, err
}
