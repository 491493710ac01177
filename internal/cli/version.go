package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/internal/term"
	"github.com/sluice-llm/sluice/internal/version"
)

// newVersion returns the version command.
func newVersion(s *term.Streams) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  sluice version
  sluice version --json`,
		Args: none,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return s.JSON(version.Read())
			}
			return printVersion(s)
		},
	}
	define(cmd, flagGroup{"Output", []flag{{name: "json", field: &asJSON, help: "Print one JSON document", common: true}}})
	return cmd
}

func printVersion(s *term.Streams) error {
	_, err := fmt.Fprintln(s.Out, version.Read())
	return err
}
