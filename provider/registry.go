package provider

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/goccy/go-yaml"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
)

//go:generate env SLUICE_TEST_WRITE=1 go test -count=1 -run TestReferenceOfProviders .

//go:embed providers.yaml
var published []byte

// Registry describes providers with their APIs and their published limits and prices. A Registry is immutable and safe for concurrent use.
// Methods of a Registry return copies, which the caller may change.
type Registry struct {
	providers []Provider
	tiers     []Tier // of one provider together, in the order of providers
	names     map[string]int
	prefixes  []prefix
}

// prefix is how the model ids of a provider begin; one that begins with ! is nobody's.
type prefix struct {
	text     string
	provider int
}

// Tier contains the published limits and prices of an account tier for some models. A limit of 0 or a nil price means unknown, not unlimited
// or free.
type Tier struct {
	Provider         string        `json:"-"`
	Tier             string        `json:"tier"`                         // Tier.
	Models           []string      `json:"models,omitempty"`             // Models with these limits, if not all models. Prefixes of IDs.
	Limits           sluice.Limits `json:"limits"`                       // Published limits.
	PriceIn          *float64      `json:"price_in,omitempty"`           // US dollars per million input tokens.
	PriceOut         *float64      `json:"price_out,omitempty"`          // US dollars per million output tokens.
	Latency          limits.Millis `json:"latency_ms,omitzero"`          // Latency.
	TokensPerRequest int           `json:"tokens_per_request,omitempty"` // Tokens per request.
	Source           string        `json:"source,omitempty"`             // Address of the source.
	Date             string        `json:"date,omitempty"`               // Date of the source.
	Doubtful         bool          `json:"doubtful"`                     // The source is doubtful or missing.
	Note             string        `json:"note,omitempty"`               // Note.
}

// Is reports whether the tier applies to a model.
func (t Tier) Is(model string) bool { return len(t.Models) == 0 || among(t.Models, model) }

// Families returns the prefixes of the tier's model IDs. Excluded prefixes, which start with "!", are left out. A nil result means all models.
func (t Tier) Families() []string {
	var all []string
	for _, m := range t.Models {
		if !strings.HasPrefix(m, "!") {
			all = append(all, m)
		}
	}
	return all
}

// Published returns the built-in registry. The first call of Published parses the registry, which takes about 5 ms.
func Published() *Registry { return readPublished() }

var readPublished = sync.OnceValue(func() *Registry {
	var file struct {
		Providers []Row `yaml:"providers"`
	}
	err := yaml.UnmarshalWithOptions(published, &file, yaml.Strict())
	if err != nil {
		panic("provider: providers.yaml: " + err.Error()) // a test reads it
	}
	r, err := new(Registry).With(file.Providers...)
	if err != nil {
		panic("provider: providers.yaml: " + err.Error())
	}
	return r
})

// bare returns a name as it is compared: letters and digits in lower case.
func bare(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r > 0x7f:
			return r
		}
		return -1
	}, name)
}

// Lookup finds a provider by name or alias. Lookup ignores case and punctuation.
func (r *Registry) Lookup(name string) (Provider, bool) {
	i, ok := r.names[bare(name)]
	if !ok {
		return Provider{}, false
	}
	return r.providers[i].clone(), true
}

// Get finds a provider like Lookup. The error names an unknown provider, and similar names if there are any.
func (r *Registry) Get(name string) (Provider, error) {
	p, ok := r.Lookup(name)
	if !ok {
		return p, fmt.Errorf("unknown provider %q%s", name, DidYouMean(r.Suggest(name)))
	}
	return p, nil
}

// Recognise returns the provider of a model ID. Recognise returns false for an unknown ID, and for the ID of an open model that several
// providers host.
func (r *Registry) Recognise(model string) (Provider, bool) {
	id := strings.ToLower(strings.TrimSpace(model))
	for _, p := range r.prefixes {
		text, nobody := strings.CutPrefix(p.text, "!")
		if !begins(id, text) {
			continue
		}
		if nobody {
			return Provider{}, false
		}
		return r.providers[p.provider].clone(), true
	}
	return Provider{}, false
}

// among reports whether the first of the prefixes that fits the model is not one with !.
func among(prefixes []string, model string) bool {
	id := strings.ToLower(strings.TrimSpace(model))
	for _, p := range prefixes {
		text, not := strings.CutPrefix(p, "!")
		if begins(id, text) {
			return !not
		}
	}
	return false
}

// begins reports whether an id in lower case begins with a prefix that ends where a word of it does: "o1" and "o1-mini"
// begin with o1, "o1x" does not, and gpt-5.1 is no gpt-5.
func begins(id, prefix string) bool {
	rest, ok := strings.CutPrefix(id, strings.ToLower(prefix))
	return ok && (rest == "" || strings.ContainsRune("-:@/_", rune(rest[0])) || strings.HasSuffix(prefix, "-"))
}

