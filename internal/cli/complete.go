package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/sluice-llm/sluice/provider"
)

// suggest returns what the value of a flag may be, by what else stands on the line.
type suggest func(cmd *cobra.Command) []string

// completeFlags has shells complete the values of flags, of a command and of those below it: words that are known, providers,
// tiers, models and upstreams. Whole numbers and times are nothing that a shell could complete; all others may be files.
func completeFlags(cmd *cobra.Command) {
	asked := map[string]suggest{"provider": providers, "tier": tiers, "what-if": tiers, "model": models, "upstream": upstreamNames}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		known := asked[f.Name]
		if words := wordsOf(f.Name); words != nil {
			known = func(*cobra.Command) []string { return words }
		}
		if known == nil && !slices.Contains([]string{"int", "float64", "duration", "uint64"}, f.Value.Type()) {
			return
		}
		err := cmd.RegisterFlagCompletionFunc(f.Name, func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
			if known == nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return beginning(known(cmd), begun), cobra.ShellCompDirectiveNoFileComp
		})
		if err != nil {
			panic(err) // two of one name
		}
	})
	for _, sub := range cmd.Commands() {
		completeFlags(sub)
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
	cmd.Args = nil
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError(fmt.Errorf("no completion for %s", args[0]), "it is one of %s", strings.Join(shells, ", "))
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

// completing are the settings of the line that is completed: those of its files, and where they cannot be read what is published.
func completing(cmd *cobra.Command) *settings {
	flags := settingsFlags{config: valueOf(cmd, "config")}
	if s, err := flags.open(); err == nil {
		return s
	}
	return &settings{registry: provider.Published()}
}

// valueOf is what a flag was given; "" where the command has no such flag.
func valueOf(cmd *cobra.Command, flag string) string {
	if f := cmd.Flags().Lookup(flag); f != nil {
		return f.Value.String()
	}
	return ""
}

func providers(cmd *cobra.Command) []string {
	return completing(cmd).registry.Names()
}

// published are the limits of the provider that the line names, and of all where it names none.
func published(cmd *cobra.Command) (all []provider.Tier) {
	known := completing(cmd).registry
	name := valueOf(cmd, "provider")
	if p, ok := known.Lookup(name); ok {
		return known.Tiers(p.Name)
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

func upstreamNames(cmd *cobra.Command) (names []string) {
	for _, up := range completing(cmd).file.Upstreams {
		names = append(names, up.Name)
	}
	return names
}
