package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// How far a limit is to be trusted that nobody has tried.
const (
	trustConfigured = 1
	trustPublished  = 0.9
	trustDoubtful   = 0.5
)

// subject is an account and its limits, and where each is from.
type subject struct {
	account provider.Provider
	tier    provider.Tier // Tier is "" when the limits are of none; its Limits are those to plan with
	model   string
	limits  config.Limits // the same, with their sources

	told, start sluice.Limits // of these, what a run with the same flags has for ceilings, and what it begins with
}

// sourced returns limits that all have the source, confidence and age of a limit.
func sourced(l sluice.Limits, from config.Limit) *config.Limits {
	var all config.Limits
	for d, limit := range l.All() {
		if from.Value = float64(*limit); *limit > 0 {
			*all.At(d) = new(from)
		}
		if w := l.WindowOf(d); w != nil && w.N > 0 {
			*all.WindowOf(d) = &config.Window{Window: *w}
		}
	}
	all.Burst = config.Duration(l.Burst)
	return &all
}

// overlay puts written limits over those of the tier, the later over the earlier, and configured limits over all.
func (j *subject) overlay(told sluice.Limits, written ...*config.Limits) {
	trust := float64(trustPublished)
	if j.tier.Doubtful {
		trust = trustDoubtful
	}
	published := sourced(j.tier.Limits, config.Limit{Source: limits.SourceRegistry, Confidence: trust})
	configured := sourced(told, config.Limit{Source: limits.SourceConfigured, Confidence: trustConfigured})
	j.limits = config.Limits{Provider: j.account.Name, Model: j.model}
	l := &j.tier.Limits
	for _, layer := range slices.Concat([]*config.Limits{published}, written, []*config.Limits{configured}) {
		if layer == nil {
			continue
		}
		for d, limit := range l.All() {
			stated, w, window := *layer.At(d), l.WindowOf(d), (*config.Window)(nil)
			if w != nil {
				window = *layer.WindowOf(d)
			}
			if stated != nil {
				*limit, *j.limits.At(d) = int(stated.Value), stated
			}
			switch { // of a quantity the latest layer states the limit
			case window != nil:
				*limit, *j.limits.At(d), *w, *j.limits.WindowOf(d) = 0, nil, window.Window, window
			case stated != nil && w != nil:
				*w, *j.limits.WindowOf(d) = limits.Window{}, nil
			}
		}
		if layer.Burst > 0 {
			l.Burst, j.limits.Burst = time.Duration(layer.Burst), layer.Burst
		}
		ceilings, beliefs := layer.Split()
		j.told, j.start = account.Over(ceilings, j.told), account.Over(beliefs, j.start)
	}
	*l, j.told = account.Over(told, *l), account.Over(told, j.told) // to the last digit, which a float64 may lack
	j.start = account.Without(j.start, j.told)
	j.dropSeen()
}

// dropSeen leaves out what merely passed without a refusal, where a limit is known that is none of these: nobody knows how
// much more would. Where none is, so much is sure; but how many calls were seen open at once says nothing beside a rate, as a
// search opens no more than it needs.
func (j *subject) dropSeen() {
	known, rate := false, false
	for d := range j.tier.Limits.All() {
		if limit := *j.limits.At(d); limit != nil {
			known = known || limit.Source != limits.SourceAtLeast
			rate = rate || d != limits.Concurrency
		}
	}
	for d, value := range j.tier.Limits.All() {
		limit := *j.limits.At(d)
		if limit != nil && limit.Source == limits.SourceAtLeast && (known || rate && d == limits.Concurrency) {
			*value, *j.limits.At(d) = 0, nil
		}
	}
}

// toldAny says whether somebody told limits of any kind.
func toldAny(file *config.Limits, told sluice.Limits) bool {
	told.Burst = 0
	if told != (sluice.Limits{}) {
		return true
	}
	if file == nil {
		return false
	}
	for d := range told.All() {
		if *file.At(d) != nil || file.WindowOf(d) != nil && *file.WindowOf(d) != nil {
			return true
		}
	}
	return false
}

