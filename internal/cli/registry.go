package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// registryList is the document of providers with their tiers.
type registryList struct {
	Providers []listedProvider `json:"providers"` // Providers with their published limits.
}

// listedProvider is a provider as a list in JSON has it.
type listedProvider struct {
	Name         string       `json:"name"`                // Name for `--provider`.
	Aliases      []string     `json:"aliases,omitempty"`   // Other names.
	BaseURL      string       `json:"base_url,omitempty"`  // Address of the API.
	BaseForm     string       `json:"base_form,omitempty"` // Address pattern with placeholders.
	KeyEnv       []string     `json:"key_env,omitempty"`   // Environment variables for the key, in order.
	KeyOptional  bool         `json:"key_optional"`        // The key is optional.
	Dialect      string       `json:"dialect"`             // Request format, such as `openai`.
	Charge       string       `json:"charge"`              // Counted tokens: `declared` or `actual`.
	CountsCached bool         `json:"counts_cached"`       // Cached input counts against token limits.
	Models       []string     `json:"models,omitempty"`    // Prefixes of model IDs.
	Source       string       `json:"source,omitempty"`    // Address of the source.
	Date         string       `json:"date,omitempty"`      // Date of the source.
	Doubtful     bool         `json:"doubtful"`            // The source is doubtful or missing.
	Note         string       `json:"note,omitempty"`      // Note.
	Tiers        []listedTier `json:"tiers"`               // Published limits by tier.
}

// listedTier is a tier as a list in JSON has it. What is not known is left out.
type listedTier struct {
	Tier             string        `json:"tier"`                         // Tier.
	Models           []string      `json:"models,omitempty"`             // Models with these limits, if not all models.
	Limits           sluice.Limits `json:"limits"`                       // Published limits.
	PriceIn          *float64      `json:"price_in,omitempty"`           // US dollars per million input tokens.
	PriceOut         *float64      `json:"price_out,omitempty"`          // US dollars per million output tokens.
	LatencyMS        int64         `json:"latency_ms,omitempty"`         // Latency.
	TokensPerRequest int           `json:"tokens_per_request,omitempty"` // Tokens per request.
	Source           string        `json:"source,omitempty"`             // Address of the source.
	Date             string        `json:"date,omitempty"`               // Date of the source.
	Doubtful         bool          `json:"doubtful"`                     // The source is doubtful or missing.
	Note             string        `json:"note,omitempty"`               // Note.
}

// entry is a provider and those of its tiers that were asked for.
type entry struct {
	provider.Provider
	tiers []provider.Tier
}

// entries are what is published of a provider and for a model; "" is all.
func entries(r *provider.Registry, name, model string) ([]entry, error) {
	all := r.All()
	if name != "" {
		p, ok := r.Lookup(name)
		if !ok {
			return nil, account.UnknownProvider(r, name)
		}
		all = []provider.Provider{p}
	}
	owner, owned := r.Recognise(model)
	var found []entry
	for _, p := range all {
		e := entry{Provider: p}
		its := len(all) == 1 || owned && p.Name == owner.Name // the answer, even without limits
		if model != "" && owned && !its {
			continue
		}
		for _, t := range r.Tiers(p.Name) {
			if model == "" || t.Is(model) {
				e.tiers = append(e.tiers, t)
			}
		}
		if model == "" || its || len(e.tiers) > 0 {
			found = append(found, e)
		}
	}
	return found, nil
}

// listRegistry prints what is published about providers, as a table or as one JSON document: of all, or of one, or for a
// model.
func listRegistry(s *term.Streams, r *provider.Registry, name, model string, asJSON bool) error {
	published, err := entries(r, name, model)
	if err != nil {
		return err
	}
	if asJSON {
		list := registryList{[]listedProvider{}}
		for _, e := range published {
			list.Providers = append(list.Providers, listed(e.Provider, e.tiers))
		}
		return s.JSON(list)
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROVIDER\tTIER\tMODELS\tLIMITS\t$ IN/OUT\tDATE\tSOURCE")
	for _, e := range published {
		if len(e.tiers) == 0 {
			fmt.Fprintf(w, "%s\t-\t%s\tnot published\t-\t%s\t%s\n", term.Escape(e.Name), term.Escape(cmp.Or(model, "-")),
				term.Escape(doubted(e.Date, e.Doubtful)), term.Escape(e.Source))
		}
		for _, t := range e.tiers {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", term.Escape(e.Name), term.Escape(t.Tier), term.Escape(modelWords(t)),
				prose.Limits(t.Limits), priceWords(t), term.Escape(doubted(t.Date, t.Doubtful)), term.Escape(t.Source))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	b.WriteString("A ? marks doubtful values: old, contradicted, or not from the provider itself. Missing values are unknown.\n")
	_, err = s.Out.Write([]byte(b.String()))
	return err
}

// listed returns a provider and its tiers as a list in JSON has them.
func listed(p provider.Provider, tiers []provider.Tier) listedProvider {
	l := listedProvider{
		Name: p.Name, Aliases: p.Aliases, BaseURL: p.BaseURL, BaseForm: p.BaseForm, KeyEnv: p.KeyEnv,
		KeyOptional: p.KeyOptional, Dialect: p.Dialect.String(), Charge: p.Charge.String(), CountsCached: p.CountsCached,
		Models: p.Models, Source: p.Source, Date: p.Date, Doubtful: p.Doubtful, Note: p.Note, Tiers: []listedTier{},
	}
	for _, t := range tiers {
		l.Tiers = append(l.Tiers, listedTier{
			Tier: t.Tier, Models: t.Models, Limits: t.Limits, PriceIn: t.PriceIn, PriceOut: t.PriceOut,
			LatencyMS: t.Latency.Milliseconds(), TokensPerRequest: t.TokensPerRequest,
			Source: t.Source, Date: t.Date, Doubtful: t.Doubtful, Note: t.Note,
		})
	}
	return l
}

// doubted marks what is doubtful.
func doubted(date string, doubtful bool) string {
	date = cmp.Or(date, "-")
	if doubtful {
		date += " ?"
	}
	return date
}

// modelWords lists the models of a tier.
func modelWords(t provider.Tier) string {
	return cmp.Or(strings.Join(t.Families(), " "), "all")
}

// priceWords writes both prices.
func priceWords(t provider.Tier) string {
	if t.PriceIn == nil && t.PriceOut == nil {
		return "-"
	}
	price := func(p *float64) string {
		if p == nil {
			return "-"
		}
		return strconv.FormatFloat(*p, 'f', -1, 64)
	}
	return price(t.PriceIn) + "/" + price(t.PriceOut)
}
