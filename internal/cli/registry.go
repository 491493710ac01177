package cli

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// listRegistry prints the registry as a table or as one JSON document: all providers, or one, and all models, or one.
func listRegistry(s *term.Streams, r *provider.Registry, name, model string, asJSON bool) error {
	if _, err := account.LookupProvider(r, name); name != "" && err != nil {
		return err
	}
	list := r.List(name, model)
	if asJSON {
		return s.JSON(list)
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PROVIDER\tTIER\tMODELS\tLIMITS\t$ IN/OUT\tDATE\tSOURCE")
	for _, e := range list.Providers {
		if len(e.Tiers) == 0 {
			fmt.Fprintf(w, "%s\t-\t%s\tnot published\t-\t%s\t%s\n", term.Escape(e.Name), term.Escape(cmp.Or(model, "-")),
				term.Escape(doubted(e.Date, e.Doubtful)), term.Escape(e.Source))
		}
		for _, t := range e.Tiers {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", term.Escape(e.Name), term.Escape(t.Tier), term.Escape(modelWords(t)),
				prose.Limits(t.Limits), priceWords(t), term.Escape(doubted(t.Date, t.Doubtful)), term.Escape(t.Source))
		}
	}
	w.Flush()
	b.WriteString("A ? marks doubtful values: old, contradicted, or not from the provider itself. Missing values are unknown.\n")
	_, err := s.Out.Write([]byte(b.String()))
	return err
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
