package config

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
)

// Upstream is one of several endpoints for requests.
type Upstream struct {
	Name     string  `yaml:"name" check:"name"` // default: the name of the provider, with a number from the second upstream on
	Provider string  `yaml:"provider"`
	BaseURL  string  `yaml:"base_url" check:"base"`
	KeyEnv   Names   `yaml:"key_env" check:"variable"` // variables with keys of one account. Nil: the variable of the provider
	KeyFile  string  `yaml:"key_file"`                 // file that only contains a key. A relative path starts at the settings file
	Account  string  `yaml:"account" check:"name"`     // upstreams of one account share its limits. Default: its own account
	Models   Models  `yaml:"models"`
	Limits   *Limits `yaml:"limits"`              // limits of the account. Nil: not set
	Price    string  `yaml:"price" check:"price"` // in the format of pricing.ParseRate. "": unknown
}

// Names are one name, or a list of them.
type Names []string

// UnmarshalYAML reads a text or a list.
func (n *Names) UnmarshalYAML(node ast.Node) error {
	if _, ok := node.(ast.ScalarNode); ok && node.Type() != ast.NullType {
		*n = make(Names, 1)
		return yaml.NodeToValue(node, &(*n)[0])
	}
	return yaml.NodeToValue(node, (*[]string)(n))
}

// Models are the ids of models at the upstream, by the names that clients use. Nil: the models by which the provider is recognized.
type Models map[string]string

// UnmarshalYAML reads pairs of names, or a list of names that are the same at the upstream.
func (m *Models) UnmarshalYAML(node ast.Node) error {
	var list []string
	if _, ok := node.(ast.MapNode); ok {
		if err := yaml.NodeToValue(node, (*map[string]string)(m)); err != nil {
			return err
		}
	} else if yaml.NodeToValue(node, &list) != nil {
		return errors.New("want models, as {requested name: name at the upstream} or a list such as [gpt-4o]")
	}
	if len(list) > 0 {
		*m = make(Models)
	}
	for _, name := range list {
		(*m)[name] = name
	}
	if len(*m) == 0 {
		return errors.New("the list is empty: omit the field to serve all models of the provider")
	}
	for name, id := range *m {
		if name == "" || id == "" {
			return errors.New("a model has no name")
		}
	}
	return nil
}

// checkUpstreams completes the upstreams, and refuses upstreams that do not fit their provider or each other. The error is about the
// returned field.
func (f *File) checkUpstreams() (field string, err error) {
	names := make(map[string]bool)
	for i := range f.Upstreams {
		up := &f.Upstreams[i]
		field, err := f.checkUpstream(up)
		if up.Name == "" {
			up.Name = up.Provider
			for k := 2; names[up.Name]; k++ {
				up.Name = fmt.Sprintf("%s-%d", up.Provider, k)
			}
		}
		if err == nil && names[up.Name] {
			field, err = "name", fmt.Errorf("another upstream is named %s", up.Name)
		}
		names[up.Name] = true
		for k := 0; k < i && err == nil; k++ {
			field, err = up.beside(&f.Upstreams[k])
		}
		if err != nil {
			return fmt.Sprintf("upstreams[%d].%s", i, field), err
		}
	}
	return "", nil
}

// checkUpstream sets the name of the provider, and refuses an upstream that does not fit the provider. The error is about the returned
// field.
func (f *File) checkUpstream(up *Upstream) (field string, err error) {
	p, err := f.Registry().Get(up.Provider)
	switch {
	case up.Provider == "":
		return "provider", fmt.Errorf("is missing: use one of %s", strings.Join(f.Registry().Names(), ", "))
	case err != nil:
		return "provider", err
	case p.Name == "sim":
		return "provider", errors.New("sim is not an upstream: run `sluice sim`, and use its address in base_url of " +
			"an openai-compatible upstream")
	case cmp.Or(up.BaseURL, p.BaseURL) == "":
		example := cmp.Or(p.BaseForm, "http://127.0.0.1:8000/v1")
		return "base_url", fmt.Errorf("provider %s has no default address: set it, for example %s", p.Name, example)
	case up.KeyFile != "" && up.KeyEnv != nil:
		return "key_file", errors.New("key_env and key_file both name the key: omit one of the two fields")
	case up.Models == nil && len(p.Models) == 0:
		return "models", fmt.Errorf("the models of %s are unknown: list the models of the upstream", p.Name)
	case up.Limits != nil && (up.Limits.Provider != "" || up.Limits.Model != ""):
		return "limits", errors.New("the limits of an upstream apply to its account: remove provider and model")
	}
	up.Provider = p.Name
	field, err = up.Limits.check()
	return "limits." + field, err
}

// beside refuses an upstream whose account does not fit the account of another one. The error is about the returned field.
func (up *Upstream) beside(other *Upstream) (field string, err error) {
	switch {
	case up.Account == "" || up.Account != other.Account:
	case up.Provider != other.Provider:
		return "account", fmt.Errorf("account %s belongs to %s: choose another account name for %s", up.Account, other.Provider, up.Provider)
	case up.Limits != nil && other.Limits != nil:
		return "limits", fmt.Errorf("upstream %s already sets the limits of account %s", other.Name, up.Account)
	}
	return "", nil
}