// Names returns the names of all providers.
func (r *Registry) Names() []string {
	names := make([]string, len(r.providers))
	for i, p := range r.providers {
		names[i] = p.Name
	}
	return names
}

// All returns all providers.
func (r *Registry) All() []Provider {
	all := make([]Provider, len(r.providers))
	for i, p := range r.providers {
		all[i] = p.clone()
	}
	return all
}

// Models returns the complete model names by which Recognise finds a provider, in alphabetical order. Models omits prefixes of model names.
func (r *Registry) Models(provider string) []string {
	p, _ := r.Lookup(provider)
	names := slices.Clone(p.Models)
	for _, t := range r.Tiers(p.Name) {
		names = append(names, t.Models...)
	}
	names = slices.DeleteFunc(names, func(name string) bool {
		of, ok := r.Recognise(name)
		return strings.HasPrefix(name, "!") || strings.HasSuffix(name, "-") || !ok || of.Name != p.Name
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// Tiers returns the published limits of a provider, or of all providers if provider is "".
func (r *Registry) Tiers(provider string) []Tier {
	if p, ok := r.Lookup(provider); ok {
		provider = p.Name
	}
	var tiers []Tier
	for _, t := range r.tiers {
		if provider == "" || t.Provider == provider {
			tiers = append(tiers, t.clone())
		}
	}
	return tiers
}

// clone returns a copy that shares nothing with t.
func (t Tier) clone() Tier {
	t.Models = slices.Clone(t.Models)
	t.PriceIn, t.PriceOut = copied(t.PriceIn), copied(t.PriceOut)
	return t
}

func copied(price *float64) *float64 {
	if price == nil {
		return nil
	}
	return new(*price)
}

// Find returns the limits of a tier for a model. model may be "" if the tier has the same limits for all models. If no tier or model
// matches, the error of Find lists the choices.
func (r *Registry) Find(provider, tier, model string) (Tier, error) {
	p, err := r.Get(provider)
	if err != nil {
		return Tier{}, err
	}
	var names []string
	var of []Tier // with that name
	for _, t := range r.tiers {
		if t.Provider != p.Name {
			continue
		}
		if !slices.Contains(names, t.Tier) {
			names = append(names, t.Tier)
		}
		if bare(t.Tier) == bare(tier) {
			of = append(of, t)
		}
	}
	switch {
	case len(names) == 0:
		return Tier{}, fmt.Errorf("no limits are published for %s", p.Name)
	case len(of) == 0:
		return Tier{}, fmt.Errorf("%s has no tier %q: use one of %s%s", p.Name, tier, strings.Join(names, ", "), DidYouMean(Nearest(tier, names)))
	}
	for _, t := range of {
		if model == "" && len(of) == 1 || model != "" && t.Is(model) {
			return t.clone(), nil
		}
	}
	if model == "" {
		return Tier{}, fmt.Errorf("limits of tier %s of %s differ by model: name one of the models (%s)", of[0].Tier, p.Name, families(of))
	}
	return Tier{}, fmt.Errorf("tier %s of %s has no limits for model %q: use one of %s", of[0].Tier, p.Name, model, families(of))
}

// families lists what models the rows of a tier are for.
func families(tiers []Tier) string {
	var all []string
	for _, t := range tiers {
		for _, family := range t.Families() {
			if !slices.Contains(all, family) {
				all = append(all, family)
			}
		}
	}
	return strings.Join(all, ", ")
}

// Suggest returns the names of the providers whose names or aliases resemble name, most similar first.
func (r *Registry) Suggest(name string) []string {
	var known []string
	for _, p := range r.providers {
		known = append(append(known, p.Name), p.Aliases...)
	}
	var names []string
	for _, near := range Nearest(name, known) {
		if p := r.providers[r.names[bare(near)]].Name; !slices.Contains(names, p) {
			names = append(names, p)
		}
	}
	return names
}

// SuggestModel returns the prefixes of known model IDs that differ from the start of model by one typing error.
func (r *Registry) SuggestModel(model string) []string {
	id := strings.ToLower(strings.TrimSpace(model))
	var near []string
	for _, p := range r.prefixes {
		const least = 4 // shorter ones are near to everything
		if len(p.text) < least || p.text[0] == '!' {
			continue
		}
		for n := len(p.text) - 1; n <= min(len(p.text)+1, len(id)); n++ {
			if distance(id[:n], p.text) == 1 {
				near = append(near, p.text)
				break
			}
		}
	}
	return near
}
