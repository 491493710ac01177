package forecast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/provider"
)

// setLimits sets the limits of the plan. It returns the row of the tier, with the limits of the plan.
func (p *Plan) setLimits(ctx context.Context, by provider.Provider) (provider.Tier, error) {
	settings := p.cfg.Settings
	if owner, ok := settings.Registry.Recognise(p.Model); ok && len(by.Models) > 0 && owner.Name != by.Name {
		settings.Log.Warn(fmt.Sprintf("%s is a model of %s: is --provider %s meant?", p.Model, owner.Name, by.Name))
	}
	if by.Name == "" && settings.TierFlag != "" {
		return provider.Tier{}, fault.New(fault.Provider, fmt.Errorf("%s %s: the provider is missing", settings.TierFlag, settings.File.Tier),
			"set --provider, or --model to a known model")
	}
	var published *config.Limits
	if settings.TierFlag == "" {
		published = settings.Published(ctx, by, p.Model, p.cfg.Hide)
	}
	all, err := settings.Layered(p.cfg.Limits, by, "", p.Model, published)
	if err != nil {
		return all.Tier, err
	}
	all.Provider, all.Model = by.Name, p.Model
	p.Limits = all.Limits
	row := all.Tier
	row.Limits = all.Amounts()
	if row.Tier == "" && row.Limits == (sluice.Limits{Burst: row.Limits.Burst}) {
		return row, noLimits(settings, by, p.Model)
	}
	return row, nil
}

// noLimits returns the error about unknown limits of a model at a provider, which may be unknown, too.
func noLimits(s *account.Settings, by provider.Provider, model string) *fault.Error {
	const useTier = "use %s (plan: --tier; run: the field tier of --config), or " + account.HowToFind
	hint, text := "set --provider and its tier, or "+account.HowToFind, ""
	var names []string
	if by.Name != "" {
		hint, names = account.HowToFind, s.TiersWith(by, model)
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
