package cli

import (
	"fmt"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/gateway"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/internal/term"
)

// newServeKey returns the command that makes a key for a tenant of a gateway.
func newServeKey(s *term.Streams) *cobra.Command {
	return &cobra.Command{
		Use:   "key NAME",
		Short: "Make a key for a tenant of the gateway",
		Long: `Make a key for a tenant of the gateway.

The key is printed once, on standard output. Standard error contains a settings line with the tenant's name and the
SHA-256 of the key. Add this line below serve.tenants, with the limits of the tenant. Clients send the key in place of
the provider's key.`,
		Example:           "  sluice serve key alice\n  sluice serve key ci > ci.key",
		Args:              one("name of a tenant", "name the tenant, for example `sluice serve key alice`"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			key, sum := gateway.NewKey()
			t := gateway.Tenant{Name: args[0], KeySHA256: sum}
			if _, err := gateway.CheckTenants([]gateway.Tenant{t}); err != nil {
				return fault.New(fault.Value, fmt.Errorf("tenant %q: %w", t.Name, err), "use another name, for example `sluice serve key ci`")
			}
			line, err := yaml.MarshalWithOptions(t, yaml.Flow(true))
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintln(s.Out, key); err != nil {
				return err
			}
			s.Errorf("sluice: add this line to the settings, below serve.tenants, and keep the key: it is not shown again\n    - %s\n",
				strings.TrimSpace(string(line)))
			return nil
		},
	}
}
