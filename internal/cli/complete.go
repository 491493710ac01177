package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-llm/sluice/internal/account"
	"github.com/sluice-llm/sluice/internal/fault"
	"github.com/sluice-llm/sluice/provider"
)

// complete has shells complete the flag's values: words, providers, tiers and models. Whole numbers and durations are nothing that a
// shell could complete; other values can be files.
func (f flag) complete(cmd *cobra.Command, name string) {
	suggest := map[string]func(*cobra.Command) []string{"provider": providers, "tier": tiers, "model": models}[name]
	if words := f.words(); words != nil {
		suggest = func(*cobra.Command) []string { return words }
	}
	if suggest == nil && slices.ContainsFunc([]string{"FILE", "DIR", "COMMAND"}, func(kind string) bool { return strings.Contains(f.metavar, kind) }) {
		return
	}
	err := cmd.RegisterFlagCompletionFunc(name, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		if suggest == nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return beginning(suggest(cmd), begun), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // two flags of one name
	}
}

// refuseOtherShells has the completion command refuse a shell that it does not know, where cobra prints its help, which would end up
// in the file that a script was to be in.
func refuseOtherShells(root *cobra.Command) {
	cmd, _, err := root.Find([]string{"completion"})
	if err != nil {
		panic(err) // it is there
	}
	var shells []string
	for _, sub := range cmd.Commands() {
		shells = append(shells, sub.Name())
	}
	cmd.Args, cmd.Example = nil, "  source <(sluice completion bash)\n  sluice completion fish > ~/.config/fish/completions/sluice.fish"
	cmd.Long = "Print the completion script of a shell. `sluice completion SHELL --help` says where to put it."
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fault.New(fault.Usage, fmt.Errorf("no completion for %s", args[0]), "use one of %s", strings.Join(shells, ", "))
		}
		return cmd.Help()
	}
}

// beginning are those of all that go on as text begins, each once.
func beginning(all []string, text string) (found []string) {
	for _, word := range all {
		if strings.HasPrefix(word, text) && !slices.Contains(found, word) {
			found = append(found, word)
		}
	}
	return found
}

// completing returns the registry of the settings that the line names, or the published one if they cannot be read.
func completing(cmd *cobra.Command) *provider.Registry {
	var from account.Sources
	if f := cmd.Flags().Lookup("config"); f != nil {
		from.Files = *f.Value.(*texts).field
	}
	if s, err := from.Open(); err == nil {
		return s.Registry
	}
	return provider.Published()
}

func providers(cmd *cobra.Command) []string {
	return completing(cmd).Names()
}

// published are the limits of the provider that the line names, and of all where it names none.
func published(cmd *cobra.Command) (all []provider.Tier) {
	known := completing(cmd)
	if f := cmd.Flags().Lookup("provider"); f != nil {
		if p, ok := known.Lookup(f.Value.String()); ok {
			return known.Tiers(p.Name)
		}
	}
	for _, p := range known.All() {
		all = append(all, known.Tiers(p.Name)...)
	}
	return all
}

func tiers(cmd *cobra.Command) []string {
	names := make(map[string]bool)
	for _, t := range published(cmd) {
		names[t.Tier] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func models(cmd *cobra.Command) []string {
	names := make(map[string]bool)
	for _, t := range published(cmd) {
		for _, m := range t.Families() {
			names[strings.TrimSuffix(m, "*")] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}
