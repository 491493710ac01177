package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// printSpending prints the amount that a search may spend.
func printSpending(s *term.Streams, cfg *find.Config, f find.Forecast, auto bool) error {
	s.Errorf("sluice: a search with %s at %s may spend\n", cfg.Target.Model, cfg.Provider.Name)
	var t term.Table
	header := []string{"  ", "requests", "tokens", "cost"}
	if f.Max.Cost == nil {
		header = header[:3]
	}
	t.Row(header...)
	addAmount(&t, "usually", f.Typical)
	addAmount(&t, "at most", f.Max)
	if err := t.Print(s.Err); err != nil {
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

func addAmount(t *term.Table, name string, a find.Amount) {
	cells := []string{"  " + name, prose.Group(a.Requests), prose.Thousands(a.Tokens)}
	if a.Cost != nil {
		cells = append(cells, prose.Dollars(*a.Cost))
	}
	t.Row(cells...)
}

// printPublished prints published limits as a table.
func printPublished(s *term.Streams, found *provider.AccountLimits) error {
	var t term.Table
	t.Row("MODELS", "LIMITS")
	for _, g := range found.Groups {
		var words []string
		for _, l := range g.Limits {
			words = append(words, l.Dimension.String()+" "+prose.Group(l.Value))
		}
		for _, name := range slices.Sorted(maps.Keys(g.Other)) {
			words = append(words, name+" "+prose.Group(g.Other[name]))
		}
		t.Row(cmp.Or(strings.Join(g.Models, " "), "("+g.Name+")"), cmp.Or(strings.Join(words, ", "), "none"))
	}
	return t.Print(s.Out)
}
