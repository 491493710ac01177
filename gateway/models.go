package gateway

import (
	"cmp"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/sluice-llm/sluice/provider"
)

// listModels answers which models can be asked for.
func (c *call) listModels() {
	names := slices.DeleteFunc(c.models(), func(name string) bool {
		return !c.tenant.terms.allows(name, cmp.Or(c.cfg.Models[name], name))
	})
	if c.route.model != "" && !slices.Contains(names, c.route.model) && !(c.serves(c.route.model) && c.tenant.terms.allows(c.route.model)) {
		c.refuse(refusal{status: http.StatusNotFound, kind: "model_not_found", message: "no such model is served here"})
		return
	}
	var doc any
	one := func(name string) map[string]any {
		switch c.dialect {
		case provider.Anthropic:
			return map[string]any{"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"}
		case provider.Gemini:
			return map[string]any{"name": "models/" + name, "displayName": name}
		}
		return map[string]any{"id": name, "object": "model", "created": 0, "owned_by": "sluice"}
	}
	if c.route.model != "" {
		doc = one(c.route.model)
	} else {
		all := make([]map[string]any, 0, len(names))
		for _, name := range names {
			all = append(all, one(name))
		}
		switch c.dialect {
		case provider.Anthropic:
			page := map[string]any{"data": all, "has_more": false, "first_id": nil, "last_id": nil}
			if len(names) > 0 {
				page["first_id"], page["last_id"] = names[0], names[len(names)-1]
			}
			doc = page
		case provider.Gemini:
			doc = map[string]any{"models": all}
		default:
			doc = map[string]any{"object": "list", "data": all}
		}
	}
	b, err := json.Marshal(doc)
	if err != nil {
		panic(err) // maps of texts
	}
	c.w.Header().Set("Content-Type", "application/json")
	_, _ = c.w.Write(append(b, '\n'))
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
