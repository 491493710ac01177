package plan

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-llm/sluice/provider"
)

// ForTier plans with the limits of a tier, as its provider counts them, whatever o says of that. Latency, tokens and
// prices that neither w nor o states are the tier's, where it states them.
func ForTier(t provider.Tier, by provider.Provider, w Workload, o Options) (Plan, error) {
	o.Charge, o.CountsCached = by.Charge, by.CountsCached
	if o.PriceIn == nil {
		o.PriceIn = t.PriceIn
	}
	if o.PriceOut == nil {
		o.PriceOut = t.PriceOut
	}
	var published []Assumption
	why := fmt.Sprintf("published with %s %s", t.Provider, t.Tier)
	if w.Latency == 0 && t.Latency > 0 {
		w.Latency = t.Latency
		published = append(published, Assumption{"latency", t.Latency.String(), why})
	}
	if n := t.TokensPerRequest; n > 0 && len(w.Calls) == 0 && w.InputTokens+w.OutputTokens+w.MaxTokens == 0 && !w.NoOutput {
		w.OutputTokens = n * usualOutput / (usualInput + usualOutput)
		w.InputTokens = n - w.OutputTokens
		published = append(published, Assumption{"input_tokens", fmt.Sprint(w.InputTokens), why},
			Assumption{"output_tokens", fmt.Sprint(w.OutputTokens), why})
	}
	p, err := Compute(t.Limits, w, o)
	p.Assumed = append(published, p.Assumed...)
	return p, err
}

// By is what plans are ranked by.
type By uint8

// What plans are ranked by. Ties go to the other.
const (
	ByTime By = iota // the shortest first; without end, the highest throughput
	ByCost           // the cheapest first
)

// Choice is one tier among several.
type Choice struct {
	Tier provider.Tier
	Plan Plan   // of a tier that is ranked
	Why  string // why the tier is left out; "" when it is ranked
}

// Rank plans for each tier and puts them in order, the best first. Those that cannot be ranked (without limits that
// bound the workload, or without prices where those decide) come as left, with the reason. A wrong workload or option is
// a *FieldError.
func Rank(r *provider.Registry, tiers []provider.Tier, w Workload, o Options, by By) (ranked, left []Choice, err error) {
	for _, t := range tiers {
		c := Choice{Tier: t}
		account, ok := r.Lookup(t.Provider)
		if !ok {
			account.Name = t.Provider
		}
		c.Plan, err = ForTier(t, account, w, o)
		switch {
		case errors.Is(err, ErrNoLimits):
			c.Why = ErrNoLimits.Error()
		case errors.Is(err, ErrTooLong):
			c.Why = ErrTooLong.Error()
		case err != nil:
			return nil, nil, err
		case by == ByCost && c.Plan.CostPerRequest == nil:
			c.Why = "no price is published"
		}
		if c.Why != "" {
			left = append(left, c)
		} else {
			ranked = append(ranked, c)
		}
	}
	slices.SortStableFunc(ranked, func(a, b Choice) int {
		if by == ByCost {
			return cmp.Or(byCost(a.Plan, b.Plan), byTime(a.Plan, b.Plan))
		}
		return cmp.Or(byTime(a.Plan, b.Plan), byCost(a.Plan, b.Plan))
	})
	return ranked, left, nil
}

func byTime(a, b Plan) int {
	return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(b.Throughput, a.Throughput))
}

func byCost(a, b Plan) int {
	switch {
	case a.CostPerRequest == nil && b.CostPerRequest == nil:
		return 0
	case a.CostPerRequest == nil:
		return 1
	case b.CostPerRequest == nil:
		return -1
	}
	return cmp.Compare(*a.CostPerRequest, *b.CostPerRequest)
}
