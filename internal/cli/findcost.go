package cli

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/sluice-llm/sluice/internal/find"
	"github.com/sluice-llm/sluice/internal/prose"
)

// foretell prints the amount that the search may spend.
func (f *search) foretell() error {
	if f.o.asJSON {
		f.forecast.DryRun = true
		return f.s.JSON(f.forecast)
	}
	f.s.Errorf("sluice: a search with %s at %s may spend\n", f.o.cfg.Target.Model, f.o.cfg.Provider.Name)
	w := tabwriter.NewWriter(f.s.Err, 0, 0, 2, ' ', 0)
	header := "  \trequests\ttokens"
	if f.forecast.Max.Cost != nil {
		header += "\tcost"
	}
	fmt.Fprintln(w, header)
	printAmount(w, "usually", f.forecast.Typical)
	printAmount(w, "at most", f.forecast.Max)
	if err := w.Flush(); err != nil {
		return err
	}
	if f.o.mode == modeAuto {
		f.s.Errorf("sluice: a search takes one to five minutes, or a few seconds if the provider sends rate limit headers\n")
	}
	f.s.Errorf("sluice: nothing was sent; rejected requests cost nothing, and %s\n", f.bounds())
	return nil
}

func printAmount(w io.Writer, name string, a find.Amount) {
	fmt.Fprintf(w, "  %s\t%s\t%s", name, prose.Group(a.Requests), prose.Thousands(a.Tokens))
	if a.Cost != nil {
		fmt.Fprintf(w, "\t%s", prose.Dollars(*a.Cost))
	}
	fmt.Fprintln(w)
}

// bounds are the flags that bound what is spent.
func (f *search) bounds() string {
	text := "no cap on tokens is set: set one with --token-budget"
	if n := f.forecast.TokenBudget; n > 0 {
		text = fmt.Sprintf("--token-budget %s caps the whole search", prose.Group(n))
	}
	if m := f.o.cfg.Budget.MaxCost; m != nil {
		text += "; so does --max-cost " + prose.Dollars(*m)
	}
	if f.forecast.Max.Cost == nil {
		text += "; the price is unknown: set it with --price IN/OUT"
	}
	return text
}
