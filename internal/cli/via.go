package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/provider"
)

// checkBatches rejects accounts without a Batch API. If the models of items name the provider, the run checks it.
func checkBatches(a *account.Accounts, o *runOptions) error {
	switch {
	case !o.usesBatches():
		return nil
	case a.Upstreams() != nil:
		return fault.New(fault.Conflict, errors.New("--batch uses one account, but the settings have upstreams"), "set --provider instead of upstreams")
	case !o.goesLive() && a.Provider.Name != "" && a.Provider.Batches.API == "":
		return noBatchAPI(a.Settings.Registry, a.Provider.Name)
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
	return fault.New(fault.Provider, fmt.Errorf("the Batch API of %s is unknown", name),
		"omit --batch, use one of %s, or add the Batch API to the provider in the settings with batches:",
		strings.Join(having, ", "))
}
