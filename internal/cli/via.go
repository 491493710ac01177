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
		return usageError(errors.New("--batch uses one account, and the settings name upstreams"), "name it by --provider in place of upstreams")
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
	return usageError(fmt.Errorf("%s has no Batch API that is known", name),
		"leave --batch out; these have one: %s. The settings can name another of the same form, by batches: below its provider",
		strings.Join(having, ", "))
}
