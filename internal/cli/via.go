package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice/batch"
	"github.com/sluice-llm/sluice/provider"
)

// checkVia refuses accounts that cannot be reached by that way. Where each line's model names the provider, the batch finds out.
func (a *accounts) checkVia(way batch.Via) error {
	switch {
	case way == batch.ViaLive:
		return nil
	case a.upstreams != nil:
		return usageError(errors.New("--batch uses one account, but the settings have upstreams"), "set --provider instead of upstreams")
	case way == batch.ViaBatchAPI && a.provider.Name != "" && a.provider.Batches.API == "":
		return noBatchAPI(a.settings.registry, a.provider.Name)
	}
	return nil
}

// noBatchAPI says who has one.
func noBatchAPI(known *provider.Registry, name string) error {
	var having []string
	for _, other := range known.Names() {
		if p, ok := known.Lookup(other); ok && p.Batches.API != "" {
			having = append(having, other)
		}
	}
	return usageError(fmt.Errorf("the Batch API of %s is unknown", name),
		"omit --batch, use one of %s, or add the Batch API to the provider in the settings with batches:",
		strings.Join(having, ", "))
}
