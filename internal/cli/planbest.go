package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/forecast"
	"github.com/sluice-llm/sluice/plan"
	"github.com/sluice-llm/sluice/provider"
)

// best is the provider that stands for all of them.
const best = "best"

// rank plans for all tiers and prints them in order.
func (o *planOptions) rank(s *streams, registry *provider.Registry) error {
	if o.workload != "" {
		var err error
		if o.input, err = o.readWorkload(s, provider.Provider{}); err != nil {
			return err
		}
	}
	by := plan.ByTime
	if o.by == "cost" {
		by = plan.ByCost
	}
	tiers, doubtful, unfit := o.tiersOf(registry)
	for i := range tiers {
		account, _ := registry.Lookup(tiers[i].Provider)
		o.price(s, &tiers[i], account, cmp.Or(o.model, o.input.model))
	}
	ranked, left, err := plan.Rank(registry, tiers, o.work(), o.options(), by)
	if err != nil {
		return o.planError(err)
	}
	b := forecast.Ranking{By: o.by, Ranked: []forecast.Plan{}}
	var missed error
	for _, c := range ranked {
		account, _ := registry.Lookup(c.Tier.Provider)
		j := subject{account: account, tier: c.Tier, model: o.model}
		j.overlay(sluice.Limits{})
		one := newPlanned(j, c.Plan, o.input.others)
		if len(b.Ranked) == 0 {
			if missed, err = o.missed(one); err != nil {
				return err
			}
		}
		b.Ranked = append(b.Ranked, forecast.Plan(*one.figures))
	}
	for _, c := range slices.Concat(left, doubtful, unfit) {
		b.LeftOut = append(b.LeftOut, forecast.LeftOut{Provider: c.Tier.Provider, Tier: c.Tier.Tier, Models: c.Tier.Models, Why: c.Why})
	}
	if o.asJSON {
		err = s.printJSON(b)
	} else {
		err = s.printRanking(b, ranked)
	}
	switch {
	case err != nil:
		return err
	case len(ranked) == 0:
		return o.noneRanked(left, doubtful)
	}
	return missed
}

// noneRanked says what would let tiers in.
func (o *planOptions) noneRanked(left, doubtful []plan.Choice) error {
	var ways []string
	if o.by == "cost" && len(left) > 0 {
		ways = append(ways, "rank by time", "say --price-in and --price-out")
	}
	if len(doubtful) > 0 {
		ways = append(ways, "let doubtful ones in with --doubtful")
	}
	if len(ways) == 0 {
		ways = append(ways, "leave --model out", howToFind)
	}
	return usageError(errors.New("no tier can be ranked"), "%s", strings.Join(ways, ", or "))
}

// tiersOf returns the tiers to rank, and those that are left out: because they are doubtful, or because their models do
// not do such work.
func (o *planOptions) tiersOf(r *provider.Registry) (tiers []provider.Tier, doubtful, unfit []plan.Choice) {
	model := cmp.Or(o.model, o.input.model)
	owner, owned := r.Recognise(model)
	for _, t := range r.Tiers("") {
		switch {
		case model != "" && (!t.Is(model) || owned && t.Provider != owner.Name):
		case model == "" && !o.withoutOutput() && embedding(t):
			unfit = append(unfit, plan.Choice{Tier: t, Why: "for embeddings, which have no output: --output-tokens 0 ranks it"})
		case t.Doubtful && !o.doubtful:
			doubtful = append(doubtful, plan.Choice{Tier: t, Why: "doubtful: --doubtful lets it in"})
		default:
			tiers = append(tiers, t)
		}
	}
	return tiers, doubtful, unfit
}

// withoutOutput says whether no call of the workload has output, as embeddings have none.
func (o *planOptions) withoutOutput() bool {
	if len(o.input.calls) == 0 {
		return o.flags.Changed("output-tokens") && o.stated.OutputTokens == 0
	}
	return !slices.ContainsFunc(o.input.calls, func(c plan.Call) bool { return c.Output != plan.NoOutput })
}

// embedding says whether all models of the tier embed, as far as their names tell.
func embedding(t provider.Tier) bool {
	families := t.Families()
	return len(families) > 0 && !slices.ContainsFunc(families, func(name string) bool { return !strings.Contains(name, "embed") })
}

// printRanking writes a ranking, whose tiers are those of the choices, as a table.
func (s *streams) printRanking(b forecast.Ranking, ranked []plan.Choice) error {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\tprovider\ttier\tmodels\trequests/min\tbound by\tslots\tworkers\ttime\tcost\tsource\n")
	for i := range b.Ranked {
		f := (*figures)(&b.Ranked[i])
		workers, took := group(f.Workers), "-"
		if !f.WorkersSafe {
			workers += " NOT SAFE"
		}
		if f.Requests > 0 {
			took = span(f.Time.Duration)
		}
		cost, _ := f.cost()
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i+1, escape(f.Provider), escape(f.Tier), modelCell(ranked[i].Tier),
			number(f.Throughput), f.Binding.Dimension, group(f.Slots), workers, took, cost, publishedWord(f.Source)+"\t"+escape(f.Source.Date))
	}
	if len(b.LeftOut) > 0 {
		fmt.Fprintf(w, "\nleft out\n")
	}
	for _, l := range b.LeftOut {
		fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\n", escape(l.Provider), escape(l.Tier), modelCell(provider.Tier{Models: l.Models}), l.Why)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.prior()
	return nil
}

// modelCell names the models of a tier in a narrow column.
func modelCell(t provider.Tier) string { return escape(clip(modelWords(t), 40)) }
