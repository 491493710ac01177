package gateway

import (
	"cmp"
	"net/http"
	"slices"
)

// listModels answers which models can be asked for.
func (c *call) listModels() {
	names := slices.DeleteFunc(c.models(), func(name string) bool {
		return !c.tenant.terms.allows(name, cmp.Or(c.cfg.Models[name], name))
	})
	if c.route.model != "" && !slices.Contains(names, c.route.model) && !(c.serves(c.route.model) && c.tenant.terms.allows(c.route.model)) {
		c.refuse(refusal{status: http.StatusNotFound, kind: "model_not_found", message: "the gateway does not serve this model"})
		return
	}
	doc := c.dialect.Models(names)
	if c.route.model != "" {
		doc = c.dialect.Model(c.route.model)
	}
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = c.w.Write(append(encoded(doc), '\n'))
}

// models are the names that can be asked for, in order: those of aliases and upstreams, and where an upstream lists none, those
// that its provider is known by. There may be more of these.
func (s *state) models() []string {
	var names []string
	for alias := range s.cfg.Models {
		names = append(names, alias)
	}
	for _, up := range s.cfg.Upstreams.All() {
		if up.Models == nil {
			names = append(names, s.cfg.Upstreams.Known(up.Provider.Name)...)
		}
		for name := range up.Models {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// serves reports whether a model can be asked for at any endpoint, by its own name.
func (s *state) serves(model string) bool {
	_, _, ok := s.cfg.Upstreams.First(model)
	return ok
}
