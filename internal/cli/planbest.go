package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/sluice-llm/sluice"
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
	ranked, left, err := plan.Rank(registry, tiers, o.work(), o.options(), by)
	if err != nil {
		return o.planError(err)
	}
	b := bestFigures{By: o.by, Ranked: []figures{}}
	for _, c := range ranked {
		account, _ := registry.Lookup(c.Tier.Provider)
		j := subject{account: account, tier: c.Tier, model: o.model}
		j.overlay(sluice.Limits{})
		b.Ranked = append(b.Ranked, newFigures(j, c.Plan, o))
	}
	b.leave(left, doubtful, unfit)
	missed := error(nil)
	if len(ranked) > 0 {
		if missed, err = o.missed(&b.Ranked[0]); err != nil {
			return err
		}
	}
	if o.asJSON {
		err = s.printJSON(b)
	} else {
		err = b.print(s)
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
func (o *planOptions) noneRanked(left []plan.Choice, doubtful []provider.Tier) error {
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
func (o *planOptions) tiersOf(r *provider.Registry) (tiers, doubtful, unfit []provider.Tier) {
	model := cmp.Or(o.model, o.input.model)
	owner, owned := r.Recognise(model)
	for _, t := range r.Tiers("") {
		switch {
		case model != "" && (!t.Is(model) || owned && t.Provider != owner.Name):
		case model == "" && !o.withoutOutput() && embedding(t):
			unfit = append(unfit, t)
		case t.Doubtful && !o.doubtful:
			doubtful = append(doubtful, t)
		default:
			tiers = append(tiers, t)
		}
	}
	return tiers, doubtful, unfit
}

// withoutOutput says whether no call of the workload has output, as embeddings have none.
func (o *planOptions) withoutOutput() bool {
	if len(o.input.calls) == 0 {
		return o.flags.Changed("output-tokens") && o.outputTokens == 0
	}
	return !slices.ContainsFunc(o.input.calls, func(c plan.Call) bool { return c.Output != plan.NoOutput })
}

// embedding says whether all models of the tier embed, as far as their names tell.
func embedding(t provider.Tier) bool {
	families := t.Families()
	return len(families) > 0 && !slices.ContainsFunc(families, func(name string) bool { return !strings.Contains(name, "embed") })
}

// bestFigures are plans for several tiers, in order.
type bestFigures struct {
	By      string       `json:"by"`
	Ranked  []figures    `json:"ranked"`
	LeftOut []leftFigure `json:"left_out,omitempty"`
}

// leftFigure is a tier that could not be ranked.
type leftFigure struct {
	Provider string   `json:"provider"`
	Tier     string   `json:"tier"`
	Models   []string `json:"models,omitempty"`
	Why      string   `json:"why"`

	tier provider.Tier
}

func leftOut(t provider.Tier, why string) leftFigure {
	return leftFigure{t.Provider, t.Tier, t.Models, why, t}
}

func (b *bestFigures) leave(left []plan.Choice, doubtful, unfit []provider.Tier) {
	for _, c := range left {
		b.LeftOut = append(b.LeftOut, leftOut(c.Tier, c.Why))
	}
	leave := func(tiers []provider.Tier, why string) {
		for _, t := range tiers {
			b.LeftOut = append(b.LeftOut, leftOut(t, why))
		}
	}
	leave(doubtful, "doubtful: --doubtful lets it in")
	leave(unfit, "for embeddings, which have no output: --output-tokens 0 ranks it")
}

func (b *bestFigures) print(s *streams) error {
	w := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "\tprovider\ttier\tmodels\trequests/min\tbound by\tslots\tworkers\ttime\tcost\tsource\n")
	for i := range b.Ranked {
		f := &b.Ranked[i]
		workers, took := group(f.Workers), "-"
		if !f.WorkersSafe {
			workers += " NOT SAFE"
		}
		if f.TimeS != nil {
			took = span(f.plan.Time)
		}
		cost, _ := f.cost()
		from := "published"
		if f.Source.Doubtful {
			from = "doubtful"
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i+1, escape(f.Provider), escape(f.Tier), modelCell(f.subject.tier),
			number(f.Throughput), f.Binding.Dimension, group(f.Slots), workers, took, cost, escapeCells(from+"\t"+f.Source.Date))
	}
	if len(b.LeftOut) > 0 {
		fmt.Fprintf(w, "\nleft out\n")
	}
	for _, l := range b.LeftOut {
		fmt.Fprintf(w, "\t%s\t%s\t%s\t%s\n", escape(l.Provider), escape(l.Tier), modelCell(l.tier), l.Why)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	s.prior()
	return nil
}

// modelCell names the models of a tier in a narrow column.
func modelCell(t provider.Tier) string { return escape(clip(modelWords(t), 40)) }
