package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/provider"
)

// fromProvider prints the limits that the provider publishes, of one model or all.
func (o *findOptions) fromProvider(ctx context.Context, s *term.Streams) (err error) {
	accounts, err := o.account.open(s)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, accounts.Close()) }()
	p, err := accounts.Of(o.account.Model)
	if err != nil {
		return err
	}
	read, err := account.NewLimitsReader(p, o.account.BaseURL, o.account.Keys, s.Hide)
	if err != nil {
		return fault.New(fault.Key, err, "export an admin key in ANTHROPIC_ADMIN_KEY or OPENAI_ADMIN_KEY")
	}
	found, err := read(ctx)
	if err != nil {
		return &fault.Error{Code: fault.Rejected, Err: fmt.Errorf("limits of %s: %w", p.Name, err)}
	}
	if model := o.account.Model; model != "" {
		found.Groups = slices.DeleteFunc(found.Groups, func(g provider.LimitGroup) bool { return !slices.Contains(g.Models, model) })
		if len(found.Groups) == 0 {
			return &fault.Error{Code: fault.Rejected, Err: fmt.Errorf("%s publishes no limits of %s for this account", p.Name, model)}
		}
	}
	if o.asJSON {
		return s.JSON(found)
	}
	return printPublished(s, found)
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
