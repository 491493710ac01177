package cli

import (
	"fmt"

	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/internal/config"
	"github.com/sluice-llm/sluice/provider"
)

// settingsFlags name what is written down of accounts: files, and the tier whose limits are published.
type settingsFlags struct{ config, limits, tier string }

func (f *settingsFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&f.config, "config", "", "file of providers and limits")
	fs.StringVar(&f.limits, "limits", "", "file of limits to begin with")
	fs.StringVar(&f.tier, "tier", "", "begin with the limits that are published for this tier of the provider")
}

// settings are what is written down of accounts.
type settings struct {
	registry *provider.Registry
	limits   *config.Limits
	from     string
}

func (f *settingsFlags) open() (*settings, error) {
	s := &settings{registry: provider.Published()}
	for _, file := range []struct{ flag, name string }{{"config", f.config}, {"limits", f.limits}} {
		if file.name == "" {
			continue
		}
		loaded, err := config.Load(file.name)
		if err != nil {
			return nil, usageError(fmt.Errorf("--%s: %w", file.flag, err), "name a file that can be read")
		}
		if file.flag == "limits" && loaded.Limits == nil {
			return nil, usageError(fmt.Errorf("%s has no limits", file.name), "write them below limits:")
		}
		s.limits, s.from = loaded.Limits, file.name
	}
	return s, nil
}

// check refuses limits of another account.
func (s *settings) check(p provider.Provider, model string) error {
	l := s.limits
	if l.Provider != "" && l.Provider != p.Name {
		return usageError(fmt.Errorf("%s has the limits of %s, and this is %s", s.from, l.Provider, p.Name), "give others")
	}
	if l.Model != "" && model != "" && l.Model != model {
		return usageError(fmt.Errorf("%s has the limits of %s, and --model is %s", s.from, l.Model, model), "give others")
	}
	return nil
}

// listRegistry prints what is published. A stand-in, until the registry is merged.
func listRegistry(s *streams, r *provider.Registry, asJSON bool) error {
	if asJSON {
		return s.printJSON(r.Tiers(""))
	}
	for _, t := range r.Tiers("") {
		fmt.Fprintln(s.out, t.Provider, t.Tier)
	}
	return nil
}
