package cli

import (
	"fmt"

	"github.com/sluice-llm/sluice/provider"
)

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
