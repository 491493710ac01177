package provider

// Listing is the document of sluice plan --list.
type Listing struct {
	Providers []Listed `json:"providers"` // Providers with their published limits.
}

// Listed is a provider with some of its tiers.
type Listed struct {
	Provider
	Tiers []Tier `json:"tiers"` // Published limits by tier.
}

// List returns the provider with this name, or all providers if name is "". Without a model, it lists all tiers. With a model, it lists
// the tiers for this model, and omits providers without such a tier, unless the provider is named or owns the model.
func (r *Registry) List(name, model string) Listing {
	all := r.All()
	if p, ok := r.Lookup(name); ok {
		all = []Provider{p}
	}
	owner, owned := r.Recognise(model)
	list := Listing{[]Listed{}}
	for _, p := range all {
		chosen := len(all) == 1 || owned && p.Name == owner.Name
		if owned && !chosen {
			continue
		}
		l := Listed{p, []Tier{}}
		for _, t := range r.Tiers(p.Name) {
			if model == "" || t.Is(model) {
				l.Tiers = append(l.Tiers, t)
			}
		}
		if model == "" || chosen || len(l.Tiers) > 0 {
			list.Providers = append(list.Providers, l)
		}
	}
	return list
}
