package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/provider"
)

// complete has shells complete the flag's value: by its words, by providers, tiers or models, by files, or not at all.
func (f flag) complete(cmd *cobra.Command, name string) {
	words := f.words()
	isFile := slices.ContainsFunc([]string{"FILE", "DIR", "COMMAND"}, func(kind string) bool { return strings.Contains(f.metavar, kind) })
	if isFile && words == nil {
		return
	}
	err := cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		values := append(slices.Clone(words), published(cmd, name)...)
		return slices.DeleteFunc(values, func(v string) bool { return !strings.HasPrefix(v, begun) }), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // two flags have one name
	}
}

// published returns the values of the flag provider, tier or model: those of the settings that the line names, or the built-in ones if
// the settings cannot be read. For another flag it returns nil.
func published(cmd *cobra.Command, flag string) (names []string) {
	if !slices.Contains([]string{"provider", "tier", "model"}, flag) {
		return nil
	}
	var from account.Sources
	if f := cmd.Flags().Lookup("config"); f != nil {
		from = *f.Value.(*texts).field
	}
	registry, name := provider.Published(), ""
	if s, err := from.Open(); err == nil {
		registry = s.Registry
	}
	if flag == "provider" {
		return registry.Names()
	}
	if f := cmd.Flags().Lookup("provider"); f != nil {
		p, _ := registry.Lookup(f.Value.String())
		name = p.Name
	}
	for _, t := range registry.Tiers(name) {
		if flag == "tier" {
			names = append(names, t.Tier)
			continue
		}
		for _, m := range t.Families() {
			names = append(names, strings.TrimSuffix(m, "*"))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// refuseOtherShells has the completion command reject an unknown shell. Cobra would print help, into the file for the script.
func refuseOtherShells(root *cobra.Command) {
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil {
		panic(err) // newRoot adds it
	}
	cmd.Args, cmd.Example = nil, "  source <(sluice completion bash)\n  sluice completion fish > ~/.config/fish/completions/sluice.fish"
	cmd.Long = "Print the completion script of a shell. `sluice completion SHELL --help` says where to put it."
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fault.New(fault.Usage, fmt.Errorf("no completion for %s", args[0]), "use one of %s", strings.Join(subcommands(cmd), ", "))
		}
		return cmd.Help()
	}
}
