package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// printSpending prints the amount that a search may spend.
func printSpending(s *term.Streams, cfg *find.Config, f find.Forecast, auto bool) error {
	s.Errorf("sluice: a search with %s at %s may spend\n", cfg.Target.Model, cfg.Provider.Name)
	w := tabwriter.NewWriter(s.Err, 0, 0, 2, ' ', 0)
	header := "  \trequests\ttokens"
	if f.Max.Cost != nil {
		header += "\tcost"
	}
	fmt.Fprintln(w, header)
	printAmount(w, "usually", f.Typical)
	printAmount(w, "at most", f.Max)
	if err := w.Flush(); err != nil {
		return err
	}
	if auto {
		s.Errorf("sluice: a search takes one to five minutes, or a few seconds if the provider sends rate limit headers\n")
	}
	caps := "no cap on tokens is set: set one with --token-budget"
	if n := f.TokenBudget; n > 0 {
		caps = fmt.Sprintf("--token-budget %s caps the whole search", prose.Group(n))
	}
	if m := cfg.Budget.MaxCost; m != nil {
		caps += "; so does --max-cost " + prose.Dollars(*m)
	}
	if f.Max.Cost == nil {
		caps += "; the price is unknown: set it with --price IN/OUT"
	}
	s.Errorf("sluice: nothing was sent; rejected requests cost nothing, and %s\n", caps)
	return nil
}

func printAmount(w io.Writer, name string, a find.Amount) {
	fmt.Fprintf(w, "  %s\t%s\t%s", name, prose.Group(a.Requests), prose.Thousands(a.Tokens))
	if a.Cost != nil {
		fmt.Fprintf(w, "\t%s", prose.Dollars(*a.Cost))
	}
	fmt.Fprintln(w)
}

// printPublished prints published limits as a table.
func printPublished(s *term.Streams, found *provider.AccountLimits) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MODELS\tLIMITS")
	for _, g := range found.Groups {
		var words []string
		for _, l := range g.Limits {
			words = append(words, l.Dimension.String()+" "+prose.Group(l.Value))
		}
		for _, name := range slices.Sorted(maps.Keys(g.Other)) {
			words = append(words, name+" "+prose.Group(g.Other[name]))
		}
		fmt.Fprintf(w, "%s\t%s\n", term.Escape(cmp.Or(strings.Join(g.Models, " "), "("+g.Name+")")), term.Escape(cmp.Or(strings.Join(words, ", "), "none")))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	_, err := s.Out.Write([]byte(b.String()))
	return err
}
