package account

import (
	"cmp"

	"github.com/sluice-llm/sluice"
	"github.com/sluice-llm/sluice/limits"
	"github.com/sluice-llm/sluice/provider"
)

// Limit is an initial limit with its origin.
type Limit struct {
	Value  int           `json:"value"`  // Value of the limit.
	Source limits.Source `json:"source"` // Origin of the value, such as `header`.
	From   string        `json:"from"`   // Flag or file with the limit.
}

// StartLimits returns the initial limits of an open upstream by name. flag returns the flag of a limit.
func (a *Accounts) StartLimits(up *provider.Upstream, flag func(limits.Dimension) string) (map[string]Limit, error) {
	var c sluice.Config
	label := a.Label(up.Name)
	if err := a.ApplyLimits(&c, up.Provider, label); err != nil {
		return nil, err
	}
	written, own := a.Settings.LimitsFor(up.Provider, label, a.Config.Model)
	fields := "limits."
	if own {
		fields = "upstreams."
	}
	all, perMinute := make(map[string]Limit), c.Limits.PerMinute()
	for d, ceiling := range perMinute.All() {
		limit := Limit{Value: cmp.Or(*ceiling, *c.Start.At(d)), Source: limits.SourceConfigured}
		switch {
		case limit.Value == 0:
			continue
		case a.Config.Limits.In(d).N != 0:
			limit.From = flag(d)
		case c.Limits.In(d).Period != d.Window():
			limit.From = a.Settings.File.NameOf(fields + d.WindowName())
		case written != nil && *written.At(d) != nil:
			limit.Source, limit.From = (*written.At(d)).Source, a.Settings.File.NameOf(fields+d.String())
		default:
			limit.Source, limit.From = limits.SourceRegistry, "--tier "+a.Settings.File.Tier
		}
		all[d.String()] = limit
	}
	return all, nil
}
