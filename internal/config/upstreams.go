package config

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/sluice-llm/sluice/internal/pricing"
	"github.com/sluice-llm/sluice/provider"
)

// Upstream is one of several ways to send calls.
type Upstream struct {
	Name     string  `yaml:"name"` // default: the provider's name, and a number from the second on
	Provider string  `yaml:"provider"`
	BaseURL  string  `yaml:"base_url"`
	KeyEnv   Names   `yaml:"key_env"`  // variables that hold keys of one account. Nil: the provider's usual one
	KeyFile  string  `yaml:"key_file"` // holds a key and nothing else, beside the file if its path is relative. "": none
	Account  string  `yaml:"account"`  // upstreams of one account share its limits. Default: an account of its own
	Models   Models  `yaml:"models"`
	Limits   *Limits `yaml:"limits"` // of the account. Nil: the upstream states none
	Price    string  `yaml:"price"`  // as pricing.ParseRate reads it. "": unknown
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

// Models says which models are served, and what their ids are there. Nil: those that the provider is recognised for.
type Models map[string]string

// UnmarshalYAML reads pairs of names, or a list of names that are the same there.
func (m *Models) UnmarshalYAML(node ast.Node) error {
	if node.Type() == ast.MappingType || node.Type() == ast.MappingValueType {
		return yaml.NodeToValue(node, (*map[string]string)(m))
	}
	var list []string
	if err := yaml.NodeToValue(node, &list); err != nil {
		return &yaml.TypeError{DstType: reflect.TypeFor[Models](), SrcType: reflect.TypeFor[string](), Token: node.GetToken()}
	}
	*m = make(Models)
	for _, name := range list {
		(*m)[name] = name
	}
	return nil
}

// checkUpstreams completes the upstreams and refuses what cannot be. The error is about the returned field.
func (f *File) checkUpstreams() (field string, err error) {
	names := make(map[string]bool)
	for i := range f.Upstreams {
		up := &f.Upstreams[i]
		if part, err := up.check(f.Registry()); err != nil {
			return fmt.Sprintf("upstreams[%d].%s", i, part), err
		}
		if up.Name == "" {
			up.Name = up.Provider
			for k := 2; names[up.Name]; k++ {
				up.Name = fmt.Sprintf("%s-%d", up.Provider, k)
			}
		}
		if names[up.Name] {
			return fmt.Sprintf("upstreams[%d].name", i), fmt.Errorf("another upstream is named %s", up.Name)
		}
		names[up.Name] = true
		for k := range i {
			if part, err := up.beside(&f.Upstreams[k]); err != nil {
				return fmt.Sprintf("upstreams[%d].%s", i, part), err
			}
		}
	}
	return "", nil
}

// check refuses what no upstream is. The provider gets its own name.
func (up *Upstream) check(known *provider.Registry) (field string, err error) {
	if up.Provider == "" {
		return "provider", fmt.Errorf("is missing: use one of %s", strings.Join(known.Names(), ", "))
	}
	p, ok := known.Lookup(up.Provider)
	switch {
	case !ok:
		return "provider", fmt.Errorf("unknown provider %q%s", up.Provider, provider.DidYouMean(known.Suggest(up.Provider)))
	case p.Name == "sim":
		return "provider", errors.New("sim is not an upstream: run `sluice sim`, and use its address in base_url of an openai-compatible upstream")
	}
	up.Provider = p.Name
	for _, name := range []struct{ field, text string }{{"name", up.Name}, {"account", up.Account}} {
		if strings.ContainsFunc(name.text, notInName) {
			return name.field, errors.New("want letters, digits, dots, dashes and underscores")
		}
	}
	if err := provider.CheckBase(up.BaseURL); err != nil {
		return "base_url", err
	}
	if cmp.Or(up.BaseURL, p.BaseURL) == "" {
		return "base_url", fmt.Errorf("provider %s has no default address: set it, for example %s", p.Name, cmp.Or(p.BaseForm, "http://127.0.0.1:8000/v1"))
	}
	for _, name := range up.KeyEnv {
		if !provider.IsVariable(name) { // it may be a key: it is not quoted
			return "key_env", errors.New("the value is not the name of an environment variable, such as MY_API_KEY")
		}
	}
	if up.KeyFile != "" && up.KeyEnv != nil {
		return "key_file", errors.New("key_env and key_file both name the key: omit one of the two fields")
	}
	if err := up.Models.check(p); err != nil {
		return "models", err
	}
	if field, err := up.checkPrice(); err != nil {
		return field, err
	}
	return up.checkLimits()
}

func notInName(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_')
}

// check refuses models that nobody could ask for.
func (m Models) check(p provider.Provider) error {
	if m == nil && len(p.Models) == 0 {
		return fmt.Errorf("the models of %s are unknown: list the models of the upstream", p.Name)
	}
	if m != nil && len(m) == 0 {
		return errors.New("the list is empty: omit the field to serve all models of the provider")
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if name == "" || m[name] == "" {
			return errors.New("a model has no name")
		}
	}
	return nil
}

func (up *Upstream) checkPrice() (field string, err error) {
	if up.Price != "" {
		_, err = pricing.ParseRate(up.Price)
	}
	return "price", err
}

func (up *Upstream) checkLimits() (field string, err error) {
	l := up.Limits
	if l == nil {
		return "", nil
	}
	if l.Provider != "" || l.Model != "" {
		return "limits", errors.New("the limits of an upstream apply to its account: remove provider and model")
	}
	if part, err := l.check(); err != nil {
		return "limits." + part, err
	}
	return "", nil
}

// beside refuses what two upstreams of one account cannot both say.
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