// accountOf finds whose limits are planned with. An account without a name is nobody's that is known.
func (o *planOptions) accountOf(r *provider.Registry, model string) (provider.Provider, error) {
	name := o.provider
	if name == "" {
		p, _ := r.Recognise(model)
		return p, nil
	}
	p, ok := r.Lookup(name)
	if !ok {
		return p, account.UnknownProvider(r, name)
	}
	return p, nil
}

// subjectOf finds the limits to plan with: the tier's, over them the file's and the flags'.
func (o *planOptions) subjectOf(r *provider.Registry, account provider.Provider, model string) (subject, error) {
	tier := o.settings.Tier
	j := subject{account: account, model: model}
	written, _, err := o.kept.LimitsFor(account, "", model)
	if err != nil {
		return j, err
	}
	switch {
	case tier != "" && account.Name == "":
		return j, fault.New(fault.Provider, fmt.Errorf("--tier %s: the provider is missing", tier), "set --provider, or --model to a known model")
	case tier != "":
		t, err := r.Find(account.Name, tier, model)
		if err != nil {
			return j, fault.New(fault.Limits, err, "%s", otherTiers(r, account, model))
		}
		j.tier = t
	case !toldAny(written, o.told) && o.published == nil:
		return j, noLimits(r, account, model)
	}
	published := o.published
	if tier != "" {
		published = nil
	}
	j.overlay(o.told, published, written)
	return j, nil
}

// price completes a tier by the price of a model, if it has none. It warns of a price without a source.
func (o *planOptions) priceOf(s *term.Streams, t *provider.Tier, p provider.Provider, model string) {
	if t.PriceIn != nil || t.PriceOut != nil || model == "" {
		return
	}
	price, doubt := o.kept.Price(nil, p, model)
	if price == nil {
		return
	}
	rate := price.Standard()
	t.PriceIn, t.PriceOut = &rate.Input, &rate.Output
	if doubt != "" {
		s.Errorf("sluice: warning: %s\n", doubt)
	}
}

// howToFind is how to find limits that are not published.
const howToFind = "set --rpm and --tpm to the limits in the provider's console, or measure them with sluice find --model M"

// tiersWith names the tiers that have limits for the model, or for any if it is "".
func tiersWith(r *provider.Registry, account provider.Provider, model string) []string {
	var names []string
	for _, t := range r.Tiers(account.Name) {
		if (model == "" || t.Is(model)) && !slices.Contains(names, t.Tier) {
			names = append(names, t.Tier)
		}
	}
	return names
}

// otherTiers is the hint for a tier that is not there, or not for the model.
func otherTiers(r *provider.Registry, account provider.Provider, model string) string {
	names := tiersWith(r, account, model)
	switch {
	case len(names) == 0:
		return howToFind
	case model == "":
		return "set limits with --rpm and --tpm, or list published limits with sluice plan --list"
	}
	return fmt.Sprintf("use --tier %[2]s, for which limits of %[1]s are published, or %[3]s", model, strings.Join(names, ", "), howToFind)
}

// noLimits says how limits can be found.
func noLimits(r *provider.Registry, account provider.Provider, model string) error {
	const find = howToFind
	var names []string
	if account.Name != "" {
		names = tiersWith(r, account, model)
	}
	switch {
	case len(names) == 1:
		return fault.New(fault.Limits, fmt.Errorf("no limit is known: for %s, only limits of tier %s are published", cmp.Or(model, account.Name), names[0]),
			"use tier %s if your account has it (plan: --tier; run: the field tier of --config), or %s", names[0], find)
	case len(names) > 0:
		return fault.New(fault.Limits, fmt.Errorf("the account tier of %s is missing: limits differ between %s", account.Name, strings.Join(names, ", ")),
			"use the tier in the provider's console, such as %s (plan: --tier; run: the field tier of --config), or %s", names[0], find)
	case account.Name != "" && model != "":
		return fault.New(fault.Limits, fmt.Errorf("no limit is known: none are published for %s of %s", model, account.Name), find)
	case account.Name != "":
		return fault.New(fault.Limits, fmt.Errorf("no limit is known: none are published for %s", account.Name), find)
	case model != "":
		return fault.New(fault.Limits, fmt.Errorf("no limit is known: the provider of model %q is unknown", model), "set --provider and its tier, or %s", find)
	}
	return fault.New(fault.Limits, errors.New("no limit is known: neither a provider nor limits are set"), "set --provider and its tier, or %s", find)
}
