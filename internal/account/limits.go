package account

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/prose"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// Confidence in limits that no response has confirmed.
const (
	trustConfigured = 1 // also of limits that the provider publishes for the account
	trustTier       = 0.9
	trustDoubtful   = 0.5
)

// Layered are the limits of an account with the source of each. Its Model is the one of the limits in the files.
type Layered struct {
	config.Limits
	Tier provider.Tier // row of the tier; the zero row if no tier applies
	Own  bool          // an account of upstreams has these limits
}

// Layered returns the limits for a model at p. For each quantity by itself, flags take precedence over the files, the files over the limits
// that the provider publishes for the account, and these over the tier. published is nil if they are unknown. label is the one of an
// account of upstreams; "" if there are none. An account of upstreams with its own limits in the files has no others.
func (s *Settings) Layered(flags sluice.Limits, p provider.Provider, label, model string, published *config.Limits) (l Layered, err error) {
	written, own := s.limitsFor(p, label, model)
	layers := []*config.Limits{configured(flags), written}
	if !own {
		if l.Tier, err = s.TierOf(p, model); err != nil {
			return l, err
		}
		from := config.Limit{Source: limits.SourceRegistry, Confidence: trustTier}
		if l.Tier.Doubtful {
			from.Confidence = trustDoubtful
		}
		layers = append(layers, published, sourced(l.Tier.Limits, from))
	}
	l.Limits, l.Own = layered(layers...), own
	if written != nil {
		l.Model = written.Model
	}
	return l, nil
}

// configured returns the limits of flags.
func configured(flags sluice.Limits) *config.Limits {
	return sourced(flags, config.Limit{Source: limits.SourceConfigured, Confidence: trustConfigured})
}

// sourced returns limits with the source, confidence and age of a limit.
func sourced(l sluice.Limits, from config.Limit) *config.Limits {
	all := &config.Limits{Burst: config.Duration(l.Burst), Requests: l.Requests, Tokens: l.Tokens}
	for d, limit := range l.All() {
		if from.Value = float64(*limit); *limit > 0 {
			*all.At(d) = new(from)
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

// ApplyLimits sets the limits of c for an account at p as they are now. label is the one of an account of upstreams; "" if there are none.
func (a *Accounts) ApplyLimits(c *sluice.Config, p provider.Provider, label string) error {
	s, flags := cmp.Or(a.current.Load(), a.Settings), a.Config.Limits
	if a.Config.Purpose == Start { // no other limits apply to commands
		written, used := cmp.Or(s.File.Limits, &config.Limits{}), &config.Limits{}
		used.RPM, used.Concurrency = written.RPM, written.Concurrency
		all := layered(configured(flags), used)
		c.Limits, _ = all.Split()
		return nil
	}
	if label == "" {
		if err := a.checkAddress(p); err != nil {
			return err
		}
	}
	all, err := s.Layered(flags, p, label, a.Config.Model, nil)
	if err != nil {
		return err
	}
	s.noteTier(p, all.Tier)
	c.Limits, c.Start = all.Split()
	if c.Account = c.Limits; all.Model != "" {
		c.Account = flags // limits of one model are not limits of all models together
	}
	a.bound(c)
	return nil
}

// noteTier notes that an account at p starts with the limits of a tier.
func (s *Settings) noteTier(p provider.Provider, tier provider.Tier) {
	if tier.Tier == "" {
		return
	}
	note := fmt.Sprintf("starts with the limits of tier %s of %s: %s (%s, %s)",
		tier.Tier, p.Name, prose.Limits(tier.Limits), tier.Source, tier.Date)
	if tier.Doubtful {
		s.Log.Warn(note + ", which is doubtful: headers and rejections of the provider correct the limit")
	} else {
		s.Log.Info(note)
	}
}

// HowToFind is the hint for limits that are not published.
const HowToFind = "set --rpm and --tpm to the limits in the provider's console, or measure them with sluice find --model M"

// TierOf returns the published row of the configured tier for a model at p; the zero row without a tier or a provider.
func (s *Settings) TierOf(p provider.Provider, model string) (row provider.Tier, err error) {
	if s.File.Tier == "" || p.Name == "" {
		return row, nil
	}
	if row, err = s.Registry.Find(p.Name, s.File.Tier, model); err == nil {
		return row, nil
	}
	if s.TierFlag == "" {
		err = fmt.Errorf("tier: %w", err)
	}
	hint := HowToFind
	switch names := s.TiersWith(p, model); {
	case len(names) > 0 && model == "":
		hint = "set limits with --rpm and --tpm, or list published limits with sluice plan --list"
	case len(names) > 0:
		hint = fmt.Sprintf("use %s %s, for which limits of %s are published, or %s",
			cmp.Or(s.TierFlag, "tier"), strings.Join(names, ", "), model, HowToFind)
	}
	return row, &fault.Error{Code: fault.Limits, Err: err, Hint: hint}
}

// TiersWith returns the tiers of p with limits for the model; all tiers if the model is "".
func (s *Settings) TiersWith(p provider.Provider, model string) (names []string) {
	for _, t := range s.Registry.Tiers(p.Name) {
		if (model == "" || t.Is(model)) && !slices.Contains(names, t.Tier) {
			names = append(names, t.Tier)
		}
	}
	return names
}

// limitsFor returns the limits of the files for a model at p; nil if there are none. If account is the label of an account of upstreams
// that has its own limits, it returns these.
func (s *Settings) limitsFor(p provider.Provider, account, model string) (l *config.Limits, own bool) {
	for _, up := range s.Upstreams {
		if label(up) == account && up.Limits != nil {
			l, own = up.Limits, true
		}
	}
	if own || s.File.Limits == nil {
		return l, own
	}
	l = s.File.Limits
	if name := l.Provider; name != "" {
		if owner, _ := s.Registry.Lookup(name); owner.Name != p.Name {
			s.Log.Warn(fmt.Sprintf("the limits are ignored: %s contains limits of %s, but the provider is %s",
				s.File.NameOf("limits.provider"), owner.Name, p.Name))
			return nil, false
		}
	}
	if model != "" && l.Model != "" && ModelKey(l.Model) != ModelKey(model) {
		s.Log.Warn(fmt.Sprintf("the limits are ignored: %s contains limits of %s, but --model is %s",
			s.File.NameOf("limits.model"), l.Model, model))
		return nil, false
	}
	s.used.Store(true)
	return l, false
}

// Foreign names the model of the limits in the files, and the file, if another model starts with them; "" if not.
func (s *Settings) Foreign(model string) string {
	if l := s.File.Limits; l != nil && s.used.Load() && l.Model != "" && ModelKey(l.Model) != ModelKey(model) {
		return l.Model + " in " + s.File.Name
	}
	return ""
}

// ModelKey returns the same key for all versions of a model: its id without the date of a version.
func ModelKey(model string) string {
	model = strings.ToLower(strings.TrimSuffix(model, "-latest"))
	for _, layout := range []string{"-2006-01-02", "-20060102"} {
		if rest := len(model) - len(layout); rest > 0 {
			if _, err := time.Parse(layout, model[rest:]); err == nil {
				return model[:rest]
			}
		}
	}
	return model
}
