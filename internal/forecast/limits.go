package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// Confidence in limits that no response has confirmed.
const (
	trustConfigured = 1 // also of limits that the provider publishes for the account
	trustTier       = 0.9
	trustDoubtful   = 0.5
)

// setLimits sets the limits of the plan. Flags take precedence over the settings, and the settings over the limits that the provider
// publishes: those of the tier, or those of the account. It returns the row of the tier, with the limits of the plan.
func (p *Plan) setLimits(ctx context.Context, by provider.Provider) (provider.Tier, error) {
	settings, row := p.cfg.Settings, provider.Tier{}
	published := p.published(ctx, by)
	if owner, ok := settings.Registry.Recognise(p.Model); ok && len(by.Models) > 0 && owner.Name != by.Name {
		settings.Warn("%s is a model of %s: is --provider %s meant?", p.Model, owner.Name, by.Name)
	}
	written, _ := settings.LimitsFor(by, "", p.Model)
	if p.cfg.Tier != "" {
		var err error
		if row, err = p.findTier(by); err != nil {
			return row, err
		}
		trust := trustTier
		if row.Doubtful {
			trust = trustDoubtful
		}
		published = sourced(row.Limits, config.Limit{Source: limits.SourceRegistry, Confidence: trust})
	}
	flags := p.cfg.Limits
	all := layered(sourced(flags, config.Limit{Source: limits.SourceConfigured, Confidence: trustConfigured}), written, published)
	burst := all.Burst
	if all.Burst = 0; all == (config.Limits{}) && p.cfg.Tier == "" {
		return row, noLimits(settings.Registry, by, p.Model)
	}
	all.Provider, all.Model, all.Burst = by.Name, p.Model, burst
	p.Limits = all
	p.configured, p.initial = all.Split()
	p.configured = account.Over(flags, p.configured) // to the last digit, which a float64 may lack
	row.Limits = account.Over(p.configured, p.initial)
	for d, limit := range row.Limits.All() {
		if l := *all.At(d); l != nil && l.Source == limits.SourceAtLeast {
			*limit = int(l.Value)
		}
	}
	return row, nil
}

// sourced returns limits with the source, confidence and age of a limit.
func sourced(l sluice.Limits, from config.Limit) *config.Limits {
	all := &config.Limits{Burst: config.Duration(l.Burst)}
	for d, limit := range l.All() {
		if from.Value = float64(*limit); *limit > 0 {
			*all.At(d) = new(from)
		}
		if w := l.WindowOf(d); w != nil && w.N > 0 {
			*all.WindowOf(d) = *w
		}
	}
	return all
}

// layered returns, for each quantity, the limit of the first layer with one. Amounts that merely passed without a rejection count only if
// no limit is known. Concurrency that passed does not count beside a rate, because a search opens no more requests than it needs.
func layered(layers ...*config.Limits) (all config.Limits) {
	known, rate := false, false
	for _, layer := range slices.DeleteFunc(layers, func(l *config.Limits) bool { return l == nil }) {
		for d := range new(sluice.Limits).All() {
			limit, w, has, above := *layer.At(d), layer.WindowOf(d), *all.At(d), all.WindowOf(d)
			switch {
			case above != nil && above.N > 0, has != nil && has.Source != limits.SourceAtLeast:
			case w != nil && w.N > 0:
				*all.At(d), *above = nil, *w
			case limit == nil:
			default:
				*all.At(d) = limit
				known, rate = known || limit.Source != limits.SourceAtLeast, rate || d != limits.Concurrency
			}
		}
		all.Burst = cmp.Or(all.Burst, layer.Burst)
	}
	for d := range new(sluice.Limits).All() {
		l := all.At(d)
		if *l != nil && (*l).Source == limits.SourceAtLeast && (known || rate && d == limits.Concurrency) {
			*l = nil
		}
	}
	return all
}

// published returns the limits that the provider publishes for the model in this account; nil without an admin key, or with a named tier.
func (p *Plan) published(ctx context.Context, by provider.Provider) *config.Limits {
	if _, err := provider.LimitsAPIOf(by, ""); err != nil || p.cfg.Tier != "" {
		return nil
	}
	read, err := account.NewLimitsReader(by, "", account.KeySource{}, p.cfg.Hide)
	if errors.Is(err, account.ErrNoAdminKey) {
		return nil
	}
	var found *provider.AccountLimits
	if err == nil {
		found, err = read(ctx)
	}
	if err != nil {
		p.cfg.Settings.Warn("%s", account.Unpublished(by, err))
		return nil
	}
	return sourced(found.ByModel()[p.Model], config.Limit{Source: limits.SourcePublished, Confidence: trustConfigured, At: found.At})
}

// findTier returns the row of the tier for the model.
func (p *Plan) findTier(by provider.Provider) (provider.Tier, error) {
	if by.Name == "" {
		return provider.Tier{}, fault.New(fault.Provider, fmt.Errorf("--tier %s: the provider is missing", p.cfg.Tier),
			"set --provider, or --model to a known model")
	}
	registry, hint := p.cfg.Settings.Registry, howToFind
	row, err := registry.Find(by.Name, p.cfg.Tier, p.Model)
	if err == nil {
		return row, nil
	}
	switch names := tiersWith(registry, by.Name, p.Model); {
	case len(names) > 0 && p.Model == "":
		hint = "set limits with --rpm and --tpm, or list published limits with sluice plan --list"
	case len(names) > 0:
		hint = fmt.Sprintf("use --tier %[2]s, for which limits of %[1]s are published, or %[3]s", p.Model, strings.Join(names, ", "), howToFind)
	}
	return row, &fault.Error{Code: fault.Limits, Err: err, Hint: hint}
}

// howToFind is the hint for limits that are not published.
const howToFind = "set --rpm and --tpm to the limits in the provider's console, or measure them with sluice find --model M"

// tiersWith returns the tiers with limits for the model; all tiers if the model is "".
func tiersWith(r *provider.Registry, name, model string) []string {
	var names []string
	for _, t := range r.Tiers(name) {
		if (model == "" || t.Is(model)) && !slices.Contains(names, t.Tier) {
			names = append(names, t.Tier)
		}
	}
	return names
}

// noLimits returns the error about unknown limits of a model at a provider, which may be unknown, too.
func noLimits(r *provider.Registry, by provider.Provider, model string) *fault.Error {
	const useTier = "use %s (plan: --tier; run: the field tier of --config), or " + howToFind
	hint, text := "set --provider and its tier, or "+howToFind, ""
	var names []string
	if by.Name != "" {
		hint, names = howToFind, tiersWith(r, by.Name, model)
	}
	switch {
	case len(names) == 1:
		text = fmt.Sprintf("no limit is known: for %s, only limits of tier %s are published", cmp.Or(model, by.Name), names[0])
		hint = fmt.Sprintf(useTier, "tier "+names[0]+" if your account has it")
	case len(names) > 0:
		text = fmt.Sprintf("the account tier of %s is missing: limits differ between %s", by.Name, strings.Join(names, ", "))
		hint = fmt.Sprintf(useTier, "the tier in the provider's console, such as "+names[0])
	case by.Name != "" && model != "":
		text = fmt.Sprintf("no limit is known: none are published for %s of %s", model, by.Name)
	case by.Name != "":
		text = "no limit is known: none are published for " + by.Name
	case model != "":
		text = fmt.Sprintf("no limit is known: the provider of model %q is unknown", model)
	default:
		text = "no limit is known: neither a provider nor limits are set"
	}
	return &fault.Error{Code: fault.Limits, Err: errors.New(text), Hint: hint}
}
